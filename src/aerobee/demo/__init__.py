"""The demo of `make demo`: a hundred thousand orders through a cluster of processes, one of which is killed mid-way."""
