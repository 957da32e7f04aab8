"""A whole cluster in one thread, on simulated network, disks and time, from a seed."""
