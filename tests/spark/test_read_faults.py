"""Reads while brokers and the name server come and go: each result is complete, or the read is an error.

A round is made from its number, so that one that failed can be run again: `make spark-faults ROUNDS=7..7`. A long run
that was interrupted goes on (aerobee.testing.longruns). The sample for every run uses the reader as Spark's planner and
tasks do, without Spark. The long run uses Spark itself.
"""

from __future__ import annotations

import os
import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from aerobee.errors import AerobeeError
from aerobee.model.queue import MessageQueue
from aerobee.sync import Producer
from aerobee.testing.cluster import LocalCluster
from aerobee.testing.longruns import LongRun, rounds_of, table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BROKERS = 3
QUEUES = 2
TOPIC = "orders"
PATIENCE_MS = "400"


class Faults:
    """A cluster whose servers are stopped and started by a thread, from the seed of a round."""

    def __init__(self, cluster: LocalCluster) -> None:
        self.cluster = cluster
        self.sent = 0
        self.done: Counter[str] = Counter()
        self._away: set[int] = set()

    def heal(self) -> None:
        for broker in sorted(self._away):
            self.cluster.restart(broker)
        self._away.clear()
        for _ in range(2):  # each broker learns what the others declare
            self.register()

    def register(self) -> None:
        for node in list(self.cluster._nodes.values()):
            self.cluster._run(node.registrar.register_now())

    def send(self, count: int) -> None:
        with Producer(self.cluster.namesrv, group="filler") as producer:
            for number in range(count):
                broker, queue = number % BROKERS, number // BROKERS % QUEUES
                producer.send(TOPIC, b"x", queue=MessageQueue(TOPIC, self.cluster.broker_name(broker), queue))
        self.sent += count

    @contextmanager
    def raging(self, rng: random.Random, pause_s: tuple[float, float]) -> Iterator[None]:
        """Stop and start servers while the body runs, then bring all of them back."""
        over = threading.Event()

        def rage() -> None:
            while not over.wait(rng.uniform(*pause_s)):
                broker = rng.randrange(BROKERS)
                if rng.random() < 0.15:
                    self.cluster.restart_namesrv(0)
                    self.register()
                    self.done["name server restarted"] += 1
                elif broker in self._away:
                    self.cluster.restart(broker)
                    self._away.discard(broker)
                    self.done["broker restarted"] += 1
                elif len(self._away) < BROKERS - 1:
                    self.cluster.kill(broker)
                    self._away.add(broker)
                    self.done["broker killed"] += 1

        thread = threading.Thread(target=rage, name="faults")
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()
            self.heal()

    def judge(self, name: str, read: Callable[[], int], errors: tuple[type[Exception], ...]) -> None:
        """Read once. The result is everything that was sent, or an error."""
        try:
            found = read()
        except errors as error:
            self.done[f"{name}: error"] += 1
            assert "broker" in str(error) or "name server" in str(error) or TOPIC in str(error), error
        else:
            assert found == self.sent, f"{name}: {found} of {self.sent} rows, without an error"
            self.done[f"{name}: complete"] += 1


@contextmanager
def faults(tmp_path: Path) -> Iterator[Faults]:
    with LocalCluster(BROKERS, data=tmp_path) as cluster:
        cluster.create_topic(TOPIC, QUEUES)
        made = Faults(cluster)
        made.heal()
        yield made


def numbers(default: str) -> range:
    first, _, last = os.environ.get("ROUNDS", default).partition("..")
    return range(int(first), int(last or first) + 1)


# -- without Spark


def batch_rows(namesrv: str) -> int:
    from pyspark_rocketmq.columns.schema import spark_schema
    from pyspark_rocketmq.source.batch import batch_reader

    given = {"nameServer": namesrv, "topic": TOPIC, "retryTimeoutMs": PATIENCE_MS, "requestTimeoutMs": "1000"}
    reader = batch_reader(given, spark_schema(["queue_offset"]))
    return sum(batch.num_rows for one in reader.partitions() for batch in reader.read(one))


def available_now_rows(namesrv: str) -> int:
    import json

    from pyspark.sql.streaming.datasource import ReadMaxRows

    from pyspark_rocketmq.columns.schema import spark_schema
    from pyspark_rocketmq.source.stream import stream_reader

    given = {"nameServer": namesrv, "topic": TOPIC, "retryTimeoutMs": PATIENCE_MS, "requestTimeoutMs": "1000"}
    reader = stream_reader({**given, "startingOffsets": "earliest"}, spark_schema(["body"]))
    reader.prepareForTriggerAvailableNow()
    start, count = json.loads(json.dumps(reader.initialOffset())), 0
    while True:
        end = json.loads(json.dumps(reader.latestOffset(start, ReadMaxRows(50))))
        if end == start:
            return count
        count += sum(batch.num_rows for one in reader.partitions(start, end) for batch in reader.read(one))
        start = end


def test_a_sample_of_rounds(tmp_path: Path) -> None:
    with faults(tmp_path) as made:
        for number in numbers("1..3"):
            made.send(60)
            with made.raging(random.Random(number), (0.02, 0.2)):
                for _ in range(4):
                    made.judge("batch", lambda: batch_rows(made.cluster.namesrv), (AerobeeError,))
                    made.judge("available now", lambda: available_now_rows(made.cluster.namesrv), (AerobeeError,))
            assert batch_rows(made.cluster.namesrv) == available_now_rows(made.cluster.namesrv) == made.sent
        print(dict(made.done))
        assert made.done["broker killed"], made.done


# -- with Spark


def report(kept: LongRun) -> str:
    """A row for each kind of read, and one for the faults."""
    total: Counter[str] = Counter()
    for found in kept.done.values():
        total.update({name: count for name, count in found.items() if name != "seconds"})
    minutes = sum(found["seconds"] for found in kept.done.values()) / 60
    kinds = sorted({name.rpartition(": ")[0] for name in total if ": " in name})
    lines: list[tuple[Any, ...]] = [
        (
            kind,
            total[f"{kind}: complete"] + total[f"{kind}: error"],
            total[f"{kind}: complete"],
            0,
            total[f"{kind}: error"],
        )
        for kind in kinds
    ]
    faults = ", ".join(f"{name} {count}" for name, count in sorted(total.items()) if ": " not in name)
    told = f"{len(kept.done)} rounds in {minutes:.0f} minutes: {faults}\n\n"
    return told + table(("read", "reads", "complete", "partial", "errors"), lines)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_rounds_with_spark(spark: SparkSession, tmp_path: Path) -> None:
    from pyspark.errors import PySparkException

    from pyspark_rocketmq.jobs.sql import Places, TopicSql

    with faults(tmp_path / "cluster") as made:
        namesrv = made.cluster.namesrv
        given = {"nameServer": namesrv, "topic": TOPIC, "retryTimeoutMs": "2000", "requestTimeoutMs": "1000"}
        topics = TopicSql(spark, Places(namesrv, timeout_s=2.0))
        errors = (PySparkException, AerobeeError)

        def frame() -> Any:
            return spark.read.format("rocketmq").options(**given).load()

        def stream(name: str) -> int:
            frame = spark.readStream.format("rocketmq").options(**given, startingOffsets="earliest").load()
            writing: Any = frame.select("queue_offset").writeStream.format("memory").queryName(name)
            query = writing.trigger(availableNow=True).start()
            query.awaitTermination()
            return spark.table(name).count()

        def one_round(number: int) -> dict[str, int]:
            before = made.done.copy()
            made.send(60)
            with made.raging(random.Random(number), (0.1, 1.5)):
                made.judge("batch", lambda: frame().count(), errors)
                made.judge("batch, bodies", lambda: frame().selectExpr("sum(length(body)) n").collect()[0].n, errors)
                made.judge("sql", lambda: topics.query(f"select count(*) n from {TOPIC}").collect()[0].n, errors)
                made.judge("stream", lambda: stream(f"faults_{number}"), errors)
            assert frame().count() == made.sent
            return dict(made.done - before)

        kept = rounds_of("AEROBEE_FAULTS_STATE")
        for number in numbers("1..50"):
            if not kept.is_done(str(number)):
                with kept.noted(str(number)) as found:
                    found.update(one_round(number))
                print(f"round {number}: {made.sent} rows, {found}", flush=True)
        print(f"\n\nsource {kept.source}\n\n{report(kept)}\n")
