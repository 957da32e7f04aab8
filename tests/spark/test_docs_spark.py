"""The pages of docs/spark run as printed, in the classic API and in Spark Connect; the notebook in a Jupyter kernel."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from aerobee.model.message import Message
from aerobee.sync import Producer

HERE = Path(__file__).parent
PATIENCE_S = 280


@pytest.fixture
def plan(cluster: Any, tmp_path: Path, wait_synced: Callable[[Path], None]) -> dict[str, Any]:
    """What the pages need: a topic with JSON, one for totals, and a trace."""
    topic, totals = cluster.topic("doc-orders"), cluster.topic("doc-totals")
    body = '{"id":%d,"amount":%d.5,"customer":{"city":"oslo"}}'
    cluster.send(topic, [Message(topic, (body % (n, n)).encode(), tags="PAID", keys=f"k{n}") for n in range(30)])
    with Producer(cluster.namesrv, group="traced", trace=True) as producer:
        producer.send(topic, (body % (30, 30)).encode(), tags="NEW")
    for broker in range(2):
        wait_synced(cluster.store_path(broker))
    return {
        "namesrv": cluster.namesrv, "topic": topic, "totals": totals, "directory": str(tmp_path / "data"),
        "store": str(cluster.store_path(0)), "done": str(tmp_path / "done.json"),
    }  # fmt: skip


def check(plan: dict[str, Any], done: dict[str, int], cluster: Any) -> None:
    docpages = docpages_module()
    assert done == {page: len(docpages.blocks(page)) for page in docpages.NAMES if page in done}
    assert set(docpages.NAMES) - set(done) <= {"tables"}
    bodies = sorted(message.body for message in cluster.messages(plan["totals"]))
    assert b'{"shop":"oslo","amount":12.5}' in bodies and len(bodies) > 31


def docpages_module() -> Any:
    sys.path.insert(0, str(HERE))
    try:
        import docpages
    finally:
        sys.path.remove(str(HERE))
    return docpages


def test_the_pages_run_in_the_classic_api(spark: Any, cluster: Any, plan: dict[str, Any]) -> None:
    from deltalake import DeltaTable

    done = docpages_module().run(spark, plan)
    check(plan, done, cluster)
    assert "tables" in done and DeltaTable(f"{plan['directory']}/orders").to_pyarrow_table().num_rows == 31


def test_the_pages_run_in_spark_connect(cluster: Any, plan: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(plan))
    done = subprocess.run(
        [sys.executable, str(HERE / "docpages.py"), str(path)], capture_output=True, text=True, timeout=PATIENCE_S,
        cwd=tmp_path, env={**os.environ, "TMPDIR": str(tmp_path)}, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-6000:]
    ran = json.loads(Path(plan["done"]).read_text())
    assert ran.pop("rows") > 30 and ran.pop("refused") == 1 and ran.pop("tables refused") == 1
    check(plan, ran, cluster)


def test_the_notebook_runs_in_a_jupyter_kernel(tmp_path: Path) -> None:
    client = pytest.importorskip("nbclient")
    import nbformat

    notebook = nbformat.read(HERE.parents[1] / "examples" / "spark" / "notebook.ipynb", as_version=4)
    client.NotebookClient(notebook, timeout=PATIENCE_S, kernel_name="python3", resources={}).execute(cwd=str(tmp_path))
    said = "".join(
        output.get("text", "") for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs
    )
    assert "Spark == Python: True" in said and "|     NO|" in said
    assert not list(tmp_path.iterdir())


def test_the_notebook_is_the_script() -> None:
    """The notebook is made from notebook.py by tools/notebook.py; both must say the same."""
    sys.path.insert(0, str(HERE.parents[1] / "tools"))
    try:
        import notebook
    finally:
        sys.path.remove(str(HERE.parents[1] / "tools"))
    examples = HERE.parents[1] / "examples" / "spark"
    assert (examples / "notebook.ipynb").read_text() == notebook.made((examples / "notebook.py").read_text())
