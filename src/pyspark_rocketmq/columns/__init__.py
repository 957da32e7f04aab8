"""Stored records as Arrow columns: the names and types of the table, and the code that makes them without a loop."""
