"""Pipeline projects: made from templates, checked, and their state kept apart."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from aerobee.errors import InvalidArgumentError
from pyspark_rocketmq.jobs import pipelines
from pyspark_rocketmq.jobs.projects import (
    STREAM_ONLY,
    TEMPLATES,
    Project,
    ProjectError,
    TemplateValues,
    create,
    table_name,
)

WANTED = TemplateValues("my-orders", "my-orders-totals", "127.0.0.1:9876")


@pytest.mark.parametrize("template", TEMPLATES)
def test_a_template_becomes_a_project_that_parses_and_has_no_problem(tmp_path: Path, template: str) -> None:
    written = create(tmp_path / "p", template, WANTED)
    assert {path.name for path in written} >= {"rows.py", "stream.py", ".gitignore"}
    assert (tmp_path / "p" / "spark-pipeline.yml").exists() == (template not in STREAM_ONLY)
    for path in written:
        assert "$" not in path.read_text()
        if path.suffix == ".py":
            ast.parse(path.read_text())
    assert Project(tmp_path / "p").problems() == []
    with pytest.raises(InvalidArgumentError, match="not empty"):
        create(tmp_path / "p", template, WANTED)


def test_table_names_need_no_back_ticks() -> None:
    assert [table_name(n) for n in ("Orders", "%RETRY%a-b", "9x", "%")] == ["orders", "retry_a_b", "t_9x", "topic"]


TWO_FLOWS = """
from pyspark import pipelines as dp
dp.create_streaming_table("silver")
@dp.append_flow(target="silver")
def one(): ...
@dp.append_flow(target="silver")
def two(): ...
dp.create_sink("out", "rocketmq", {})
@dp.append_flow(target="out")
def three(): ...
@dp.append_flow(target="out")
def four(): ...
@dp.table(name="gold")
def five(): ...
"""


def test_two_flows_on_one_table_are_refused_and_two_on_a_sink_are_not(tmp_path: Path) -> None:
    create(tmp_path / "p", "table", WANTED)
    project = Project(tmp_path / "p")
    (tmp_path / "p/transformations/more.py").write_text(TWO_FLOWS)
    (found,) = project.problems()
    assert "table silver has 2 flows, one (transformations/more.py) and two" in found
    (tmp_path / "p/transformations/x.sql").write_text("CREATE FLOW f AS INSERT INTO gold BY NAME SELECT 1")
    assert any("table gold has 2 flows" in one for one in project.problems())
    (tmp_path / "p/transformations/bad.py").write_text("def (")
    with pytest.raises(ProjectError, match=r"bad\.py, line 1"):
        project.problems()


def test_start_and_run_keep_apart_and_refresh_forgets(tmp_path: Path) -> None:
    create(tmp_path / "p", "table", WANTED)
    project = Project(tmp_path / "p")
    assert project.leavings() == []
    (project.claim("start") / "checkpoints" / "my_orders").mkdir(parents=True)
    (project.tables / "my_orders").mkdir(parents=True)
    (project.tables / "other").mkdir()
    with pytest.raises(ProjectError, match="used with `start`"):
        project.claim("run")
    (project.storage() / "_checkpoints" / "spark_catalog" / "default" / "x" / "x").mkdir(parents=True)
    assert [path.parent.name for path in project.leavings(("x",))] == ["default"]
    assert project.known() == ["my_orders", "other", "x"]
    project.refresh(("my_orders",))
    assert [path.name for path in project.tables.iterdir()] == ["other"]
    assert not (project.state("start") / "checkpoints" / "my_orders").exists()
    project.refresh()
    assert not project.tables.exists() and not (project.directory / "state").exists()
    project.claim("run")
    assert (project.directory / "rows.py").exists()


def test_the_projects_own_name_server_holds_unless_another_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)
    create(tmp_path / "p", "table", WANTED)
    project = Project(tmp_path / "p")
    assert "NAMESRV_ADDR" not in pipelines.environment(project, None)
    assert pipelines.environment(project, "other:9876")["NAMESRV_ADDR"] == "other:9876"


def test_a_failed_run_is_told_by_the_flow_that_failed() -> None:
    output = (
        "2026-11-15 16:06:43: Failed to resolve flow due to upstream failure: 'spark_catalog.default.by_tag'.\n"
        "Error: Failed to read dataset 'spark_catalog.default.orders'.\n"
        "2026-11-15 16:06:43: Failed to resolve flow: 'spark_catalog.default.orders'.\n"
        "Error: [UNRESOLVED_COLUMN] A column with name `boddy` cannot be resolved. SQLSTATE: 42703; line 1 pos 5;\n"
        "'Project [message_id#7]\n\n"
        "Traceback (most recent call last):\n  File 'cli.py', line 450\n"
        "pyspark.errors.exceptions.connect.AnalysisException: \nFailed to resolve flows in the pipeline.\n"
    )
    said = pipelines.reason(output)
    assert said.startswith("Failed to resolve flow: 'orders': A column with name `boddy` cannot be resolved")
    assert "\n" not in said
    assert "15002" in pipelines.reason("java.io.IOException: Failed to bind to address 0.0.0.0/0.0.0.0:15002\n")
