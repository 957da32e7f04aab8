"""RocketMQ's own HA protocol between a master and its slaves, with roles that the operator sets."""
