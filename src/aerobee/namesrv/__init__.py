"""The name server: a route table and its handlers."""
