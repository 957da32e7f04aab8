"""The archive without Spark: what it holds of a topic, where the live messages begin, and mistakes that are errors."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from aerobee.admin.topics import delete_topic
from aerobee.cli.main import main
from aerobee.errors import InvalidArgumentError, StoreError
from aerobee.model.queue import MessageQueue
from aerobee.runtime.blocking import pause
from aerobee.runtime.disk import InlineDisk
from aerobee.store.checkpoint import decode_checkpoint
from aerobee.store.readonly import topic_generations
from aerobee.sync import Producer
from aerobee.testing.cluster import LocalCluster
from pyspark_rocketmq.jobs.cluster import converse
from pyspark_rocketmq.source.missing import MissingBrokerError
from pyspark_rocketmq_store import archive
from pyspark_rocketmq_store.archiving import archive_segment
from pyspark_rocketmq_store.manifest import Archived, write_manifest
from pyspark_rocketmq_store.planning import first_store_ms, segments_of
from pyspark_rocketmq_store.settings import ScanSettings

SMALL = {"mappedFileSizeCommitLog": str(1 << 17), "maxMessageSize": "50000"}


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    with LocalCluster(1, data=tmp_path / "c", settings=SMALL) as running:
        running.create_topic("orders", 1)
        yield running


def send(cluster: LocalCluster, count: int, topic: str = "orders") -> None:
    with Producer(cluster.namesrv, group="filler") as producer:
        for future in [producer.send_nowait(topic, b"%d" % number + bytes(1000)) for number in range(count)]:
            future.result(timeout=60)


def closed_count(disk: InlineDisk, store: Path) -> int:
    """Return how many segments a later one has followed, whether they are synced or not."""
    begun = [one for one in segments_of(disk, f"{store}/commitlog") if first_store_ms(disk, one) is not None]
    return len(begun) - 1


def archive_all(store: Path, target: Path) -> list[Archived]:
    """Archive every closed segment, as the tasks of Spark do. It waits until all of them are synced and confirmed."""
    disk = InlineDisk()
    for _ in range(600):
        found = archive.closed_segments(str(store), str(target), "broker-a")
        if len(found) == closed_count(disk, store) >= 2:
            break
        pause(0.05)
    for one in found:
        settings = ScanSettings(str(store), f"{store}/commitlog")
        made = archive_segment(
            disk, settings, one.stretch, str(target), "broker-a", "0", topic_generations(disk, str(store))
        )
        write_manifest(disk, str(target), made)
    return archive.manifests(str(target))


def test_live_messages_begin_after_the_archived_ones_of_the_same_topic(cluster: LocalCluster, tmp_path: Path) -> None:
    store, target = tmp_path / "c" / "broker-a", tmp_path / "archive"
    send(cluster, 300)
    done = archive_all(store, target)
    held = max(segment.queues["orders"]["0"][1] for segment in done)
    options = {"nameServer": cluster.namesrv, "topic": "orders", "retryTimeoutMs": "300"}
    queue = MessageQueue("orders", "broker-a", 0)
    assert 100 < held < 300 and archive.live_starts(done, options) == {queue: held + 1}
    # The topic is deleted and created again, and outgrows what is archived of the old one.
    converse(cluster.namesrv, lambda admin: delete_topic(admin, "orders"))
    cluster.create_topic("orders", 1)
    assert archive.live_starts(done, options) == {}
    send(cluster, 400)
    assert archive.live_starts(done, options) == {}
    # Manifests of an older version do not tell which topic they hold. Where that shows, it is an error.
    old = [Archived(**{name: getattr(one, name) for name in ("broker", "start", "end", "records", "rows",
           "first_store_ms", "last_store_ms")}, queues={"orders": {"0": (0, 999)}}) for one in done[:1]]  # fmt: skip
    with pytest.raises(StoreError, match="orders on broker-a ends at 400, and the archive holds its message 999"):
        archive.live_starts(old, options)
    cluster.kill(0)
    with pytest.raises(MissingBrokerError):
        archive.live_starts(done, options)


def test_what_sinks_hold_back_is_not_archived(cluster: LocalCluster, tmp_path: Path) -> None:
    store, target = tmp_path / "c" / "broker-a", tmp_path / "archive"
    disk = InlineDisk()
    node = cluster._nodes[0]

    async def journal() -> None:
        from aerobee.testing.storekit import draft

        for _ in range(3):
            node.state.store.append([draft(b"held" + bytes(1000), b"rmq_sys_AEROBEE_BATCH")])

    cluster._run(journal())
    send(cluster, 300)
    done = archive_all(store, target)
    assert {one.topic for segment in done for one in segment.files} == {"orders"}
    assert sum(segment.records - segment.rows for segment in done) == 3
    rows = sum(pq.ParquetFile(f"{target}/{one.path}").metadata.num_rows for segment in done for one in segment.files)
    assert rows == sum(segment.rows for segment in done) and disk.is_dir(f"{target}/_manifest")


def test_names_that_do_not_exist_are_errors(cluster: LocalCluster, tmp_path: Path, capsys: Any) -> None:
    store, target = tmp_path / "c" / "broker-a", tmp_path / "archive"
    send(cluster, 300)
    archive_all(store, target)
    with pytest.raises(InvalidArgumentError, match=r"there is no directory .*archiv\b") as raised:
        archive.manifests(f"{tmp_path}/archiv")
    assert raised.value.hint == f"Did you mean {target}?"
    with pytest.raises(InvalidArgumentError, match=r"is no archive: it has no directory _manifest"):
        archive.manifests(str(tmp_path))
    with pytest.raises(InvalidArgumentError, match="holds no segment of a broker 'broker-b'") as raised:
        archive.manifests(str(target), ["broker-b"])
    assert raised.value.hint == "Did you mean broker-a?"
    with pytest.raises(InvalidArgumentError, match="does not belong to a broker named 'broker-z'") as raised:
        archive.closed_segments(str(store), str(target), "broker-z")
    assert raised.value.hint == "Did you mean broker-a?"

    def command(*words: str) -> tuple[int, str]:
        with pytest.raises(SystemExit) as left:
            main([*words])
        assert isinstance(left.value.code, int)
        return left.value.code, capsys.readouterr().err

    code, said = command("archive", "status", f"{tmp_path}/nosuchdir", "--json")
    assert code == 2 and "there is no directory" in json.loads(said)["error"]
    code, said = command("archive", "run", str(store), str(target), "-b", "wrong-broker", "--dry-run")
    assert code == 1 and "does not belong to a broker named 'wrong-broker'" in said
    code, said = command("sql", "--archive", f"{tmp_path}/nope", "-n", cluster.namesrv, "select 1")
    assert code == 2 and "there is no directory" in said


def test_a_segment_of_a_replica_is_archived_when_the_group_has_confirmed_it(tmp_path: Path) -> None:
    store, target = tmp_path / "c" / "broker-a", str(tmp_path / "archive")
    with LocalCluster(1, data=tmp_path / "c", settings=SMALL) as running:
        running.create_topic("orders", 1)
        send(running, 400)
    closed = [one.start for one in archive.closed_segments(str(store), target, "broker-a")]
    assert len(closed) >= 3
    (store / "config" / "replica").write_bytes(b"{}")
    checkpoint = store / "checkpoint"
    whole = decode_checkpoint(checkpoint.read_bytes())[0]
    for confirmed, expected in ((closed[2], closed[:2]), (closed[2] - 1, closed[:1]), (0, [])):
        changed = replace(whole, confirm_phy_offset=confirmed).encode()
        checkpoint.write_bytes(changed + checkpoint.read_bytes()[len(changed) :])
        found = archive.closed_segments(str(store), target, "broker-a")
        assert [one.start for one in found] == expected


def test_any_replica_may_be_archived_and_the_others_know_it(tmp_path: Path) -> None:
    with LocalCluster(1, replicas=3, data=tmp_path / "c", settings=SMALL) as running:
        running.create_topic("orders", 1)
        send(running, 400)
        stores = sorted(path.parent for path in (tmp_path / "c").glob("*/commitlog"))
        assert len(stores) == 3
        taken = archive_all(stores[-1], tmp_path / "archive")
        assert sum(segment.queues["orders"]["0"][1] - segment.queues["orders"]["0"][0] + 1 for segment in taken) > 100
        for store in stores[:2]:
            found = archive.closed_segments(str(store), str(tmp_path / "archive"), "broker-a")
            assert [one.start for one in found if one.is_archived] == [one.start for one in taken][: len(found)]
