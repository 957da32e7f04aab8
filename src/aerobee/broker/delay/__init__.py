"""Messages for later: the delay levels, the timers, and recall."""
