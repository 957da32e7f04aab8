"""Pipeline projects against real brokers: both templates, the command, and Ctrl-C."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from aerobee.model.message import Message

PATIENCE_S = 240


def environment(namesrv: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("NAMESRV", "AEROBEE_LOG"))}
    return {**kept, "NAMESRV_ADDR": namesrv}


def aerobee(namesrv: str, *words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "aerobee", "pipeline", *words], capture_output=True, text=True, timeout=PATIENCE_S,
        env=environment(namesrv), cwd=cwd, check=False,
    )  # fmt: skip


def run_now(spark: Any, project: Any) -> None:
    """What `pipeline start --available-now` does, in this process's session."""
    from pyspark_rocketmq.jobs import streaming

    named = streaming.writers(streaming.load(project.directory / "stream.py"), spark, "stream")
    queries = streaming.start(named, str(project.claim("start") / "checkpoints"), available_now=True)
    list(streaming.watch(queries, lambda: False))


def test_a_topic_becomes_a_parquet_table_each_row_once(
    spark: Any, cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pyspark_rocketmq.jobs import projects

    monkeypatch.setenv("NAMESRV_ADDR", cluster.namesrv)
    topic = cluster.topic("to-table")
    projects.create(tmp_path / "p", "table", projects.TemplateValues(topic, "", cluster.namesrv))
    project = projects.Project(tmp_path / "p")
    table = project.tables / projects.table_name(topic)
    sent = [f"order {n}" for n in range(30)]
    for part in (sent[:20], sent[20:]):
        cluster.send(topic, part, tags="PAID", keys="k", properties={"shop": "oslo"})
        run_now(spark, project)
    rows = spark.read.parquet(str(table)).selectExpr("body", "tags", "properties['shop']", "date").collect()
    assert sorted(row[0] for row in rows) == sorted(sent)
    assert {(row[1], row[2]) for row in rows} == {("PAID", "oslo")}


def shorten(rows: Path) -> None:
    """Windows close by the stream's own time: with short ones a test need not wait a minute."""
    text = rows.read_text().replace('WINDOW = "1 minute"', 'WINDOW = "1 second"')
    rows.write_text(text.replace('LATE = "10 seconds"', 'LATE = "0 seconds"'))


def test_a_topic_is_counted_by_window_to_another_topic(
    spark: Any, cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pyspark_rocketmq.jobs import projects

    monkeypatch.setenv("NAMESRV_ADDR", cluster.namesrv)
    topic, target = cluster.topic("to-count"), cluster.topic("counted")
    projects.create(tmp_path / "p", "aggregate", projects.TemplateValues(topic, target, cluster.namesrv))
    shorten(tmp_path / "p" / "rows.py")
    cluster.send(topic, ["abc"] * 6, tags="PAID")
    cluster.send(topic, ["abcd"] * 2, tags="REFUND")
    cluster.advance(seconds=5)
    cluster.send(topic, ["later"], tags="PAID")
    run_now(spark, projects.Project(tmp_path / "p"))
    found = [json.loads(message.body) for message in cluster.messages(target)]
    for tag, messages, size in (("PAID", 6, 18), ("REFUND", 2, 8)):
        mine = [one for one in found if one["tags"] == tag]
        assert sum(one["messages"] for one in mine) == messages
        assert sum(one["bytes"] for one in mine) == size
    assert all(
        isinstance(message, Message) and message.keys.endswith(message.tags) for message in cluster.messages(target)
    )


def test_start_shows_progress_and_ctrl_c_stops_it(cluster: Any, tmp_path: Path) -> None:
    topic = cluster.topic("always-on")
    made = aerobee(cluster.namesrv, "new", "p", "-t", topic, cwd=tmp_path)
    assert made.returncode == 0 and "pipeline start p" in made.stdout, made.stderr
    cluster.send(topic, ["a", "b", "c"])
    process = subprocess.Popen(
        [sys.executable, "-m", "aerobee", "pipeline", "start", "p", "--json", "--master", "local[1]"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment(cluster.namesrv), cwd=tmp_path,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        rows = 0
        while rows < 3:
            line = process.stdout.readline()
            assert line, process.stderr.read() if process.stderr else ""
            rows += json.loads(line)["rows"]
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=PATIENCE_S)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 130
    assert errors.strip() == "stopped; the next start continues from here"
    assert {path.name for path in tmp_path.iterdir()} == {"p"}
    assert {"derby.log", "spark-warehouse", "metastore_db"}.isdisjoint(path.name for path in (tmp_path / "p").iterdir())
    refused = aerobee(cluster.namesrv, "run", "p", cwd=tmp_path)
    assert refused.returncode == 2 and "used with `start`" in refused.stderr


@pytest.mark.slow
def test_declarative_run_is_incremental_and_refresh_begins_anew(cluster: Any, tmp_path: Path) -> None:
    import pyarrow.dataset as ds

    topic = cluster.topic("declared")
    table = tmp_path / "p" / "tables" / topic.replace("-", "_")
    assert aerobee(cluster.namesrv, "new", "p", "-t", topic, cwd=tmp_path).returncode == 0
    for count in (3, 5):
        cluster.send(topic, [f"m{count}"] * (3 if count == 3 else 2))
        done = aerobee(cluster.namesrv, "run", "p", "--master", "local[2]", cwd=tmp_path)
        assert done.returncode == 0 and "COMPLETED" in done.stdout, done.stdout + done.stderr
        assert ds.dataset(table, format="parquet", ignore_prefixes=["_", "."]).count_rows() == count
    again = aerobee(cluster.namesrv, "refresh", "p", topic.replace("-", "_"), "--yes", cwd=tmp_path)
    assert again.returncode == 0 and not table.exists(), again.stderr
    done = aerobee(cluster.namesrv, "run", "p", "--master", "local[2]", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert ds.dataset(table, format="parquet", ignore_prefixes=["_", "."]).count_rows() == 5
    (tmp_path / "p" / "transformations" / "bad.py").write_text("raise KeyError('amount')\n")
    bad = aerobee(cluster.namesrv, "run", "p", "--master", "local[2]", cwd=tmp_path)
    assert bad.returncode == 1 and bad.stderr.strip() == "error: KeyError: 'amount'"


@pytest.mark.slow
def test_declarative_run_writes_closed_windows_to_a_topic(cluster: Any, tmp_path: Path) -> None:
    topic, target = cluster.topic("declared-count"), cluster.topic("declared-totals")
    words = ("new", "p", "-t", topic, "--template", "aggregate", "--to", target)
    assert aerobee(cluster.namesrv, *words, cwd=tmp_path).returncode == 0
    shorten(tmp_path / "p" / "rows.py")
    cluster.send(topic, ["abc"] * 4, tags="PAID")
    cluster.advance(seconds=5)
    cluster.send(topic, ["later"], tags="PAID")
    done = aerobee(cluster.namesrv, "run", "p", "--master", "local[2]", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    found = [json.loads(message.body) for message in cluster.messages(target)]
    assert sum(one["messages"] for one in found) == 4


FAILING = """
def stream(spark):
    rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 1).option("startTimestamp", 1000).load()
    return rows.selectExpr("raise_error('no amount')").writeStream.format("noop")
"""


def test_a_failed_query_is_one_line(spark: Any, tmp_path: Path) -> None:
    from pyspark_rocketmq.jobs import streaming
    from pyspark_rocketmq.jobs.failures import JobFailedError

    (tmp_path / "failing.py").write_text(FAILING)
    named = streaming.writers(streaming.load(tmp_path / "failing.py"), spark, "failing")
    queries = streaming.start(named, str(tmp_path / "checkpoints"))
    with pytest.raises(JobFailedError) as told:
        list(streaming.watch(queries, lambda: False))
    streaming.stop(queries)
    assert told.value.message == "failing: no amount"
