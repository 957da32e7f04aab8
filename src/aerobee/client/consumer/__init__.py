"""Consumers: members of a group, their queues, offsets and pulls."""
