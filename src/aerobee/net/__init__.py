"""Asyncio shells over the protocol: server, client, dispatch and TLS."""
