"""LocalCluster and fixtures for users; simulated seams and checkers for us."""
