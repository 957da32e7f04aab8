"""How a client names itself. RocketMQ: ClientConfig.buildMQClientId."""

from __future__ import annotations


def client_id_of(ip: str, instance_name: str, unit_name: str | None) -> str:
    """Return the name by which brokers tell this client from others."""
    client_id = f"{ip}@{instance_name}"
    return f"{client_id}@{unit_name}" if unit_name else client_id
