"""The same pipeline on a real Spark standalone cluster: a master and two workers, each a process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

PATIENCE_S = 300


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_pipeline_runs_on_two_workers(cluster: Any, tmp_path: Path) -> None:
    import pyarrow.dataset as ds

    from pyspark_rocketmq.jobs import projects
    from pyspark_rocketmq.jobs.standalone import StandaloneCluster

    topic = cluster.topic("on-a-cluster", queues=4)
    sent = [f"order {n}" for n in range(400)]
    cluster.send(topic, sent)
    projects.create(tmp_path / "p", "table", projects.TemplateValues(topic, "", cluster.namesrv))
    environment = {**os.environ, "NAMESRV_ADDR": cluster.namesrv}
    with StandaloneCluster(workers=2, cores=1) as workers:
        done = subprocess.run(
            [
                sys.executable, "-m", "aerobee", "pipeline", "start", "p", "--available-now", "--json",
                "--master", workers.url, "--conf", "spark.executor.memory=512m",
                "--conf", "spark.driver.host=127.0.0.1",
            ],
            capture_output=True, text=True, timeout=PATIENCE_S, cwd=tmp_path, env=environment, check=False,
        )  # fmt: skip
        ran = sorted(path.parent.parent.name for path in workers.directory.glob("worker-*/app-*/*") if path.is_dir())
    assert done.returncode == 0, done.stderr
    assert sum(json.loads(line)["rows"] for line in done.stdout.splitlines()) == len(sent)
    rows = ds.dataset(
        tmp_path / "p" / "tables" / projects.table_name(topic), format="parquet", ignore_prefixes=["_", "."]
    )
    assert sorted(rows.to_table(columns=["body"])["body"].to_pylist()) == sorted(sent)
    assert ran == ["worker-0", "worker-1"], "an executor ran on each worker"
