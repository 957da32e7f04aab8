"""Every example of examples/spark does what it says, on small data."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from aerobee.model.message import Message

EXAMPLES = Path(__file__).parents[2] / "examples" / "spark"
PATIENCE_S = 240


def example(name: str, monkeypatch: Any) -> ModuleType:
    """Loaded by name, importable by Spark's workers too: cloudpickle sends what it finds in __main__ or by value."""
    from pyspark import cloudpickle

    spec = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)
    spec.loader.exec_module(module)
    cloudpickle.register_pickle_by_value(module)
    return module


def test_dead_letters(spark: Any, cluster: Any, monkeypatch: Any) -> None:
    module = example("dead_letters", monkeypatch)
    cluster.create_topic("%DLQ%example-billing", 1)
    letters = [("PAID", "orders", "a"), ("PAID", "orders", "b"), ("REFUND", "orders", "c")]
    cluster.send(
        "%DLQ%example-billing",
        [
            Message(
                topic="%DLQ%example-billing",
                body=body.encode(),
                tags=tag,
                system_properties={"DLQ_ORIGIN_TOPIC": origin},
            )
            for tag, origin, body in letters
        ],
    )
    rows = module.summary(module.dead_letters(spark, cluster.namesrv, "example-billing")).collect()
    assert sum(row.letters for row in rows) == 3
    assert (rows[0].tags, rows[0].example in ("a", "b")) == ("PAID", True)


def test_enrichment(spark: Any, cluster: Any, monkeypatch: Any, tmp_path: Path) -> None:
    module = example("enrichment", monkeypatch)
    topic, target = cluster.topic("enrich"), cluster.topic("enriched")
    customers = spark.createDataFrame([(1, "Ada", "NO"), (2, "Bo", "SE")], "customer int, name string, country string")
    cluster.send(topic, [json.dumps({"customer": n % 3, "amount": float(n)}) for n in range(9)], tags="PAID")
    rows = module.enriched(spark, cluster.namesrv, topic, customers)
    writer = module.to_topic(rows, cluster.namesrv, target, str(tmp_path / "state"))
    writer.trigger(availableNow=True).start().awaitTermination()
    found = [json.loads(message.body) for message in cluster.messages(target)]
    names = {0: None, 1: "Ada", 2: "Bo"}
    assert sorted(one["amount"] for one in found) == [float(n) for n in range(9)]
    assert all(one.get("name") == names[one["customer"]] for one in found)


def test_sessions(spark: Any, cluster: Any, monkeypatch: Any, tmp_path: Path) -> None:
    module = example("sessions", monkeypatch)
    topic = cluster.topic("clicks", queues=1)
    minute = 60_000
    noon = 1_700_000_000_000
    clicks = {"ada": [0, 1000, 5000, 10 * minute, 30 * minute], "bo": [2000, 3000, 30 * minute]}
    for user, times in clicks.items():
        cluster.send(topic, [str(noon + time) for time in times], keys=user)
    found = module.sessions(spark, cluster.namesrv, topic)
    state = str(tmp_path / "state")
    writer = found.writeStream.format("memory").queryName("sessions_found").outputMode("append")
    writer.option("checkpointLocation", state).trigger(availableNow=True).start().awaitTermination()
    rows = {
        (row.user, row.first_ms - noon, row.last_ms - noon, row.clicks)
        for row in spark.table("sessions_found").collect()
    }
    assert {("ada", 0, 5000, 3), ("ada", 10 * minute, 10 * minute, 1), ("bo", 2000, 3000, 2)} <= rows


def test_the_pipeline_to_copy(fresh_cluster: Any, spark: Any, monkeypatch: Any, tmp_path: Path) -> None:
    from deltalake import DeltaTable

    fresh_cluster.create_topic("orders", 2)
    fresh_cluster.create_topic("totals", 2)
    module = example("orders_pipeline", monkeypatch)
    for round_ in range(2):
        orders = [{"id": n, "shop": ("oslo", "rome")[n % 2], "amount": n + 0.5} for n in range(10)]
        fresh_cluster.send("orders", [json.dumps(one) for one in orders])
        for writer in module.pipeline(spark, fresh_cluster.namesrv, str(tmp_path)):
            writer.trigger(availableNow=True).start().awaitTermination()
        rows = DeltaTable(str(tmp_path / "orders")).to_pyarrow_table().to_pylist()
        assert sorted(row["id"] for row in rows) == sorted([*range(10)] * (round_ + 1))
        bodies = [json.loads(message.body) for message in fresh_cluster.messages("totals")]
        assert {"shop": "oslo", "amount": 22.5 * (round_ + 1)} in bodies and len(bodies) == 2 * (round_ + 1)
    assert len((EXAMPLES / "orders_pipeline.py").read_text().splitlines()) <= 27, "it is shown as a short one"


def test_notebook(tmp_path: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("NAMESRV")}
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / "notebook.py")], capture_output=True, text=True, timeout=PATIENCE_S,
        cwd=tmp_path, env=environment, check=False,
    )  # fmt: skip
    assert "Spark == Python: True" in done.stdout, done.stdout + done.stderr
    assert done.returncode == 0 and list(tmp_path.iterdir()) == []
