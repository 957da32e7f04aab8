"""Producer and consumers."""
