"""The levels over real sockets, without Spark: a broker that is none of ours, one that is killed, two in one batch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import StringType, StructField, StructType

from aerobee.errors import InvalidArgumentError
from aerobee.protocol.codes import PrivateRequestCode
from aerobee.testing.cluster import LocalCluster
from pyspark_rocketmq.sink.client import NoTopicError
from pyspark_rocketmq.sink.decision import BatchConflictError, ReplacedError
from pyspark_rocketmq.sink.groups import NeedsAerobeeError
from pyspark_rocketmq.sink.levels import BatchName, Level, level_of


def texts(*bodies: str) -> list[pa.RecordBatch]:
    return [pa.record_batch([pa.array(list(bodies)), pa.array([body[:20] for body in bodies])], names=["body", "keys"])]


def level(running: LocalCluster, guarantee: str, **given: str) -> Level:
    named = {"nameServer": running.namesrv, "topic": "T", "deliveryGuarantee": guarantee, "idempotencyKey": "keys"}
    given = {"createTopics": "true", **given}
    return level_of({**named, **given}, StructType([StructField(name, StringType()) for name in ("body", "keys")]))


def bodies(cluster: LocalCluster) -> list[str]:
    return sorted(message.body.decode() for message in cluster.messages("T"))


@pytest.mark.parametrize("guarantee", ["idempotent", "exactly-once"])
def test_a_broker_that_is_not_ours_is_refused(tmp_path: Path, guarantee: str) -> None:
    with LocalCluster(data=tmp_path) as cluster:
        nodes: dict[int, Any] = cluster._nodes
        # As Apache's: what it does not know it answers with REQUEST_CODE_NOT_SUPPORTED.
        for code in (PrivateRequestCode.BATCH_STATUS, PrivateRequestCode.BATCH_ROWS, PrivateRequestCode.BATCH_END):
            del nodes[0].server._handlers[code]
        with pytest.raises(NeedsAerobeeError, match=f"deliveryGuarantee={guarantee} needs Aerobee's broker"):
            level(cluster, guarantee)
        plain = level(cluster, "at-least-once")
        assert plain.write(plain.job(), texts("1", "2")).rows == 2
        assert bodies(cluster) == ["1", "2"]


def test_brokers_killed_between_every_two_steps(tmp_path: Path) -> None:
    rows = [f"{number}" for number in range(100)]
    with LocalCluster(2, data=tmp_path) as cluster:
        cluster.create_topic("T", 2)
        sink = level(cluster, "exactly-once")
        for batch in range(2):
            written = [sink.write(BatchName("Q", batch, "run"), texts(*rows[half::2])) for half in range(2)]
            for broker in range(2):
                cluster.kill(broker)
                cluster.restart(broker)
            assert len(cluster.messages("T")) == batch * 100
            sink.commit(list(written), batch)
            assert len(cluster.messages("T")) == (batch + 1) * 100
            for broker in range(2):
                cluster.kill(broker)
                cluster.restart(broker)
            again = sink.write(BatchName("Q", batch, "run"), texts(*rows))  # the driver died before Spark knew
            assert again.rows == 0
            sink.commit([again], batch)
        assert bodies(cluster) == sorted(rows * 2)


def test_keys_over_kills_and_other_partitions(tmp_path: Path) -> None:
    rows = [f"{number}" for number in range(60)]
    with LocalCluster(2, data=tmp_path) as cluster:
        cluster.create_topic("T", 2)
        sink = level(cluster, "idempotent")
        sink.write(BatchName("Q", 0, "run"), texts(*rows[:40]))
        for broker in range(2):
            cluster.kill(broker)
            cluster.restart(broker)
        sink.write(BatchName("Q", 0, "run"), texts(*rows[20:]))
        sink.write(BatchName("Q", 0, "run"), texts(*reversed(rows)))
        assert bodies(cluster) == sorted(rows)
        assert len({message.broker for message in cluster.messages("T")}) == 2


def test_an_aborted_batch_leaves_nothing(tmp_path: Path) -> None:
    with LocalCluster(data=tmp_path) as cluster:
        sink = level(cluster, "exactly-once")
        written = sink.write(BatchName("Q", 0, "run"), texts("1"))
        sink.abort([written, None], 0)
        with pytest.raises(Exception, match="not here any more"):
            sink.commit([written], 0)
        written = sink.write(BatchName("Q", 0, "run"), texts("1"))
        sink.commit([written], 0)
        sink.abort([written], 0)
        assert bodies(cluster) == ["1"]


def test_large_rows_and_many_queues(tmp_path: Path) -> None:
    """Rows larger than a request, next to small ones, at each level."""
    large = ["x" * (3 << 20), "y" * 600_000, *(f"{number}" for number in range(50))]
    with LocalCluster(data=tmp_path) as cluster:
        for guarantee in ("at-least-once", "idempotent", "exactly-once"):
            sink = level(cluster, guarantee, topic=guarantee)
            sink.commit([sink.write(BatchName(guarantee, 0, "run"), texts(*large))], 0)
            assert sorted(message.body.decode() for message in cluster.messages(guarantee)) == sorted(large)


def test_a_cluster_that_is_not_there(tmp_path: Path) -> None:
    with LocalCluster(data=tmp_path) as cluster:
        with pytest.raises(
            InvalidArgumentError, match=r"knows no broker of cluster 'elsewhere'. it knows LocalCluster"
        ):
            level(cluster, "exactly-once", cluster="elsewhere")
        level(cluster, "exactly-once", cluster="LocalCluster")


@pytest.mark.parametrize("guarantee", ["exactly-once", "idempotent"])
def test_a_driver_that_was_replaced_is_told(tmp_path: Path, guarantee: str) -> None:
    with LocalCluster(2, data=tmp_path) as cluster:
        cluster.create_topic("T", 2)
        sink = level(cluster, guarantee)
        old = sink.write(BatchName("Q", 0, "old"), texts("1", "2", "3"))
        new = sink.write(BatchName("Q", 0, "new"), texts("3", "2", "1"))
        assert (old.epoch, new.epoch) == (1, 2)
        with pytest.raises(ReplacedError, match=r"run old .*was replaced by run new"):
            sink.write(BatchName("Q", 0, "old"), texts("1"))
        if guarantee == "exactly-once":
            with pytest.raises(ReplacedError, match=r"run old \(epoch 1\) was replaced by run new \(epoch 2\)"):
                sink.commit([old], 0)
            sink.abort([old], 0)
        sink.commit([new], 0)
        assert bodies(cluster) == ["1", "2", "3"]


def test_a_topic_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    with LocalCluster(data=tmp_path) as cluster:
        cluster.create_topic("orders", 1)
        for guarantee in ("at-least-once", "idempotent", "exactly-once"):
            with pytest.raises(NoTopicError, match=r"topic 'ordres' does not exist. Did you mean 'orders'") as raised:
                level(cluster, guarantee, topic="ordres", createTopics="false")
            assert "createTopics=true" in (raised.value.hint or "")
            sink = level(cluster, guarantee, topic="orders", createTopics="false")
            assert sink.write(BatchName(guarantee, 0, "run"), texts("1")).rows == 1


def test_other_rows_under_the_name_of_a_job_are_not_dropped_in_silence(tmp_path: Path) -> None:
    with LocalCluster(data=tmp_path) as cluster:
        cluster.create_topic("T", 1)

        def run(*rows: str) -> None:
            sink = level(cluster, "exactly-once", jobId="nightly")
            sink.commit([sink.write(sink.job(), texts(*rows))], 0)

        run("1", "2")
        run("1", "2")  # the job is run again after it was committed
        with pytest.raises(
            BatchConflictError, match="nightly was committed before with 2 rows: the 3 rows of this run"
        ):
            run("1", "2", "3")
        assert bodies(cluster) == ["1", "2"]
