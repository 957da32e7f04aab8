"""Where groups stand: commit, query, reset and progress."""
