"""`make failovers`: real processes that are killed, stopped, cut off and broken while clients send."""
