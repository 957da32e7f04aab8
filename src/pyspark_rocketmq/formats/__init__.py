"""Typed bodies: the bytes of a message as columns of their own when reading, and columns as a body when writing."""
