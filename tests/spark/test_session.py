"""The session builder and the cluster fixture, in one go: what every other Spark test stands on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pyspark_rocketmq import session


def test_a_session_is_set_up_and_keeps_its_files_to_itself(spark: Any, cluster: Any) -> None:
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
    assert spark.conf.get("spark.sql.python.filterPushdown.enabled") == "true"
    assert spark.conf.get("spark.sql.shuffle.partitions") == "2"
    assert spark.range(10).mapInArrow(lambda batches: batches, "id bigint").count() == 10
    assert session.session() is spark
    topic = cluster.topic("session")
    assert cluster.send(topic, [b"one", b"two"]) == len(cluster.messages(topic)) == 2
    assert session.log_path().parent == Path(spark.conf.get("spark.sql.warehouse.dir").removeprefix("file:")).parent
    assert not {"derby.log", "metastore_db", "spark-warehouse"} & {path.name for path in Path.cwd().iterdir()}


def test_a_session_is_warmed_up_by_a_read_of_nothing(spark: Any) -> None:
    from pyspark_rocketmq.warmup import OPTION, warm_up

    thread = warm_up(spark)
    thread.join(200)
    assert not thread.is_alive()
    # What that thread read, seen from here: an error would have been passed over there.
    assert spark.read.format("rocketmq").option(OPTION, "true").load().count() == 0
