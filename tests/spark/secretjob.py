"""A Spark application that is given secrets in every way, and writes down everything that it can show of itself.

    python secretjob.py PLAN.json

The secrets come on standard input, so that none of them is in the plan or on the command line. The plan names the name
server, the CA, the directory for what is shown and where Spark keeps its event log and checkpoints. The second line of
standard output says that the queries are done.
"""

from __future__ import annotations

import json
import sys
import traceback
import urllib.request
from pathlib import Path
from typing import Any


def pages_of(spark: Any) -> dict[str, str]:
    """Return the pages of Spark's UI, also as JSON."""
    address = spark.sparkContext.uiWebUrl
    places = ["environment/", "SQL/", "StreamingQuery/", "jobs/", "stages/"]
    rest = f"api/v1/applications/{spark.sparkContext.applicationId}"
    places += [f"{rest}/{name}" for name in ("environment", "sql?details=true&planDescription=true", "jobs", "stages")]
    found = {}
    for place in places:
        with urllib.request.urlopen(f"{address}/{place}", timeout=60) as answer:
            found[place] = answer.read().decode()
    return found


def main() -> None:
    plan = json.loads(Path(sys.argv[1]).read_text())
    secrets = json.loads(sys.stdin.readline())
    from pyspark_rocketmq.session import session

    shown = Path(plan["shown"])
    spark = session(
        "secrets", "local[2]",
        **{
            "spark.eventLog.enabled": "true", "spark.eventLog.dir": plan["events"], "spark.ui.enabled": "true",
            "spark.ui.port": "0", "spark.eventLog.compress": "false",
        },
    )  # fmt: skip
    own = {"nameServer": plan["namesrv"], "tlsCa": plan["ca"], "topic": plan["source"], **secrets["options"]}
    by_profile = {"profile": "spark", "topic": plan["source"]}

    rows = spark.range(20).selectExpr("cast(id as string) as body")
    rows.write.format("rocketmq").mode("append").options(**own).save()
    texts = []
    for options in (own, by_profile):
        frame = spark.read.format("rocketmq").options(**options).load()
        frame.createOrReplaceTempView("orders")
        assert frame.select("body").distinct().count() == 20
        query = frame._jdf.queryExecution()
        texts += [query.toString(), query.logical().toJSON(), str(frame.inputFiles)]
        texts.append(spark.sql("explain extended select body from orders").collect()[0][0])
    spark.sql(
        "create temporary view secret_view using rocketmq options ("
        + ", ".join(f"{key} '{value}'" for key, value in own.items())
        + ")"
    )
    texts += [str(row) for row in spark.sql("describe extended secret_view").collect()]
    reading = spark.readStream.format("rocketmq").options(**own, startingOffsets="earliest").load()
    writing = reading.selectExpr("body").writeStream.format("rocketmq").options(**{**own, "topic": plan["target"]})
    query = writing.option("checkpointLocation", plan["checkpoint"]).trigger(availableNow=True).start()
    query.awaitTermination()
    texts += [str(query.lastProgress), query._jsq.explainInternal(True)]
    for broken in ({"secretKey": ""}, {"nameServr": "x"}, {"secretKey": secrets["wrong"]}):
        try:
            spark.read.format("rocketmq").options(**{**own, **broken}).load().count()
        except Exception:  # noqa: BLE001 - whatever it is, it must not show a secret
            texts.append(traceback.format_exc())
        else:
            raise AssertionError(f"{sorted(broken)} was taken")
    for name, page in pages_of(spark).items():
        (shown / f"{name.replace('/', '-').replace('?', '-')}.txt").write_text(page)
    (shown / "texts.txt").write_text("\n".join(texts))
    spark.stop()
    sys.stdout.write("done\n")


if __name__ == "__main__":
    main()
