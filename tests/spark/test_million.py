"""A million messages in two queues: a batch cut finer than the queues reads each of them once.

They are laid into the store before the broker starts, by a process of their own that may use the compiled hot path:
sending them would take most of the test.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from aerobee.hot.log.record import Draft
from aerobee.runtime.clock import SystemClock
from aerobee.runtime.disk import InlineDisk
from aerobee.store.config import StoreConfig
from aerobee.store.messagestore import MessageStore
from aerobee.testing.cluster import LocalCluster

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COUNT = 1_000_000
QUEUES = 2
CHUNK = 1000
TASKS = 9
HOST = b"\x7f\x00\x00\x01\x00\x00\x2a\x9f"
SEGMENT_BYTES = 64 << 20


def fill(root: Path) -> None:
    """Bodies are the numbers from 0 on, a thousand to one queue, a thousand to the other."""
    config = StoreConfig(store_path_root_dir=str(root), mapped_file_size_commit_log=SEGMENT_BYTES)
    store = MessageStore(str(root), config, InlineDisk(), SystemClock(), [])
    store.open()
    for first in range(0, COUNT, CHUNK):
        queue = first // CHUNK % QUEUES
        store.append(
            [
                Draft(b"million", queue, 0, 0, 1, HOST, HOST, 0, 0, b"%d" % number, b"", 0, "", "")
                for number in range(first, first + CHUNK)
            ]
        )
    store.close()


def test_a_million_messages_of_two_queues_are_each_read_once(spark: SparkSession, tmp_path: Path) -> None:
    environ = {name: value for name, value in os.environ.items() if name != "AEROBEE_PURE"}
    subprocess.run([sys.executable, __file__, str(tmp_path / "broker-a")], env=environ, check=True, timeout=240)
    settings = {"mappedFileSizeCommitLog": str(SEGMENT_BYTES), "messageIndexEnable": "false"}
    with LocalCluster(1, data=tmp_path, settings=settings) as cluster:
        cluster.create_topic("million", QUEUES)
        reading = spark.read.format("rocketmq").schema("queue_id int, queue_offset bigint, body binary")
        options = {"nameServer": cluster.namesrv, "topic": "million", "minPartitions": str(TASKS)}
        rows = reading.options(**options).load()
        assert rows.rdd.getNumPartitions() >= TASKS
        number = "cast(cast(body as string) as bigint)"
        place = f"({number} div {CHUNK * QUEUES}) * {CHUNK} + {number} % {CHUNK}"
        found = rows.selectExpr(
            "count(*) n", f"sum({number}) total", f"sum({number} * {number} % 1000003) squares",
            "count(distinct queue_id, queue_offset) places",
            f"count_if(queue_offset = {place} and queue_id = {number} div {CHUNK} % {QUEUES}) right",
        ).first()  # fmt: skip
    assert found is not None
    squares = sum(n * n % 1_000_003 for n in range(COUNT))
    expected = {"n": COUNT, "total": COUNT * (COUNT - 1) // 2, "squares": squares, "places": COUNT, "right": COUNT}
    assert found.asDict() == expected


if __name__ == "__main__":
    fill(Path(sys.argv[1]))
