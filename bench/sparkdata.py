"""What bench/spark.py reads: 1 KB messages in a store of our own, and a broker process that serves it."""

from __future__ import annotations

import base64
import itertools
import os
import random
from pathlib import Path
from typing import Any

from aerobee.hot.log.record import Draft
from aerobee.runtime.clock import SystemClock
from aerobee.runtime.disk import InlineDisk
from aerobee.runtime.loopthread import LoopThread
from aerobee.store.config import StoreConfig
from aerobee.store.messagestore import MessageStore
from aerobee.testing.processes import ProcessCluster
from aerobee.testing.workload import RawClient

TOPIC = "bench"
QUEUES = 4
SEGMENT_BYTES = 256 << 20
BODY_BYTES = 1024
_HOST = b"\x7f\x00\x00\x01\x00\x00\x2a\x9f"
_BATCH = 64


def cpu_s() -> float:
    """CPU time of this process and of all below it: Spark's JVM and Pythons, and the brokers."""
    ticks: dict[int, int] = {}
    below: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue  # it ended, and its parent has its time
        pid = int(path.parent.name)
        below.setdefault(int(fields[1]), []).append(pid)
        # Its own time, and that of its children that ended.
        ticks[pid] = sum(map(int, fields[11:15]))
    todo, total = [os.getpid()], 0
    while todo:
        pid = todo.pop()
        total += ticks.get(pid, 0)
        todo += below.get(pid, [])
    return total / os.sysconf("SC_CLK_TCK")


def _drafts(first: int, draw: random.Random) -> list[Draft]:
    """Bodies that zstd makes a quarter smaller, six properties of which two are the user's."""
    made = []
    for number in range(first, first + _BATCH):
        body = base64.b64encode(draw.randbytes(BODY_BYTES * 3 // 4))
        unique = f"7F00000100002A139A55{number:012X}"
        block = (
            f"KEYS\x01order-{number}\x02UNIQ_KEY\x01{unique}\x02WAIT\x01true\x02TAGS\x01{('PAID', 'NEW')[number % 2]}"
            f"\x02region\x01{('eu', 'us', 'asia')[number % 3]}\x02source\x01web-{number % 10}\x02"
        ).encode()
        queue = number // _BATCH % QUEUES
        made.append(Draft(TOPIC.encode(), queue, 0, 0, 1, _HOST, _HOST, 0, 0, body, block, 0, "", unique))
    return made


def write_store(root: Path, segments: int) -> tuple[int, int]:
    """A store with `segments` full segments and a begun one; how many messages, and bytes of log."""
    config = StoreConfig(store_path_root_dir=str(root), mapped_file_size_commit_log=SEGMENT_BYTES)
    store = MessageStore(str(root), config, InlineDisk(), SystemClock(), [])
    store.open()
    draw = random.Random(7)
    count = 0
    for number in itertools.count(0, _BATCH):
        if store.log_end > segments * SEGMENT_BYTES:
            break
        store.append(_drafts(number, draw))
        count += _BATCH
    size = store.log_end
    store.close()
    return count, size


class Broker:
    """A broker process over the store, and its name server."""

    def __init__(self, directory: Path) -> None:
        # The queue files as write_store makes them; no index, which would be made anew at the start.
        settings = {
            "mappedFileSizeCommitLog": str(SEGMENT_BYTES),
            "mappedFileSizeConsumeQueue": str(StoreConfig().mapped_file_size_consume_queue),
            "messageIndexEnable": "false",
        }
        self.cluster = ProcessCluster(directory, 1, settings)
        self.store = self.cluster.store_path(0)
        self._thread = LoopThread("bench-broker")

    def __enter__(self) -> Broker:
        self._thread.run(self._start())
        return self

    def __exit__(self, *error: Any) -> None:
        self._thread.run(self.cluster.__aexit__(None, None, None))
        self._thread.stop()

    async def _start(self) -> None:
        await self.cluster.__aenter__()
        admin = RawClient(self.cluster.brokers[0].address)
        await admin.create_topic(TOPIC, QUEUES)
        await admin.close()

    @property
    def namesrv(self) -> str:
        return self.cluster.namesrv.address
