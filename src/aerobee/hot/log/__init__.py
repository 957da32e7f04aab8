"""The bytes of the log, the consume queues and the index."""
