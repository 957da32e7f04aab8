"""Each example runs as printed, with warnings as errors."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

EXAMPLES = Path(__file__).parents[3] / "examples"

SAID = {
    "produce.py": "of queue",
    "produce_sync.py": "100 more are stored",
    "produce_many.py": "batch at offsets",
    "ordered.py": "one queue: True\nchosen: 0",
    "delayed.py": "cancelled ",
    "transaction.py": "committed\nrolled back",
    "request.py": "answer: pong",
    "failures.py": "stored",
    "secured.py": "sent",
}


@pytest.mark.parametrize("name", SAID)
def test_an_example_runs(served_cluster: Any, name: str) -> None:
    served_cluster.brokers[0].replies = True
    done = subprocess.run(
        [sys.executable, "-W", "error", str(EXAMPLES / name)],
        env={**os.environ, "NAMESRV_ADDR": served_cluster.namesrv},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert SAID[name] in done.stdout
