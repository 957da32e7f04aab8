"""Runs the Python of the pages in docs/spark as printed, in the session that it is given, classic or Spark Connect.

    python docpages.py PLAN.json

runs it in a Spark Connect session of its own: one process cannot have both kinds. Names and places of the pages are
replaced by those of the test. A streaming query that a block starts is run to the end of its topic.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

PAGES = Path(__file__).parents[2] / "docs" / "spark"
# In this order: a page may use what an earlier one wrote.
NAMES = ("README", "source", "formats", "tables", "sink", "sql", "store", "kafka-names", "connect")
# A block that continues a statement of the text around it, and lines that make another session.
_PART = re.compile(r"\s*\.")
_SESSION = re.compile(r"^(from pyspark_rocketmq.session import .*|spark = (session|connect)\(.*)$", re.MULTILINE)


def blocks(page: str) -> list[str]:
    """Return the Python blocks of a page that are whole."""
    text = (PAGES / f"{page}.md").read_text()
    found = re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return [one for one in found if not _PART.match(one)]


def replaced(code: str, plan: dict[str, Any]) -> str:
    """Return a block with the places of the test."""
    code = _SESSION.sub("", code)
    for printed, real in (
        ("localhost:9876", plan["namesrv"]), ("/data/store", plan["store"]), ("/data", plan["directory"]),
        ('"orders"', f'"{plan["topic"]}"'), ('"totals"', f'"{plan["totals"]}"'), ("version=3", "version=0"),
    ):  # fmt: skip
        code = code.replace(printed, real)
    return code


def given(spark: Any, page: str, plan: dict[str, Any]) -> dict[str, Any]:
    """Return what the text of a page says that the reader has."""
    names: dict[str, Any] = {"spark": spark, "__name__": page}
    reading = spark.read.format("rocketmq").option("nameServer", plan["namesrv"])
    if page in ("sink", "kafka-names"):
        names["df"] = reading.load(plan["topic"]).where("queue_offset < 2")
    if page == "sink":
        stream = spark.readStream.format("rocketmq").options(nameServer=plan["namesrv"], topic=plan["topic"])
        rows = stream.option("startingOffsets", "earliest").load()
        names["stream"] = rows.selectExpr("length(body) total", "'oslo' shop")
    if page == "formats":
        names["totals"] = spark.sql("select 'oslo' shop, cast(12.5 as double) amount")
    return names


def run(spark: Any, plan: dict[str, Any], pages: tuple[str, ...] = NAMES) -> dict[str, int]:
    """Run these pages. Return how many blocks of each were run."""
    done: dict[str, int] = {}
    for page in pages:
        names = given(spark, page, plan)
        for code in blocks(page):
            names.pop("query", None)
            exec(compile(replaced(code, plan), f"{page}.md", "exec"), names)
            query = names.get("query")
            if hasattr(query, "processAllAvailable"):
                query.processAllAvailable()
                query.stop()
            done[page] = done.get(page, 0) + 1
    return done


def main() -> int:
    from aerobee.errors import AerobeeError, InvalidArgumentError
    from pyspark_rocketmq.session import connect
    from pyspark_rocketmq_store import archive

    plan = json.loads(Path(sys.argv[1]).read_text())
    with connect("local[2]", **{"spark.driver.memory": "1g"}) as spark:
        done = run(spark, plan, tuple(page for page in NAMES if page != "tables"))
        try:
            run(spark, plan, ("tables",))
        except AerobeeError as error:
            done["tables refused"] = int("classic API" in str(error))
        reading = spark.read.format("rocketmq").option("nameServer", plan["namesrv"])
        try:
            archive.run(spark, plan["store"], plan["directory"], "broker-a")
        except InvalidArgumentError as error:
            done["refused"] = int("classic API" in str(error))
        done["rows"] = reading.option("columns", "queue_offset").load(plan["topic"]).count()
        Path(plan["done"]).write_text(json.dumps(done))
    return 0


if __name__ == "__main__":
    sys.exit(main())
