"""Where a broadcast consumer keeps its offsets. RocketMQ: LocalFileOffsetStore."""

from __future__ import annotations

from aerobee.runtime.process import local_address
from aerobee.runtime.smallfile import home_path, join_path


def local_offsets_path(directory: str | None, client_ip: str | None, instance_name: str | None, group: str) -> str:
    """Apache's place, found again after a restart: not by the client id, which names the process."""
    client = f"{client_ip or local_address()}@{instance_name or 'DEFAULT'}"
    root = directory if directory is not None else home_path(".rocketmq_offsets")
    return join_path(root, client, group, "offsets.json")
