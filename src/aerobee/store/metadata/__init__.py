"""The broker's own state as Apache keeps it in `config/*.json`: topics, groups, offsets, delay progress."""
