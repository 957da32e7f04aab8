"""The archive with a real Spark: written, verified, run again, crashed, and read as one table with the live log."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from aerobee.errors import InvalidArgumentError
from aerobee.hot.log.properties import encode_properties
from aerobee.hot.log.record import Draft, encode_blank, encode_records
from aerobee.runtime.disk import InlineDisk
from aerobee.store.segment import segment_name
from aerobee.sync import Producer

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

HOST = bytes([127, 0, 0, 1, 0, 0, 0x2A, 0x9F])
SEGMENT = 1 << 16
T0 = 1_700_000_000_000
TOPICS = ("orders", "%RETRY%g", "2024")


def drafts(count: int) -> Iterator[Draft]:
    for number in range(count):
        properties = encode_properties({"KEYS": f"k{number}", "TAGS": "A", "n": str(number)})
        topic = TOPICS[number % 3].encode()
        made = Draft(topic, number % 2, 0, 0, T0, HOST, HOST, 0, 0, b"%0100d" % number, properties, 0, "", "")
        made.queue_offset = number
        yield made


def write_log(root: Path, count: int) -> list[str]:
    """Segments of 64 KiB, a minute between two messages; their names."""
    directory = root / "commitlog"
    directory.mkdir(parents=True)
    start, data = 0, b""
    for number, one in enumerate(drafts(count)):
        record = encode_records([one], start + len(data), T0 + number * 60_000, True)
        if len(data) + len(record) + 8 > SEGMENT:
            (directory / segment_name(start)).write_bytes(
                data + encode_blank(SEGMENT - len(data)).ljust(SEGMENT - len(data), b"\0")
            )
            start, data = start + SEGMENT, b""
            record = encode_records([one], start, T0 + number * 60_000, True)
        data += record
    (directory / segment_name(start)).write_bytes(data.ljust(SEGMENT, b"\0"))
    return sorted(path.name for path in directory.iterdir())


def send_all(cluster: Any, count: int, first: int = 0) -> None:
    with Producer(cluster.namesrv, group="archive-test") as producer:
        sent = [producer.send_nowait("orders", b"%06d" % i + bytes(1000)) for i in range(first, first + count)]
        for one in sent:
            one.result(timeout=60)


def numbers(frame: DataFrame) -> list[int]:
    return sorted(int(row.body) for row in frame.select("body").collect())


def all_files(root: Path) -> dict[str, int]:
    return {str(path.relative_to(root)): path.stat().st_mtime_ns for path in root.rglob("*") if path.is_file()}


def test_archive_union_and_rerun(spark: SparkSession, tmp_path: Path) -> None:
    from pyspark_rocketmq.columns import schema as c
    from pyspark_rocketmq_store import archive

    store, target = tmp_path / "store", tmp_path / "archive"
    segments = write_log(store, 2000)
    first = archive.run(spark, str(store), str(target), "b|1", segments=[int(segments[1])])
    assert [one.start for one in first] == [int(segments[1])]
    whole = archive.read(spark, str(target), store={"b|1": str(store)})
    assert numbers(whole) == list(range(2000))  # the archived one lies in the middle
    done = archive.run(spark, str(store), str(target), "b|1")
    assert len(done) == len(segments) - 2  # without the last, which is open, and the one we had
    before = all_files(target)
    assert archive.run(spark, str(store), str(target), "b|1") == []
    assert all_files(target) == before
    assert not [name for name in before if name.endswith(".tmp")]
    # Retention deletes what is archived: the table stays the same.
    live = spark.read.format("rocketmq_store").schema(c.FULL_SCHEMA).option("broker", "b|1").load(str(store))
    expected = live.orderBy("commitlog_offset").collect()
    for name in segments[:-1]:
        (store / "commitlog" / name).unlink()
    whole = archive.read(spark, str(target), store={"b|1": str(store)})
    assert whole.orderBy("commitlog_offset").collect() == expected
    assert whole.columns == list(c.COLUMNS)
    only = archive.read(spark, str(target), store={"b|1": str(store)}, topic="2024")
    assert numbers(only) == list(range(2, 2000, 3))
    with pytest.raises(InvalidArgumentError, match=r"no message of topic 'ordrs'.* mean 'orders'"):
        archive.read(spark, str(target), topic="2024, ordrs")
    # Plain Spark reads the directory too.
    plain = spark.read.parquet(str(target)).where("topic = 'orders'")
    assert plain.select("date").distinct().count() >= 2
    assert {row.topic for row in spark.read.parquet(str(target)).select("topic").distinct().collect()} == set(TOPICS)


def test_a_crash_before_the_manifest_is_done_over(spark: SparkSession, tmp_path: Path) -> None:
    from pyspark_rocketmq_store import archive
    from pyspark_rocketmq_store.archiving import archive_segment
    from pyspark_rocketmq_store.settings import ScanSettings

    store, target = tmp_path / "store", tmp_path / "archive"
    write_log(store, 1500)
    first = archive.closed_segments(str(store), str(target), "b")[0]
    # The task did its work, the driver died: files without a manifest count for nothing.
    settings = ScanSettings(str(store), f"{store}/commitlog")
    archive_segment(InlineDisk(), settings, first.stretch, str(target), "b", "dead")
    leftover = next(target.rglob("*.parquet")).with_name(f".b-{first.start:020d}.parquet.9.tmp")
    leftover.write_bytes(b"half")
    assert archive.manifests(str(target)) == []
    assert not archive.closed_segments(str(store), str(target), "b")[0].is_archived
    assert numbers(archive.read(spark, str(target), store={"b": str(store)})) == list(range(1500))
    archive.run(spark, str(store), str(target), "b")
    assert numbers(archive.read(spark, str(target), store={"b": str(store)})) == list(range(1500))
    assert archive.remove_leavings(str(target), "b") == 1


def test_damage_and_gaps_are_told(spark: SparkSession, tmp_path: Path) -> None:
    from pyspark_rocketmq_store import archive

    store, target = tmp_path / "store", tmp_path / "archive"
    segments = write_log(store, 1500)
    archive.run(spark, str(store), str(target), "b", segments=[0])
    bad = store / "commitlog" / segments[1]
    good = bad.read_bytes()
    bad.write_bytes(good[:95] + bytes([good[95] ^ 1]) + good[96:])
    with pytest.raises(Exception, match=f"{bad.name}: byte 0: checksum does not match"):
        archive.run(spark, str(store), str(target), "b", segments=[SEGMENT])
    assert [one.start for one in archive.manifests(str(target))] == [0]
    bad.unlink()
    with pytest.raises(Exception, match=f"neither the archive nor .* holds the log from {SEGMENT} to {2 * SEGMENT}"):
        archive.read(spark, str(target), store={"b": str(store)}).count()
    lost = archive.read(spark, str(target), store={"b": str(store)}, options={"failOnDataLoss": "false"})
    assert 0 < lost.count() < 1500
    with pytest.raises(Exception, match="no closed segment begins at 77"):
        archive.run(spark, str(store), str(target), "b", segments=[77])


def test_archive_and_a_live_cluster(spark: SparkSession, tmp_path: Path, wait_synced: Callable[[Path], None]) -> None:
    from aerobee.admin.topics import delete_topic
    from aerobee.testing.cluster import LocalCluster
    from pyspark_rocketmq.jobs.cluster import converse
    from pyspark_rocketmq.jobs.sql import Places, TopicSql
    from pyspark_rocketmq_store import archive

    with LocalCluster(
        1, data=tmp_path / "c", settings={"mappedFileSizeCommitLog": str(1 << 20), "maxMessageSize": "100000"}
    ) as cluster:
        cluster.create_topic("orders", 2)
        send_all(cluster, 3000)
        name = cluster.broker_name(0)
        store, target = tmp_path / "c" / name, tmp_path / "archive"
        wait_synced(store)
        assert len(archive.run(spark, str(store), str(target), name)) == 3
        send_all(cluster, 100, 3000)
        wait_synced(store)
        for given in ({"store": {name: str(store)}}, {"name_server": cluster.namesrv}):
            found = archive.read(spark, str(target), topic="orders", **given)  # type: ignore[arg-type]
            assert sorted(int(row.body[:6]) for row in found.collect()) == list(range(3100)), given
        # The topic is deleted and created again: what is archived stays, and the new messages come after it.
        archived = archive.read(spark, str(target), topic="orders").count()
        converse(cluster.namesrv, lambda admin: delete_topic(admin, "orders"))
        cluster.create_topic("orders", 2)
        send_all(cluster, 400, 5000)
        wait_synced(store)
        for given in ({"store": {name: str(store)}}, {"name_server": cluster.namesrv}):
            found = archive.read(spark, str(target), topic="orders", **given)  # type: ignore[arg-type]
            seen = sorted(int(row.body[:6]) for row in found.collect())
            assert seen == [*range(archived), *range(5000, 5400)], given
        sql = TopicSql(spark, Places(cluster.namesrv, archive=str(target)))
        assert sql.query("select count(*) from orders").collect()[0][0] == archived + 400


def test_the_commands(spark: SparkSession, tmp_path: Path, capsys: Any) -> None:
    from aerobee.cli.main import main
    from pyspark_rocketmq_store import archive

    store, target = tmp_path / "store", tmp_path / "archive"
    write_log(store, 1000)

    def command(*words: str) -> Any:
        with pytest.raises(SystemExit) as left:
            main([*words])
        assert not left.value.code
        return json.loads(capsys.readouterr().out)

    todo = command("archive", "run", str(store), str(target), "-b", "b", "--json", "--dry-run")["todo"]
    assert todo and todo[0] == 0
    archive.run(spark, str(store), str(target), "b")
    assert command("archive", "run", str(store), str(target), "-b", "b", "--json")["archived"] == []
    held = command("archive", "status", str(target), "--json")["segments"]
    assert [one["segment"] for one in held] == todo
