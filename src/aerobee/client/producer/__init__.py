"""Producers: sends, batches, requests, transactions, trace."""
