"""What every client shares: connections, routes, heartbeats, identity, configuration."""
