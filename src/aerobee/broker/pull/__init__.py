"""Pulls: by queue, in bulk, by key and by id."""
