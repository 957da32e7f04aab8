"""The log on disk: synchronous, single writer, sees no request."""
