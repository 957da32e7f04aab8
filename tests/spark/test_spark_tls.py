"""Spark at a cluster that takes nothing but TLS: written to, read back, asked by `aerobee sql`."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from aerobee.testing.certificates import make_certificate, unavailable
from aerobee.testing.cluster import LocalCluster

PATIENCE_S = 240


def test_rows_go_and_come_over_tls(spark: Any, tmp_path: Path) -> None:
    reason = unavailable()
    if reason:
        pytest.skip(reason)
    own, other = make_certificate(tmp_path), make_certificate(tmp_path, "other")
    settings = {**own.settings(), "tls.server.mode": "enforcing", "tls.enable": "true"}
    with LocalCluster(2, data=tmp_path / "cluster", settings=settings) as cluster:
        cluster.create_topic("orders", 2)
        options = {"nameServer": cluster.namesrv, "topic": "orders", "tlsCa": str(own.cert)}
        rows = spark.range(100).selectExpr("cast(id as string) as body")
        rows.write.format("rocketmq").mode("append").options(**options).save()
        found = spark.read.format("rocketmq").options(**options).load()
        assert sorted(int(row.body) for row in found.select("body").collect()) == list(range(100))
        with pytest.raises(Exception, match="certificate is not trusted"):
            spark.read.format("rocketmq").options(**{**options, "tlsCa": str(other.cert)}).load().count()
        asked = [sys.executable, "-m", "aerobee", "sql", "--json", "select count(*) as n from orders"]
        asked += ["-n", cluster.namesrv, "--tls-ca", str(own.cert), "--master", "local[1]"]
        done = subprocess.run(asked, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout) == {"n": 100}
