"""Topics as tables, cell by cell: a notebook as a script (VS Code, Jupyter with jupytext, or plain Python)."""

# %% [markdown]
# # Topics as tables, cell by cell
# Open this file in VS Code or Jupyter (jupytext), or run it as it is:
# `NAMESRV_ADDR=localhost:9876 python examples/spark/notebook.py`. It starts its own broker if NAMESRV_ADDR is not set.

# %%
import json
import os
from contextlib import ExitStack

from aerobee.sync import Producer
from aerobee.testing.cluster import LocalCluster
from pyspark_rocketmq.jobs.sql import Places, TopicSql
from pyspark_rocketmq.session import close, session

stack = ExitStack()
namesrv = os.environ.get("NAMESRV_ADDR") or stack.enter_context(LocalCluster()).namesrv

# %% Some orders
with Producer(namesrv) as producer:
    for number in range(100):
        order = {"id": number, "amount": number % 10, "country": ("NO", "DE", "JP")[number % 3]}
        producer.send("notebook-orders", json.dumps(order).encode(), tags="PAID", keys=str(number))

# %% The topic is a table
spark = session("notebook", "local[2]")
orders = spark.read.format("rocketmq").option("nameServer", namesrv).load("notebook-orders")
orders.selectExpr("queue_id", "queue_offset", "tags", "cast(body as string) body").show(5, truncate=False)

# %% And so it is in SQL
topics = TopicSql(spark, Places(namesrv))
by_country = topics.query(
    """
    select o.country, count(*) orders, sum(o.amount) amount
    from (select from_json(cast(body as string), 'id int, amount int, country string') o from `notebook-orders`)
    group by 1 order by 1
    """
)
by_country.show()
totals = {row.country: (row.orders, row.amount) for row in by_country.collect()}

# %% The same figures by plain Python
expected: dict[str, tuple[int, int]] = {}
for number in range(100):
    country = ("NO", "DE", "JP")[number % 3]
    count, amount = expected.get(country, (0, 0))
    expected[country] = (count + 1, amount + number % 10)
print("Spark == Python:", totals == expected)

# %% Leave nothing behind
close()
stack.close()
