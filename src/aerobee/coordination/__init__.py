"""Coordination: where the replicas of a group agree on a master: in etcd, or in a small server with its model."""
