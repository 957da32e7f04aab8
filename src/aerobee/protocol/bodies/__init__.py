"""Bodies of requests and answers. Each is a JSON document that is declared once, as a dataclass."""
