"""Kafka's broker and Spark's connector for it, beside which bench/spark.py measures: resolved through Maven.

The newest connector that Maven has is of Spark 4.2. It runs with PySpark 4.3, and reads and writes as the 4.3 one does.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any, Self

from bench.contenders import PROJECT
from bench.sparkdata import QUEUES, TOPIC

from aerobee.runtime.blocking import pause
from aerobee.testing.apache import free_ports

_CLUSTER = "YWVyb2JlZS1iZW5jaC1rYQ"
_STARTS_WITHIN_S = 120
# One broker that is its own controller. Nothing is deleted, and the log is as large as ours.
_CONF = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
log.dirs={logs}
num.partitions={queues}
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
log.retention.hours=-1
"""


def classpath(name: str) -> list[str]:
    """Return the jars of bench/java/NAME/pom.xml."""
    source = PROJECT / "bench" / "java" / name / "pom.xml"
    target = PROJECT / "out" / "bench" / f"{name}-classpath.txt"
    if not target.exists() or target.stat().st_mtime < source.stat().st_mtime:
        target.parent.mkdir(parents=True, exist_ok=True)
        goal = ["dependency:build-classpath", f"-Dmdep.outputFile={target}"]
        subprocess.run(["mvn", "-q", "-B", "-f", str(source), *goal], check=True, timeout=900, stdout=sys.stderr)
        target.touch()
    return target.read_text().strip().split(":")


class KafkaBroker:
    """A Kafka broker, one process, without ZooKeeper."""

    def __init__(self, work: Path) -> None:
        self._work = work / "kafka"
        self._work.mkdir(parents=True)
        port = free_ports(1)
        controller = port + 1
        self.address = f"127.0.0.1:{port}"
        conf = self._work / "server.properties"
        logs = self._work / "logs"
        conf.write_text(_CONF.format(port=port, controller=controller, logs=logs, queues=QUEUES))
        self._java = ["java", "-Xmx1g", "-Xms1g", f"-Duser.home={self._work}", "-cp", ":".join(classpath("kafka"))]
        self._log = (self._work / "broker.log").open("wb")
        subprocess.run(
            [*self._java, "kafka.tools.StorageTool", "format", "-t", _CLUSTER, "-c", str(conf)],
            check=True, stdout=self._log, stderr=self._log, cwd=self._work,
        )  # fmt: skip
        self._process = subprocess.Popen(
            [*self._java, "kafka.Kafka", str(conf)], stdout=self._log, stderr=self._log, cwd=self._work
        )

    def __enter__(self) -> Self:
        import socket

        host, _, port = self.address.rpartition(":")
        for _ in range(_STARTS_WITHIN_S * 10):
            if self._process.poll() is not None:
                raise SystemExit(f"Kafka's broker ended: {(self._work / 'broker.log').read_text()[-2000:]}")
            try:
                socket.create_connection((host, int(port)), 1).close()
                return self
            except OSError:
                pause(0.1)
        raise SystemExit("Kafka's broker does not listen")

    def __exit__(self, *error: Any) -> None:
        self._process.terminate()
        self._process.wait(60)
        self._log.close()

    # -- with Spark

    def fill(self, rows: Any) -> None:
        """Write rows of ours, by Kafka's sink: each message to the partition of its queue."""
        from pyspark.sql import functions as f

        headers = f.expr("transform(map_entries(properties), p -> struct(p.key as key, cast(p.value as binary) value))")
        made = rows.select(
            f.col("keys").cast("binary").alias("key"), f.col("body").alias("value"), headers.alias("headers"),
            f.col("queue_id").alias("partition"),
        )  # fmt: skip
        made.write.format("kafka").options(**{"kafka.bootstrap.servers": self.address, "topic": TOPIC}).save()

    def read(self, spark: Any, *, stream: bool = False) -> Any:
        """Return the topic as the connector reads it."""
        reading = (spark.readStream if stream else spark.read).format("kafka")
        options = {"kafka.bootstrap.servers": self.address, "subscribe": TOPIC, "startingOffsets": "earliest"}
        return reading.options(**options, includeHeaders="true").load()
