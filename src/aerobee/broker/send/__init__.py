"""Sends: from a frame to a draft in the log, and the answer."""
