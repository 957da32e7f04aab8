"""Messages that could not be consumed: retries and dead letters."""
