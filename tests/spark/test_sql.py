"""SQL over topics, trace and lag as tables, and their picture: against real brokers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from aerobee.errors import AerobeeError
from aerobee.sync import Producer, PushConsumer

PATIENCE_S = 240


@pytest.fixture
def shop(cluster: Any) -> dict[str, str]:
    """A topic of orders, traced on both sides; a consumer group that has read it all."""
    topic = cluster.topic("shop-orders", queues=2)
    group = f"{topic}-billing"
    done = threading.Semaphore(0)
    with Producer(cluster.namesrv, group=f"{topic}-sender", trace=True) as producer:
        for number in range(20):
            body = json.dumps({"id": number, "amount": number * 10}).encode()
            producer.send(topic, body, tags="PAID" if number % 4 else "REFUND", keys=str(number))
    consumer = PushConsumer(cluster.namesrv, group=group, trace=True, consume_from="first")
    consumer.listener(topic)(lambda message: done.release())
    with consumer:
        for _ in range(20):
            assert done.acquire(timeout=60)
    return {"topic": topic, "group": group}


def test_topics_trace_and_lag_are_tables(spark: Any, cluster: Any, shop: dict[str, str], tmp_path: Path) -> None:
    from pyspark_rocketmq.jobs import plots
    from pyspark_rocketmq.jobs.sql import Places, TopicSql, write_parquet

    sql = TopicSql(spark, Places(cluster.namesrv))
    topic = shop["topic"]

    def rows(text: str) -> list[tuple[Any, ...]]:
        return [tuple(row) for row in sql.query(text).collect()]

    found = rows(
        f"with paid as (select * from `{topic}` where tags = 'PAID' and store_timestamp > now() - interval 1 day) "
        "select count(*), sum(get_json_object(cast(body as string), '$.amount')) from paid"
    )
    assert found == [(15, sum(n * 10 for n in range(20) if n % 4))]
    assert (f"`{topic}`", "normal") in rows("show tables")
    # The clients closed, so every trace record has been sent.
    assert rows(f"select event, count(*) from trace where `group` like '{topic}-%' group by 1 order by 1") == [
        ("Pub", 20), ("SubAfter", 20), ("SubBefore", 20),
    ]  # fmt: skip
    deliveries, negative = rows(
        f"select count(*), count_if(end_to_end_ms < 0) from trace_latency where topic = '{topic}' and success"
    )[0]
    assert deliveries == 20 and negative == 0
    assert rows(f"select `group`, deliveries, failures from slow_consumers where topic = '{topic}'") == [
        (shop["group"], 20, 0)
    ]
    lag = f"select sum(broker_offset), sum(lag) from lag where topic = '{topic}' and `group` = '{shop['group']}'"
    assert rows(lag) == [(20, 0)]
    cluster.send(topic, [b"{}"] * 3, tags="PAID")
    assert rows(lag) == [(23, 3)], "the table is of the moment of the query"
    assert rows(f"select count(*) from `{topic}`") == [(23,)]

    assert (
        write_parquet(sql.query(f"select keys, body from `{topic}` where tags = 'REFUND'"), tmp_path / "r.parquet") == 5
    )
    plots.plot_flow(sql, tmp_path / "flow.html")
    page = (tmp_path / "flow.html").read_text()
    assert "<svg" in page and shop["group"] in page and "src=" not in page


def test_a_store_is_a_table_too_and_reads_only_what_is_named(
    spark: Any, cluster: Any, wait_synced: Callable[[Path], None]
) -> None:
    from pyspark_rocketmq.jobs.sql import Places, TopicSql, plan_of

    topic = cluster.topic("stored")
    cluster.send(topic, [b"x"] * 40, tags="PAID")
    counted = 0
    for broker in range(2):
        wait_synced(cluster.store_path(broker))
        sql = TopicSql(spark, Places(cluster.namesrv, store=str(cluster.store_path(broker))))
        found = sql.query(f"select tags, count(*) n from store where topic = '{topic}' group by tags")
        plan = plan_of(found) or ""
        assert "rocketmq_store" in plan and "body" not in plan
        counted += sum(row.n for row in found.collect())
        assert ("store", "the messages in the log of a store directory (needs --store)") in [
            tuple(row) for row in sql.query("show tables").collect()
        ]
        sql.query("select 1")  # the session forgets the view
    assert counted == 40
    live = sql.query(f"select count(*) from `{topic}`")
    assert "body" not in (plan_of(live) or "body") and live.collect()[0][0] == 40


def test_the_answer_is_the_same_whatever_is_read_of_a_table(spark: Any, cluster: Any) -> None:
    """Tables are made with the columns that a query names. Each of these is compared with a table of all columns."""
    from pyspark_rocketmq.jobs.sql import Places, TopicSql, plan_of

    topic, other = cluster.topic("named"), cluster.topic("beside")
    for number in range(12):
        cluster.send(topic, [f"body {number}"], tags=("PAID", "NEW")[number % 2], keys=f"k{number % 4}")
    cluster.send(other, ["x", "y"], tags="PAID", keys="k1")
    reading = spark.read.format("rocketmq").option("nameServer", cluster.namesrv)
    reading.load(topic).createOrReplaceTempView("whole_t")
    reading.load(other).createOrReplaceTempView("whole_o")
    sql = TopicSql(spark, Places(cluster.namesrv))
    for text, is_narrow in (
        ("select count(*) from {t}", True),
        ("select TAGS, count(1) n from {t} group by tags having count(1) > 1 order by tags", True),
        ("select t.keys, length(body) from {t} t where t.`tags` = 'PAID' order by 1, 2", True),
        ("select t.keys, o.tags from {t} t join {o} o on t.keys = o.keys order by 1", True),
        ("select keys from {t} where exists (select 1 from {o} o where o.keys = {t}.keys) order by 1", True),
        ("with a as (select keys, tags from {t}) select tags, max(keys) from a group by all order by 1", True),
        ("select keys from {t} union all select cast(body as string) from {o} order by 1", True),
        ("select * from {o} order by keys, body", False),
        ("select count(*) from (select keys, tags from {t}) natural join (select keys, tags from {o})", True),
        ("select count(*) from (select * from {t})", False),
        ("select count(*) from {t} where 1 in (select 1 from {o})", True),
        ("select x from (table {o}) as made(topic, broker, x, a, b, c, d, e, f, g, h) order by x", False),
        ("select * from (select tags, keys from {t}) pivot (count(1) for tags in ('PAID', 'NEW')) order by 1", True),
        ("select '*' star, count(*) from {t}", True),
        ("from {t} |> where tags = 'NEW' |> select keys |> order by keys", True),
        ("select max(size(properties)), max(properties['UNIQ_KEY'] is null) from {t}", True),
        ("table {o}", False),
        ("from {t} |> where tags = 'NEW'", False),
        ("from {o} |> limit 5", False),
    ):
        found = sql.query(text.format(t=f"`{topic}`", o=f"`{other}`"))
        expected = spark.sql(text.format(t="whole_t", o="whole_o")).collect()
        assert sorted(map(str, found.collect())) == sorted(map(str, expected)), text
        assert ("store_timestamp" not in (plan_of(found) or "")) is is_narrow, text
    with pytest.raises(AerobeeError, match="store_timestamp"):  # the hint names columns that were not read
        sql.query(f"select stor_timestamp from `{topic}`")


def test_hostile_and_odd_names_are_tables_or_errors(spark: Any, cluster: Any, tmp_path: Path) -> None:
    from pyspark_rocketmq.jobs.sql import Places, TopicSql, quoted, statements

    sql = TopicSql(spark, Places(cluster.namesrv))
    for name in ("select", "table", "order", "from", "COUNT", "1st", "a-b", "%odd%name", "lag_", "null"):
        cluster.create_topic(name, 1)
        cluster.send(name, [name.encode()])
        (row,) = sql.query(f"select cast(body as string) b, topic from {quoted(name)}").collect()
        assert tuple(row) == (name, name)
    # What no topic can be called is no way to say something else to Spark.
    spark.range(3).createOrReplaceTempView("precious")
    for evil in (
        "x`; drop view precious; --", "x') or 1=1 --", "`", "``", "a.b", "x\ny", "größe", "日本", "\u202e", "x" * 300,
        "../../etc/passwd", "${spark.app.name}", "'", "",
    ):  # fmt: skip
        for text in (f"select * from {quoted(evil)}", f"select count(*) from {quoted(evil)}"):
            with pytest.raises(AerobeeError):
                sql.query(text)
        with pytest.raises(AerobeeError):
            sql.query(f"insert into {quoted(evil)} select 'x' body")
    assert spark.table("precious").count() == 3
    assert statements("select ';' from `a;b`; select 1") == ["select ';' from `a;b`", "select 1"]


def test_a_typed_topic_reads_the_columns_that_are_named(spark: Any, cluster: Any) -> None:
    from pyspark_rocketmq.formats.stored import register
    from pyspark_rocketmq.jobs.sql import Places, TopicSql, plan_of

    topic = cluster.topic("typed")
    cluster.send(topic, ['{"amount": 2.5, "n": 1}', '{"amount": 1.5, "n": "x"}', '{"amount": 4, "n": 2}'], keys="k")
    register(cluster.namesrv, topic, format="json", schema="amount double, n bigint")
    sql = TopicSql(spark, Places(cluster.namesrv))
    found = sql.query(f"select sum(amount) s, count(keys) k from `{topic}`")
    plan = plan_of(found) or ""
    assert "properties" not in plan and "amount" in plan
    # The body with a wrong n is no body, whichever field is asked for.
    assert [tuple(row) for row in found.collect()] == [(6.5, 3)]
    assert sql.query(f"select count(*) c from `{topic}`").collect()[0].c == 3
    assert sql.query(f"select amount from `{topic}` where _corrupt is not null").collect()[0].amount is None
    assert len(sql.query(f"select * from `{topic}`").columns) == 14


def test_rows_are_inserted_into_a_topic(spark: Any, cluster: Any) -> None:
    from pyspark_rocketmq.jobs.sql import Places, TopicSql

    sql = TopicSql(spark, Places(cluster.namesrv))
    source, target = cluster.topic("from"), cluster.topic("into")
    cluster.send(source, [b"a", b"b"], tags="PAID")
    assert sql.query(f"insert into `{target}` select body, tags, 'k' keys from `{source}`").columns == []
    sql.query(f"INSERT INTO TABLE `{target}`\nwith t as (select 'c' body) select * from t")
    found = sorted((m.body, m.tags, m.keys) for m in cluster.messages(target))
    assert found == [(b"a", "PAID", "k"), (b"b", "PAID", "k"), (b"c", "", "")]
    for text, message in (
        (f"insert into `{target}` select 1 wrong", "wrong"),
        ("insert into no_such_topic_here select 'x' body", "no topic or table"),
        ("insert into lag select 'x' body", "lag is no topic"),
    ):
        with pytest.raises(AerobeeError, match=message):
            sql.query(text)


def test_an_insert_may_name_its_columns_and_begin_with_a_comment(spark: Any, cluster: Any) -> None:
    from pyspark_rocketmq.jobs.sql import Places, TopicSql

    sql = TopicSql(spark, Places(cluster.namesrv))
    target = cluster.topic("into")
    sql.query(f"/* one */ -- two\ninsert into `{target}`(body, tags) values ('a', 'PAID'), ('b', 'NEW')")
    sql.query(f"insert into `{target}` (tags, body) (select 'LATE', 'c')")
    assert sorted((m.body, m.tags) for m in cluster.messages(target)) == [(b"a", "PAID"), (b"b", "NEW"), (b"c", "LATE")]
    with pytest.raises(AerobeeError, match="names 1 columns, and its query 2"):
        sql.query(f"insert into `{target}` (body) select 'd', 'PAID'")
    assert len(cluster.messages(target)) == 3


def test_a_command_is_run_once(spark: Any, cluster: Any) -> None:
    """The columns that a query needs are found by a second analysis, which for a command is a second run."""
    from pyspark_rocketmq.jobs.sql import Places, TopicSql

    sql = TopicSql(spark, Places(cluster.namesrv))
    topic = cluster.topic("copied")
    cluster.send(topic, ["a", "b", "c"], tags="PAID")
    sql.query(f"create table copied_once using parquet as select tags, keys from `{topic}`")
    try:
        sql.query(f"insert into default.copied_once select tags, keys from `{topic}`")
        assert sql.query("select count(*) from copied_once").collect()[0][0] == 6
        sql.query(f"create temporary view paid_now as select tags from `{topic}`")
        assert sql.query("select count(*) from paid_now").collect()[0][0] == 3
    finally:
        spark.sql("drop table copied_once")
        spark.sql("drop view if exists paid_now")


def test_wrong_queries_are_one_line(spark: Any, cluster: Any) -> None:
    from pyspark_rocketmq.jobs.sql import Places, TopicSql

    sql = TopicSql(spark, Places(cluster.namesrv))
    topic = cluster.topic("wrong")
    for text, message, code in (
        (f"select nothing from `{topic}`", "`nothing` cannot be resolved", 2),
        ("select * from shop-orders", "shop-orders", 2),
        ("selec 1", "selec", 2),
        ("select * from archive", "no archive is named", 2),
        ("select * from store", "no store directory is named", 2),
        ("select * from no_such_topic_at_all", "no topic or table no_such_topic_at_all", 1),
    ):
        with pytest.raises(AerobeeError) as told:
            sql.query(text)
        assert message in told.value.message and "\n" not in told.value.message, text
        assert getattr(told.value, "exit_code", 1) == code, text


def test_explain_knows_topics_and_show_tables_takes_a_pattern(spark: Any, cluster: Any) -> None:
    from pyspark_rocketmq.jobs.sql import Places, TopicSql

    sql = TopicSql(spark, Places(cluster.namesrv))
    topic, other = cluster.topic("explained"), cluster.topic("explained-too")
    plan = "".join(row[0] for row in sql.query(f"explain select count(*) from `{topic}` join `{other}`").collect())
    assert "RelationV2" in plan or "BatchScan" in plan, plan
    for text, message in (
        ("explain select * from no_such_topic_at_all", "no topic or table no_such_topic_at_all"),
        (f"-- why\nEXPLAIN select nothing from `{topic}`", "`nothing` cannot be resolved"),
        (f"explain insert into `{topic}` select 1 wrong", "."),
    ):
        with pytest.raises(AerobeeError, match=message):
            sql.query(text)
    assert cluster.messages(topic) == []
    shown = [row[0] for row in sql.query("show tables like 'EXPLAINED*|lag'").collect()]
    assert shown == [f"`{other}`", f"`{topic}`", "lag"] or shown == [f"`{topic}`", f"`{other}`", "lag"]
    assert sql.query("show tables 'nothing*'").collect() == []


def command(*words: str, **more: Any) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("NAMESRV", "AEROBEE_LOG"))}
    return subprocess.run(
        [sys.executable, "-m", "aerobee", "sql", "--master", "local[1]", *words],
        capture_output=True, text=True, timeout=PATIENCE_S, env=environment, check=False, **more,
    )  # fmt: skip


def test_the_command_answers_in_json_and_fails_in_one_line(cluster: Any, tmp_path: Path) -> None:
    topic = cluster.topic("commanded")
    cluster.send(topic, [b"seven", b"\xff"], keys="7")
    text = f"select keys, body from `{topic}` order by body; select no_column from `{topic}`"
    done = command("-n", cluster.namesrv, "--json", cwd=tmp_path, input=text)
    assert [json.loads(line) for line in done.stdout.splitlines()] == [
        {"keys": "7", "body": "seven"},
        {"keys": "7", "body": "/w=="},
    ]
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert "`no_column` cannot be resolved" in json.loads(line)["error"]
    assert list(tmp_path.iterdir()) == []
