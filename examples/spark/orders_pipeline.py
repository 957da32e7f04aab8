"""A pipeline to copy: orders into a Delta table, and totals by shop into a topic. Each once, whatever fails."""

import sys

from pyspark_rocketmq.session import session
from pyspark_rocketmq.tables import to_delta


def pipeline(spark, namesrv, place):
    orders = (
        spark.readStream.format("rocketmq").option("nameServer", namesrv).option("topic", "orders")
        .option("startingOffsets", "earliest").option("format", "json")
        .schema("queue_id int, queue_offset bigint, id bigint, shop string, amount double").load()
    )  # fmt: skip
    totals = orders.groupBy("shop").sum("amount").selectExpr("shop sharding_key", "shop", "`sum(amount)` amount")
    to_topic = totals.writeStream.format("rocketmq").outputMode("complete").option("format", "json")
    return (
        to_delta(orders, f"{place}/orders").option("checkpointLocation", f"{place}/state/orders"),
        to_topic.option("nameServer", namesrv).option("topic", "totals").option("deliveryGuarantee", "exactly-once")
        .option("checkpointLocation", f"{place}/state/totals"),
    )  # fmt: skip


if __name__ == "__main__":  # NAMESRV DIRECTORY
    queries = [writer.start() for writer in pipeline(session("orders"), *sys.argv[1:])]
    queries[0].awaitTermination()
