"""README's lines of Spark run as printed, twice, in the tests' session."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

README = (Path(__file__).parents[2] / "README.md").read_text()
PRINTED = "localhost:9876"


def test_the_lines_of_spark_run_as_printed(
    spark: Any, cluster: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (code,) = (
        block
        for block in re.findall(r"^```python\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
        if "pyspark_rocketmq" in block
    )
    orders, loud = cluster.topic("orders", queues=1), cluster.topic("loud", queues=1)
    cluster.send(orders, [b"one", b"two"], tags="PAID", keys="42")
    for printed, real in (
        (PRINTED, cluster.namesrv),
        ('"checkpoint"', repr(str(tmp_path / "checkpoint"))),
        ('"orders"', repr(orders)),
        ('"loud"', repr(loud)),
    ):
        assert printed in code
        code = code.replace(printed, real)
    for _ in range(2):
        exec(compile(code, "README.md", "exec"), {})
        assert re.search(r"\|\s*PAID\|\s*2\|", capsys.readouterr().out)
    assert sorted(message.body for message in cluster.messages(loud)) == [b"ONE", b"TWO"]
