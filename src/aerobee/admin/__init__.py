"""Admin operations as functions returning values."""
