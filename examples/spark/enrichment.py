"""Join a stream of orders with a table of customers, and write the result to another topic.

NAMESRV_ADDR=localhost:9876 python examples/spark/enrichment.py orders orders-enriched customers.parquet state/
"""

from __future__ import annotations

import os
import sys

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.readwriter import DataStreamWriter

from pyspark_rocketmq.session import session


def enriched(spark: SparkSession, namesrv: str, topic: str, customers: DataFrame) -> DataFrame:
    """Return each order with the columns of its customer. Each batch reads the table again, so it sees changes."""
    orders = (
        spark.readStream.format("rocketmq")
        .option("nameServer", namesrv)
        .option("topic", topic)
        .option("startingOffsets", "earliest")
        .schema("keys string, tags string, body binary")
        .load()
        .select("keys", "tags", f.from_json(f.col("body").cast("string"), "customer int, amount double").alias("order"))
        .select("keys", "tags", "order.*")
    )
    return orders.join(f.broadcast(customers), "customer", "left")


def to_topic(rows: DataFrame, namesrv: str, target: str, checkpoint: str) -> DataStreamWriter:
    """Return a writer, not started yet, that sends the rows as JSON messages with the keys of the orders."""
    body = f.to_json(f.struct("customer", "name", "country", "amount")).cast("binary").alias("body")
    return (
        rows.select("keys", "tags", body)
        .writeStream.format("rocketmq")
        .option("nameServer", namesrv)
        .option("topic", target)
        .option("checkpointLocation", checkpoint)
    )


def main() -> None:
    if len(sys.argv) != 5:
        sys.exit(__doc__)
    topic, target, customers, checkpoint = sys.argv[1:5]
    namesrv = os.environ.get("NAMESRV_ADDR", "127.0.0.1:9876")
    with session("enrichment") as spark:
        rows = enriched(spark, namesrv, topic, spark.read.parquet(customers))
        to_topic(rows, namesrv, target, checkpoint).start().awaitTermination()


if __name__ == "__main__":
    main()
