"""Runs the Python of the pages in docs/spark as printed, in the session that it is given, classic or Spark Connect.

    python docpages.py PLAN.json

runs in a Spark Connect session of its own what the rows of the table in connect.md say, the examples, and then the
pages: one process cannot have both kinds of sessions. Names and places of the pages are replaced by those of the test.
A streaming query that a block starts is run to the end of its topic.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

PAGES = Path(__file__).parents[2] / "docs" / "spark"
# In this order: a page may use what an earlier one wrote.
NAMES = (
    "README", "source", "formats", "tables", "sink", "sql", "store", "kafka-names", "connect", "archive", "pipelines",
    "databricks",
)  # fmt: skip
# What is refused in Spark Connect, in these words, by what a block of the page calls. The page has the words too.
CLASSIC = {"tables": "to_delta(", "archive": "archive.run("}
REFUSAL = "classic API"
# A block that continues a statement of the text around it, and lines that make another session.
_PART = re.compile(r"\s*\.")
_SESSION = re.compile(r"^(from pyspark_rocketmq.session import .*|spark = (session|connect)\(.*)$", re.MULTILINE)


def blocks(page: str) -> list[str]:
    """Return the Python blocks of a page that are whole."""
    text = (PAGES / f"{page}.md").read_text()
    found = re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return [one for one in found if not _PART.match(one)]


def is_refused(page: str, code: str, spark: Any) -> bool:
    """Return whether a block needs the classic API, and this is not it."""
    return not is_classic(spark) and CLASSIC.get(page, "\0") in code


def is_classic(spark: Any) -> bool:
    return hasattr(spark, "sparkContext")


def replaced(code: str, plan: dict[str, Any]) -> str:
    """Return a block with the places of the test."""
    code = _SESSION.sub("", code)
    for printed, real in (
        ("localhost:9876", plan["namesrv"]), ("namesrv.internal:9876", plan["namesrv"]), ("/data/store", plan["store"]),
        ("/data", plan["directory"]), ("/Volumes", plan["directory"]), ('"broker-a"', f'"{plan["broker"]}"'),
        ('"orders"', f'"{plan["topic"]}"'), ('"totals"', f'"{plan["totals"]}"'),
        ("main.shop.orders", plan["table"]), ("version=3", "version=0"),
    ):  # fmt: skip
        code = code.replace(printed, real)
    return code


class DatabricksTools:
    """What a notebook of Databricks has as `dbutils`, as far as the page uses it."""

    class secrets:  # noqa: N801 (their name)
        @staticmethod
        def get(scope: str, key: str) -> str:
            from aerobee.testing.secrets import secret_for

            return secret_for(f"{scope}-{key}")


def given(spark: Any, page: str, plan: dict[str, Any]) -> dict[str, Any]:
    """Return what the text of a page says that the reader has."""
    names: dict[str, Any] = {"spark": spark, "__name__": page, "dbutils": DatabricksTools}
    reading = spark.read.format("rocketmq").option("nameServer", plan["namesrv"])
    if page in ("sink", "kafka-names"):
        names["df"] = reading.load(plan["topic"]).where("queue_offset < 2")
    if page == "sink":
        stream = spark.readStream.format("rocketmq").options(nameServer=plan["namesrv"], topic=plan["topic"])
        rows = stream.option("startingOffsets", "earliest").load()
        names["stream"] = rows.selectExpr("length(body) total", "'oslo' shop")
    if page == "formats":
        names["totals"] = spark.sql("select 'oslo' shop, cast(12.5 as double) amount")
    if page == "tables" and not is_classic(spark):
        import pyarrow as pa
        from deltalake import write_deltalake

        # A table that the classic API wrote. Its upkeep needs no Spark.
        write_deltalake(f"{plan['directory']}/orders", pa.table({"id": [1]}))
    return names


def run(spark: Any, plan: dict[str, Any], pages: tuple[str, ...] = NAMES) -> dict[str, int]:
    """Run these pages. Return how many blocks of each were run, and how many were refused."""
    from aerobee.errors import AerobeeError

    done: Counter[str] = Counter()
    for page in pages:
        names = given(spark, page, plan)
        for code in blocks(page):
            names.pop("query", None)
            compiled = compile(replaced(code, plan), f"{page}.md", "exec")
            if is_refused(page, code, spark):
                try:
                    exec(compiled, names)
                except AerobeeError as error:
                    done[f"{page} refused"] += REFUSAL in str(error)
                continue
            exec(compiled, names)
            _finish(names)
            done[page] += 1
        if "stream" in names and page == "pipelines":
            _run_pipeline(spark, names["stream"], plan)
    return dict(done)


def _finish(names: dict[str, Any]) -> None:
    """Run the streaming query of a block to the end of its topic."""
    query = names.get("query")
    if hasattr(query, "processAllAvailable"):
        query.processAllAvailable()
        query.stop()


def _run_pipeline(spark: Any, function: Callable[[Any], Any], plan: dict[str, Any]) -> None:
    """Start what the function of a pipeline returns, as `aerobee pipeline start --available-now` does."""
    from pyspark_rocketmq.jobs import streaming

    named = streaming.writers(function, spark, "stream")
    started = streaming.start(named, f"{plan['directory']}/state", available_now=True)
    for _ in streaming.watch(started, lambda: False):
        pass


# -- the table of connect.md: a check for each row, by the text of its first cell


def rows_of_table() -> dict[str, str]:
    """Return the rows of the table in connect.md: what they are about, and what they say."""
    lines = [line for line in (PAGES / "connect.md").read_text().splitlines() if line.startswith("| ")]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return {first: second for first, second in cells[1:]}


def refused(call: Callable[[], Any]) -> None:
    """Assert that a call is refused in words."""
    from aerobee.errors import AerobeeError

    try:
        call()
    except AerobeeError as error:
        assert REFUSAL in str(error), error
        return
    raise AssertionError("it was not refused")


def check_environment(spark: Any, plan: dict[str, Any]) -> None:
    # The server was started with NAMESRV_ADDR; the client's is another one by now.
    os.environ["NAMESRV_ADDR"] = "127.0.0.1:1"
    assert spark.read.format("rocketmq").load(plan["topic"]).count() == plan["rows"]


def check_files(spark: Any, plan: dict[str, Any]) -> None:
    from pyspark.errors import PySparkException

    place = Path(plan["done"]).with_name("schema.txt")
    place.write_text("id bigint, amount double")
    reading = spark.read.format("rocketmq").options(nameServer=plan["namesrv"], format="json")
    rows = reading.option("schemaFile", str(place)).load(plan["topic"])
    assert rows.where("id is not null").count() == plan["rows"]
    with place.open() as file:
        own = "/proc/self/fd/200"
        os.dup2(file.fileno(), 200)
        assert Path(own).read_text() == place.read_text()
        try:  # the client has this file, and the server has none of this name
            reading.option("schemaFile", own).load(plan["topic"]).count()
        except PySparkException as error:
            assert f"{own} cannot be read" in str(error)
        else:
            raise AssertionError("the client's file was read")
        finally:
            os.close(200)


def check_helpers(spark: Any, plan: dict[str, Any]) -> None:
    from pyspark_rocketmq.jobs.sql import Places, TopicSql
    from pyspark_rocketmq_store import archive

    topics = TopicSql(spark, Places(plan["namesrv"]))
    found = topics.query(f"select count(*), count(distinct tags) from `{plan['topic']}`")
    assert tuple(found.collect()[0]) == (plan["rows"], 2)
    # All columns are read, whatever the query names.
    assert len(spark.table(f"`{plan['topic']}`").columns) == len(plan["columns"])
    whole = archive.read(spark, plan["archive"], name_server=plan["namesrv"], topic=plan["topic"])
    assert whole.count() == plan["rows"]


def check_tables(spark: Any, plan: dict[str, Any]) -> None:
    from pyspark_rocketmq.tables import to_delta, to_iceberg

    stream = spark.readStream.format("rocketmq").options(nameServer=plan["namesrv"], topic=plan["topic"]).load()
    refused(lambda: to_delta(stream, f"{plan['directory']}/refused"))
    refused(lambda: to_iceberg(stream, "default", "a.b"))
    assert not Path(f"{plan['directory']}/refused").exists()


def check_classic(spark: Any, plan: dict[str, Any]) -> None:
    from pyspark_rocketmq.session import session
    from pyspark_rocketmq_store import archive

    refused(lambda: archive.run(spark, plan["store"], plan["archive"], plan["broker"]))
    refused(lambda: session("both"))
    refused(lambda: session("server", "sc://127.0.0.1:15002"))


def check_progress(spark: Any, plan: dict[str, Any]) -> None:
    import threading

    from pyspark.sql.streaming.listener import StreamingQueryListener

    heard: list[int] = []
    over = threading.Event()

    class Listener(StreamingQueryListener):
        def onQueryStarted(self, event: Any) -> None:  # noqa: N802
            """Spark demands it."""

        def onQueryProgress(self, event: Any) -> None:  # noqa: N802
            heard.append(event.progress.numInputRows)

        def onQueryIdle(self, event: Any) -> None:  # noqa: N802
            """Spark demands it."""

        def onQueryTerminated(self, event: Any) -> None:  # noqa: N802
            over.set()

    listener = Listener()
    spark.streams.addListener(listener)
    try:
        reading = spark.readStream.format("rocketmq").options(nameServer=plan["namesrv"], topic=plan["topic"])
        writing = reading.option("startingOffsets", "earliest").load().writeStream.format("noop")
        query = writing.option("checkpointLocation", f"{plan['directory']}/heard").trigger(availableNow=True).start()
        query.awaitTermination()
        assert query.lastProgress is not None and "offsets" in str(query.lastProgress["sources"])
        assert over.wait(60) and sum(heard) == plan["rows"]
    finally:
        spark.streams.removeListener(listener)


CHECKS: dict[str, Callable[[Any, dict[str, Any]], None]] = {
    "`NAMESRV_ADDR`, `AEROBEE_ACCESS_KEY` and the other variables of the driver": check_environment,
    "files in options (`schemaFile`, `tlsCa`, `archive`, the path of a store)": check_files,
    "`TopicSql`, `archive.read`": check_helpers,
    "`to_delta`, `to_iceberg`": check_tables,
    "`session()`, `archive.run`, `aerobee sql`, `aerobee pipeline start`, `aerobee archive run`": check_classic,
    "`query.lastProgress`, listeners": check_progress,
}


# -- the examples, in Spark Connect (test_examples_spark.py runs them in the classic API)


def example(name: str) -> Any:
    """Return an example as a module whose functions and classes Spark can send to its workers."""
    from pyspark import cloudpickle

    path = PAGES.parents[1] / "examples" / "spark" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(f"example_{name}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    cloudpickle.register_pickle_by_value(module)
    return module


def run_dead_letters(module: Any, spark: Any, plan: dict[str, Any]) -> None:
    (row,) = module.summary(module.dead_letters(spark, plan["namesrv"], plan["group"])).collect()
    assert (row.letters, row.tags) == (2, "PAID")


def run_enrichment(module: Any, spark: Any, plan: dict[str, Any]) -> None:
    customers = spark.createDataFrame([(1, "Ada", "NO")], "customer int, name string, country string")
    # The bodies of this topic name no customer that is a number: each order is there without one.
    rows = module.enriched(spark, plan["namesrv"], plan["topic"], customers)
    writer = module.to_topic(rows, plan["namesrv"], plan["enriched"], f"{plan['directory']}/enrichment")
    writer.trigger(availableNow=True).start().awaitTermination()


def run_sessions(module: Any, spark: Any, plan: dict[str, Any]) -> None:
    found = module.sessions(spark, plan["namesrv"], plan["clicks"])
    writing = found.writeStream.format("memory").queryName("sessions_found").outputMode("append")
    writing = writing.option("checkpointLocation", f"{plan['directory']}/sessions")
    writing.trigger(availableNow=True).start().awaitTermination()
    assert ("ada", plan["noon_ms"], plan["noon_ms"], 2) in [
        tuple(row) for row in spark.table("sessions_found").collect()
    ]


def run_orders_pipeline(module: Any, spark: Any, plan: dict[str, Any]) -> None:
    refused(lambda: module.pipeline(spark, plan["namesrv"], f"{plan['directory']}/refused"))


EXAMPLES: dict[str, Callable[[Any, Any, dict[str, Any]], None]] = {
    "dead_letters": run_dead_letters,
    "enrichment": run_enrichment,
    "sessions": run_sessions,
    "orders_pipeline": run_orders_pipeline,
}


def main() -> int:
    from pyspark_rocketmq.session import connect

    plan = json.loads(Path(sys.argv[1]).read_text())
    os.environ["NAMESRV_ADDR"] = plan["namesrv"]
    with connect("local[2]", **{"spark.driver.memory": "1g"}) as spark:
        for check in CHECKS.values():
            check(spark, plan)
        for name, run_example in EXAMPLES.items():
            run_example(example(name), spark, plan)
        done: dict[str, Any] = {"rows": list(CHECKS), "examples": list(EXAMPLES), **run(spark, plan)}
        done["written"] = spark.table(plan["table"]).count()
        Path(plan["done"]).write_text(json.dumps(done))
    return 0


if __name__ == "__main__":
    sys.exit(main())
