"""Declares, loads, checks and documents settings."""
