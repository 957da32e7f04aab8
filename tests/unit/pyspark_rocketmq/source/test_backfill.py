"""A stream that begins in the archive goes over into the live topic: every message once, whatever retention deletes."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadMaxBytes, ReadMaxRows

from aerobee.admin.topics import delete_topic
from aerobee.errors import InvalidArgumentError, StoreError
from aerobee.model.queue import MessageQueue
from aerobee.runtime.blocking import pause
from aerobee.runtime.disk import InlineDisk
from aerobee.store.readonly import topic_generations
from aerobee.sync import Producer
from aerobee.testing.cluster import LocalCluster
from pyspark_rocketmq.columns.schema import spark_schema
from pyspark_rocketmq.jobs.cluster import converse
from pyspark_rocketmq.options import OptionError
from pyspark_rocketmq.source import backfill
from pyspark_rocketmq.source.batch import batch_reader
from pyspark_rocketmq.source.pulling import DataLossError
from pyspark_rocketmq.source.stream import StreamReader, stream_reader
from pyspark_rocketmq_store import archive
from pyspark_rocketmq_store.archiving import archive_segment
from pyspark_rocketmq_store.manifest import write_manifest
from pyspark_rocketmq_store.planning import first_store_ms, segments_of
from pyspark_rocketmq_store.settings import ScanSettings

EVERY_HOUR = ";".join(f"{hour:02d}" for hour in range(24))
SMALL = {"mappedFileSizeCommitLog": str(1 << 17), "maxMessageSize": "50000", "deleteWhen": EVERY_HOUR}
SCHEMA = spark_schema(["topic", "broker", "queue_id", "queue_offset", "tags", "body", "properties", "store_timestamp"])


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    with LocalCluster(1, data=tmp_path / "c", settings=SMALL) as running:
        running.create_topic("orders", 2)
        yield running


def send(cluster: LocalCluster, first: int, count: int) -> None:
    with Producer(cluster.namesrv, group="filler") as producer:
        sent = [
            producer.send_nowait(
                "orders", b"%06d" % number + bytes(1000), tags="even" if number % 2 == 0 else "odd",
                properties={"n": str(number)}, queue=MessageQueue("orders", "broker-a", number % 2),
            )
            for number in range(first, first + count)
        ]  # fmt: skip
        for future in sent:
            future.result(timeout=60)


def archive_all(tmp_path: Path, *, skip: int = 0) -> Path:
    """Archive the closed segments, as the tasks of Spark do, without the first `skip` that are not archived."""
    disk, store, target = InlineDisk(), str(tmp_path / "c" / "broker-a"), tmp_path / "archive"
    for _ in range(600):
        closed = archive.closed_segments(store, str(target), "broker-a")
        filled = [one for one in segments_of(disk, f"{store}/commitlog") if first_store_ms(disk, one) is not None]
        if len(closed) == len(filled) - 1:  # all are synced
            break
        pause(0.05)
    for one in [one for one in closed if not one.is_archived][skip:]:
        settings = ScanSettings(store, f"{store}/commitlog")
        made = archive_segment(
            disk, settings, one.stretch, str(target), "broker-a", "0", topic_generations(disk, store)
        )
        write_manifest(disk, str(target), made)
    return target


def options(cluster: LocalCluster, **more: str) -> dict[str, str]:
    return {"nameServer": cluster.namesrv, "topic": "orders", **more}


def stream(cluster: LocalCluster, **more: str) -> StreamReader:
    return stream_reader(options(cluster, longPollMs="0", startingOffsets="earliest", **more), SCHEMA)


def text(value: dict[str, Any]) -> dict[str, Any]:
    back: dict[str, Any] = json.loads(json.dumps(value))
    return back


def rows(reader: StreamReader, start: dict[str, Any], end: dict[str, Any]) -> list[dict[str, Any]]:
    partitions = reader.partitions(text(start), text(end))
    return [row for one in partitions for batch in reader.read(one) for row in batch.to_pylist()]


def number(row: dict[str, Any]) -> int:
    assert row["properties"] == [("n", str(int(row["body"][:6])))] and row["topic"] == "orders"
    return int(row["body"][:6])


def test_every_message_once_from_archive_and_topic(cluster: LocalCluster, tmp_path: Path) -> None:
    send(cluster, 0, 600)
    target = archive_all(tmp_path)
    cluster.advance(hours=200)  # retention deletes what expired, and more than was read
    send(cluster, 600, 100)
    live = batch_reader(options(cluster), SCHEMA)
    kept = sum(batch.num_rows for one in live.partitions() for batch in live.read(one))
    assert kept < 400
    reader = stream(cluster, archive=str(target))
    position = reader.initialOffset()
    assert position["offsets"]["orders"]["broker-a"] == {"0": 0, "1": 0}
    seen: list[int] = []
    for limit in (ReadMaxRows(90), ReadMaxBytes(150_000), *[ReadMaxRows(130)] * 20):
        following = reader.latestOffset(text(position), limit)
        if following == position:
            break
        found = rows(reader, position, following)
        # A batch that is run again by another driver, after more was archived, has the same rows.
        assert Counter(map(str, rows(stream(cluster, archive=str(target)), position, following))) == Counter(
            map(str, found)
        )
        seen += map(number, found)
        position = following
        if len(seen) < 300:
            archive_all_quickly(tmp_path)
    assert Counter(seen) == Counter(range(700))
    send(cluster, 700, 50)
    last = reader.latestOffset(text(position), ReadMaxRows(1000))
    assert sorted(map(number, rows(reader, position, last))) == list(range(700, 750))
    # The same as a batch, with tags and few columns.
    few = batch_reader(options(cluster, archive=str(target), tags="odd"), spark_schema(["topic", "queue_offset"]))
    assert sum(batch.num_rows for one in few.partitions() for batch in few.read(one)) == 375
    # Without the archive, the messages are lost, and the error says what helps.
    with pytest.raises(DataLossError, match="option archive if an archive holds them"):
        stream(cluster).latestOffset(text(stream(cluster, archive=str(target)).initialOffset()), ReadMaxRows(10))


def archive_all_quickly(tmp_path: Path) -> None:
    store, target = str(tmp_path / "c" / "broker-a"), str(tmp_path / "archive")
    if any(not one.is_archived for one in archive.closed_segments(store, target, "broker-a")):
        archive_all(tmp_path)


def test_a_hole_between_archive_and_topic_is_an_error(cluster: LocalCluster, tmp_path: Path) -> None:
    send(cluster, 0, 400)
    target = archive_all(tmp_path)
    send(cluster, 400, 400)
    cluster.advance(hours=200)
    send(cluster, 800, 10)
    with pytest.raises(StoreError, match=r"neither the archive nor the broker has messages \d+ to \d+ of queue 0"):
        stream(cluster, archive=str(target)).initialOffset()


def test_what_is_archived_and_deleted_between_two_looks_is_found(
    cluster: LocalCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker deletes a segment as soon as it is archived. An index that is not new does not know it then."""
    monkeypatch.setattr(backfill, "_LOOK_AGAIN_S", 3600.0)
    send(cluster, 0, 300)
    target = archive_all(tmp_path)
    reader = stream(cluster, archive=str(target))
    start = reader.initialOffset()
    send(cluster, 300, 300)
    archive_all(tmp_path)
    cluster.advance(hours=200)
    send(cluster, 600, 10)
    end = reader.latestOffset(text(start), ReadMaxRows(1000))
    assert sorted(map(number, rows(reader, start, end))) == list(range(610))


def test_live_messages_that_an_archive_passed_over_are_not_left_out(cluster: LocalCluster, tmp_path: Path) -> None:
    send(cluster, 0, 600)
    target = archive_all(tmp_path, skip=1)
    words = r"the archive does not hold messages 0 to \d+ of queue \d of topic orders on broker-a, and holds later ones"
    with pytest.raises(StoreError, match=words):
        archive.live_starts(archive.manifests(str(target)), options(cluster))
    archive_all(tmp_path)
    done = archive.manifests(str(target))
    assert len(archive.live_starts(done, options(cluster))) == 2
    with pytest.raises(StoreError, match=words.replace("messages 0", r"messages [1-9]\d*")):
        archive.live_starts([*done[:1], *done[2:]], options(cluster))
    with pytest.raises(InvalidArgumentError, match="option Tags would leave out live messages, and no archived ones"):
        archive.read(None, str(target), name_server="h:1", topic="orders", options={"Tags": "odd"})  # type: ignore[arg-type]


def test_a_topic_that_was_created_again_does_not_begin_in_the_old_one(cluster: LocalCluster, tmp_path: Path) -> None:
    send(cluster, 0, 400)
    target = archive_all(tmp_path)
    converse(cluster.namesrv, lambda admin: delete_topic(admin, "orders"))
    cluster.create_topic("orders", 2)
    send(cluster, 0, 20)
    reader = stream(cluster, archive=str(target))
    end = reader.latestOffset(text(reader.initialOffset()), ReadMaxRows(1000))
    assert sorted(map(number, rows(reader, reader.initialOffset(), end))) == list(range(20))


def test_what_does_not_fit_is_refused(cluster: LocalCluster, tmp_path: Path) -> None:
    with pytest.raises(InvalidArgumentError, match="there is no directory"):
        stream(cluster, archive=f"{tmp_path}/nothing").initialOffset()
    with pytest.raises(OptionError, match="options archive and sql92: give one of them"):
        stream(cluster, archive="/a", sql92="a = 1")
