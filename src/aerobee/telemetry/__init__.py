"""Metrics, structured logs, message trace."""
