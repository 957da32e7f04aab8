"""The log on disk. It is synchronous, has a single writer, and knows nothing of requests."""
