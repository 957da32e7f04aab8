"""Reading topics: offsets, planning, pulling and the batch and stream readers."""
