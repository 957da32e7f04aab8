"""The broker: use cases over the store."""
