"""Topics and groups: their rules, the catalog of one broker, and the requests that change them."""
