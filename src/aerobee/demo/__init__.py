"""What `make demo` shows: a cluster of real processes, a hundred thousand orders, a broker group killed mid-way."""
