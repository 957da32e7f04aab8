"""Hostile clients against a real broker, and what everybody else must not notice of them."""
