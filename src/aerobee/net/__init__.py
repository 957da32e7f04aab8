"""Asyncio shells over protocol: server, client, dispatch, TLS."""
