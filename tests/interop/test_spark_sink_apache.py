"""Spark's sink at Apache's broker: rows at least once, read back by Java; the upper levels refused in words."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from aerobee.testing.place import Place

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.timeout(300)
def test_rows_reach_apache(spark: SparkSession, apache_place: Place, tmp_path: Path) -> None:
    rows = spark.range(500).selectExpr(
        "concat('row ', id) body",
        "if(id % 2 = 0, 'EVEN', null) tags",
        "concat('k', id) keys",
        "map('n', cast(id as string)) properties",
        "if(id % 5 = 0, timestamp_millis(unix_millis(current_timestamp()) + 1000), null) deliver_at",
    )
    options = {"nameServer": apache_place.namesrv, "topic": "spark-sink", "createTopics": "true"}
    rows.write.format("rocketmq").mode("append").options(**options).save()
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.txt").write_text("stream 1\nstream 2")
    stream = spark.readStream.schema("value string").text(str(tmp_path / "in")).selectExpr("value body")
    writer = stream.writeStream.format("rocketmq").options(**options).trigger(availableNow=True)
    assert writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start().awaitTermination(120)
    bodies = [f"row {number}" for number in range(500)] + ["stream 1", "stream 2"]
    wanted = {hashlib.sha1(body.encode()).hexdigest() for body in bodies}

    def seen() -> list[dict[str, Any]]:
        return [one for one in apache_place.java.run("pull-all", topic="spark-sink") if one["event"] == "message"]

    found = seen()
    for _ in range(60):  # each look takes Java a while, and a fifth of the rows is delivered a second later
        if wanted <= {one["bodyHash"] for one in found}:
            break
        found = seen()
    assert {one["bodyHash"] for one in found} == wanted and len(found) == 502
    by_key = {one["keys"]: one for one in found}
    assert (by_key["k8"]["tags"], by_key["k8"]["properties"]["n"]) == ("EVEN", "8")


@pytest.mark.parametrize("guarantee", ["idempotent", "exactly-once"])
@pytest.mark.timeout(300)
def test_the_upper_levels_are_refused(spark: SparkSession, apache_place: Place, guarantee: str) -> None:
    from pyspark.errors import PySparkException

    writer = spark.range(1).selectExpr("'x' body", "'x' idempotencyKey" if guarantee == "idempotent" else "'t' tags")
    with pytest.raises(PySparkException, match=f"deliveryGuarantee={guarantee} needs Aerobee's broker"):
        writer.write.format("rocketmq").mode("append").options(
            nameServer=apache_place.namesrv, topic="spark-refused", deliveryGuarantee=guarantee, createTopics="true"
        ).save()
