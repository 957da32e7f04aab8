"""Timed messages: where they wait, when they are delivered, how they are recalled."""
