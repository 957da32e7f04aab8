"""Nodes on loopback and a disk in memory: real sockets, real time, no files."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from types import MappingProxyType
from typing import Any

import pytest

from aerobee.app.broker import BrokerNode
from aerobee.app.namesrv import NamesrvNode
from aerobee.broker.config import BrokerConfig
from aerobee.namesrv.config import NamesrvConfig
from aerobee.runtime.clock import SystemClock
from aerobee.runtime.seams import Net
from aerobee.runtime.tasks import LoopTimers
from aerobee.store.config import FlushDiskType, StoreConfig
from aerobee.testing.disk import RecordingDisk
from aerobee.testing.entropy import SeededEntropy

HOST = "127.0.0.1"
ROOT = "/store"


class Stand:
    """Builds nodes over one disk."""

    def __init__(self, disk: RecordingDisk, namesrv: str) -> None:
        self.disk = disk
        self.namesrv = namesrv
        self._id = 0

    def broker(
        self,
        *,
        name: str = "broker-a",
        port: int = 0,
        sync: bool = False,
        root: str = ROOT,
        net: Net | None = None,
        settings: Mapping[str, Any] = MappingProxyType({}),
        store_settings: Mapping[str, Any] = MappingProxyType({}),
    ) -> BrokerNode:
        config = BrokerConfig(
            broker_name=name,
            broker_ip1=HOST,
            listen_port=port,
            namesrv_addr=self.namesrv,
            # A loaded machine must not turn into busy answers here.
            broker_fast_failure_enable=False,
            **settings,
        )
        store = StoreConfig(
            store_path_root_dir=root,
            mapped_file_size_commit_log=4 << 20,
            max_message_size=1 << 20,
            mapped_file_size_consume_queue=20 * 300,
            max_hash_slot_num=100,
            max_index_num=400,
            flush_disk_type=FlushDiskType.SYNC_FLUSH if sync else FlushDiskType.ASYNC_FLUSH,
            **store_settings,
        )
        return BrokerNode(
            config, store, self.disk, SystemClock(), SeededEntropy(1), host=HOST, unique_id=self._unique_id, net=net
        )

    def _unique_id(self) -> str:
        self._id += 1
        return f"{self._id:032X}"

    def slow_disk(self, seconds: float) -> None:
        """Syncs and cold reads are done after so long."""
        self.disk.complete_by(LoopTimers(asyncio.get_running_loop()), lambda: seconds)


@asynccontextmanager
async def _standing() -> AsyncIterator[Stand]:
    disk = RecordingDisk(seed=1)
    namesrv = NamesrvNode(NamesrvConfig(listen_port=0, kv_config_path="/store/kv.json"), disk, SystemClock(), host=HOST)
    await namesrv.start()
    try:
        yield Stand(disk, f"{HOST}:{namesrv.port}")
    finally:
        await namesrv.stop()


@pytest.fixture
def standing() -> Callable[[], object]:
    """`async with standing() as stand:` a name server, and what brokers are made from."""
    return _standing
