"""Hostile clients against a real broker. Other clients must not notice them."""
