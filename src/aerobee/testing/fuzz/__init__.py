"""Fuzzing: mutated bytes into everything that reads what comes from outside."""
