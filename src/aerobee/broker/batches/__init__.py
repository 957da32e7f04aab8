"""Batches of a sink: rows held back until the batch is committed, and rows known by their key."""
