"""The demo of `make demo`: a hundred thousand orders through three replicas, of which the master is killed mid-way."""
