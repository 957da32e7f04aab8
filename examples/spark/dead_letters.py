"""Show why messages become dead letters: those of a group by topic, tag and hour.

NAMESRV_ADDR=localhost:9876 python examples/spark/dead_letters.py billing
"""

from __future__ import annotations

import os
import sys

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from pyspark_rocketmq.jobs.failures import failure
from pyspark_rocketmq.session import session

COLUMNS = (
    "keys string, tags string, body binary, reconsume_times int, store_timestamp timestamp, "
    "system_properties map<string,string>"
)


def dead_letters(spark: SparkSession, namesrv: str, group: str) -> DataFrame:
    """Return every dead letter of the group, with its original topic and how long it was tried."""
    letters = (
        spark.read.format("rocketmq")
        .option("nameServer", namesrv)
        .option("topic", f"%DLQ%{group}")
        .schema(COLUMNS)
        .load()
    )
    return letters.select(
        f.coalesce(f.col("system_properties")["DLQ_ORIGIN_TOPIC"], f.col("system_properties")["RETRY_TOPIC"]).alias(
            "origin_topic"
        ),
        "tags",
        "keys",
        "reconsume_times",
        f.date_trunc("hour", "store_timestamp").alias("hour"),
        f.col("body").cast("string").alias("body"),
    )


def summary(letters: DataFrame) -> DataFrame:
    """Return the groups of letters to examine first."""
    return (
        letters.groupBy("origin_topic", "tags", "hour")
        .agg(f.count("*").alias("letters"), f.max("reconsume_times").alias("tries"), f.first("body").alias("example"))
        .orderBy(f.desc("letters"), "origin_topic", "tags")
    )


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    namesrv = os.environ.get("NAMESRV_ADDR", "127.0.0.1:9876")
    with session("dead letters") as spark:
        try:
            summary(dead_letters(spark, namesrv, sys.argv[1])).show(truncate=60)
        except PySparkException as error:  # a group without dead letters has no such topic
            sys.exit(failure(error).message)


if __name__ == "__main__":
    main()
