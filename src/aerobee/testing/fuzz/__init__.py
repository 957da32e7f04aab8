"""Fuzzing: everything that reads bytes from outside gets mutated bytes."""
