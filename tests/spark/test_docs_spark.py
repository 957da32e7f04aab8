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
PATIENCE_S = 880
# Dozens of queries, each of which starts Pythons: minutes on a loaded machine.
LONG = pytest.mark.timeout(900)
ROWS = 31
NOON_MS = 1_700_000_000_000


@pytest.fixture
def plan(segmented_cluster: Any, tmp_path: Path, wait_synced: Callable[[Path], None]) -> dict[str, Any]:
    """What the pages need: a topic with JSON, one for totals, a trace, and closed segments."""
    from pyspark_rocketmq.columns.schema import DEFAULT_SCHEMA

    shop = segmented_cluster
    topic, totals, more = (
        shop.topic("doc-orders"),
        shop.topic("doc-totals"),
        shop.topic("doc-more"),
    )
    body = '{"id":%d,"amount":%d.5,"customer":{"city":"oslo"}}'
    shop.send(topic, [Message(topic, (body % (n, n)).encode(), tags="PAID", keys=f"k{n}") for n in range(ROWS - 1)])
    with Producer(shop.namesrv, group="traced", trace=True) as producer:
        producer.send(topic, (body % (ROWS, ROWS)).encode(), tags="NEW")
    shop.send(more, [os.urandom(50_000) for _ in range(80)])
    clicks, group = shop.topic("doc-clicks", queues=1), f"{topic}-billing"
    letters = f"%DLQ%{group}"
    shop.create_topic(letters, 1)
    shop.send(letters, ["one", "two"], tags="PAID")
    for minute in (0, 0, 30):
        shop.send(clicks, [str(NOON_MS + minute * 60_000)], keys="ada")
    for broker in range(2):
        wait_synced(shop.store_path(broker))
    return {
        "namesrv": shop.namesrv, "topic": topic, "totals": totals, "rows": ROWS, "directory": str(tmp_path / "data"),
        "store": str(shop.store_path(0)), "broker": shop.broker_name(0), "archive": str(tmp_path / "data" / "archive"),
        "clicks": clicks, "enriched": shop.topic("doc-enriched"), "group": group, "noon_ms": NOON_MS,
        "table": topic.replace("-", "_"), "columns": DEFAULT_SCHEMA.names, "done": str(tmp_path / "done.json"),
    }  # fmt: skip


def docpages_module() -> Any:
    sys.path.insert(0, str(HERE))
    try:
        import docpages
    finally:
        sys.path.remove(str(HERE))
    return docpages


def check_totals(plan: dict[str, Any], shop: Any) -> None:
    bodies = sorted(message.body for message in shop.messages(plan["totals"]))
    assert b'{"shop":"oslo","amount":12.5}' in bodies and len(bodies) > ROWS


def test_no_page_is_left_out() -> None:
    docpages = docpages_module()
    pages = {path.stem for path in docpages.PAGES.glob("*.md")}
    assert {page for page in pages if docpages.blocks(page)} == set(docpages.NAMES)
    for page, call in docpages.CLASSIC.items():
        assert sum(call in code for code in docpages.blocks(page)) == 1, page
        assert docpages.REFUSAL in (docpages.PAGES / f"{page}.md").read_text(), page
    assert set(docpages.rows_of_table()) == set(docpages.CHECKS)


@LONG
def test_the_pages_run_in_the_classic_api(spark: Any, segmented_cluster: Any, plan: dict[str, Any]) -> None:
    from deltalake import DeltaTable

    docpages = docpages_module()
    try:
        assert docpages.run(spark, plan) == {page: len(docpages.blocks(page)) for page in docpages.NAMES}
        assert spark.table(plan["table"]).count() == len(segmented_cluster.messages(plan["topic"]))
    finally:
        spark.sql(f"drop table if exists {plan['table']}")
    check_totals(plan, segmented_cluster)
    assert DeltaTable(f"{plan['directory']}/orders").to_pyarrow_table().num_rows == ROWS


@LONG
def test_the_pages_run_in_spark_connect(
    spark: Any, segmented_cluster: Any, plan: dict[str, Any], tmp_path: Path
) -> None:
    from pyspark_rocketmq_store import archive

    docpages = docpages_module()
    assert archive.run(spark, plan["store"], plan["archive"], plan["broker"]), "the pages read an archive"
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(plan))
    done = subprocess.run(
        [sys.executable, str(HERE / "docpages.py"), str(path)], capture_output=True, text=True, timeout=PATIENCE_S,
        cwd=tmp_path, env={**os.environ, "TMPDIR": str(tmp_path)}, check=False,
    )  # fmt: skip
    said = [line for line in (done.stdout + done.stderr).splitlines() if not line.startswith("\tat ")]
    assert done.returncode == 0, "\n".join(said[-100:])
    ran = json.loads(Path(plan["done"]).read_text())
    assert ran.pop("written") == len(segmented_cluster.messages(plan["topic"]))
    assert ran.pop("rows") == list(docpages.CHECKS)
    examples = {path.stem for path in (HERE.parents[1] / "examples" / "spark").glob("*.py")}
    # The notebook makes a session of its own.
    assert set(ran.pop("examples")) == examples - {"notebook"}
    assert len(segmented_cluster.messages(plan["enriched"])) == ROWS
    expected = {page: len(docpages.blocks(page)) for page in docpages.NAMES}
    for page in docpages.CLASSIC:
        expected |= {page: expected[page] - 1, f"{page} refused": 1}
    assert ran == expected
    check_totals(plan, segmented_cluster)


@pytest.mark.parametrize("words", [("sql", "select 1"), ("pipeline", "start"), ("archive", "run")])
def test_commands_refuse_a_server_of_spark_connect(
    words: tuple[str, ...], plan: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    """Before a JVM starts, which takes seconds."""
    from aerobee.cli.main import main
    from pyspark_rocketmq.jobs import projects

    monkeypatch.setenv("NAMESRV_ADDR", plan["namesrv"])
    projects.create(tmp_path / "p", "table", projects.TemplateValues(plan["topic"], "", plan["namesrv"]))
    more = {"start": (str(tmp_path / "p"),), "run": (plan["store"], plan["archive"], "-b", plan["broker"])}
    with pytest.raises(SystemExit) as left:
        main([*words, *more.get(words[1], ()), "--master", "sc://127.0.0.1:15002"])
    assert left.value.code == 1
    assert "needs Spark's classic API" in capsys.readouterr().err


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
