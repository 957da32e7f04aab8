"""Order by key through faults of real processes: `python -m aerobee.testing.orderedfaults --rounds 1..10`."""
