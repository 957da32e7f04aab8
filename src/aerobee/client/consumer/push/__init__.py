"""The pushing consumer: handlers are called with messages as they come."""
