"""Replicas of one group without brokers, on simulated machines and a simulated coordination store, from a seed."""
