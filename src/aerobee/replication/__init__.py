"""Replication: how the brokers of one group keep the same log, and how one of them takes over as master."""
