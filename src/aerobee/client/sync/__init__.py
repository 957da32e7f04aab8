"""The synchronous producer and consumers, for scripts and notebooks."""
