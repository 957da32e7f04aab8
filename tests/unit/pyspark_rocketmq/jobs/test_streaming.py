"""What `pipeline start` says of a query's progress, and how it loads a file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pyspark_rocketmq.jobs import streaming
from pyspark_rocketmq.jobs.projects import ProjectError


def offset(first: int, second: int) -> str:
    return json.dumps({"v": 1, "offsets": {"orders": {"broker-a": {"0": first, "1": second}}}})


def test_progress_counts_what_is_left() -> None:
    raw = {
        "batchId": 3,
        "numInputRows": 1500,
        "processedRowsPerSecond": 750.0,
        "durationMs": {"triggerExecution": 2000},
        "sources": [
            {"endOffset": offset(5, 5), "latestOffset": offset(10, 5)},
            {"endOffset": "7", "latestOffset": None},
        ],
    }
    progress = streaming.progress_of("orders", raw)
    assert progress == streaming.BatchProgress("orders", 3, 1500, 750.0, 2000, 5)
    assert progress.line() == "orders: batch 3, 1,500 rows in 2.0 s (750/s), 5 behind"
    assert streaming.progress_of("x", {}).behind is None
    assert streaming.behind(offset(1, 1), {"offsets": {"orders": {"broker-b": {"0": 9}}}}) == 0


def test_a_file_without_the_function_is_refused_in_words(tmp_path: Path) -> None:
    with pytest.raises(ProjectError, match="no file"):
        streaming.load(tmp_path / "none.py")
    (tmp_path / "empty.py").write_text("x = 1\n")
    with pytest.raises(ProjectError, match=r"defines no function stream\(spark\)"):
        streaming.load(tmp_path / "empty.py")
    (tmp_path / "bad.py").write_text("import no_such_module_here\n")
    with pytest.raises(ProjectError, match="no_such_module_here"):
        streaming.load(tmp_path / "bad.py")
    (tmp_path / "number.py").write_text("def stream(spark):\n    return 7\n")
    with pytest.raises(ProjectError, match="returned int for number"):
        streaming.writers(streaming.load(tmp_path / "number.py"), None, "number")  # type: ignore[arg-type]


def test_a_mistake_of_the_project_is_named_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "cut.py").write_text("def stream(spark):\n    retrun (\n")
    with pytest.raises(ProjectError, match=r"^cut\.py, line 2: "):
        streaming.load(tmp_path / "cut.py")
    (tmp_path / "late.py").write_text("def stream(spark):\n    return {}['orders']\n")
    with pytest.raises(ProjectError, match=r"^late\.py, line 2: KeyError: 'orders'$"):
        streaming.writers(streaming.load(tmp_path / "late.py"), None, "late")  # type: ignore[arg-type]
