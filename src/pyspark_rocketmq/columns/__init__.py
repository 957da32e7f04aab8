"""Stored records as Arrow columns: the names and types of the table, and how they are made without a Python loop."""
