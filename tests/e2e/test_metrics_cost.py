"""Test 33: what metrics cost a message, in instructions, which a busy machine does not change."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from aerobee._pure import is_compiled

BENCH = Path(__file__).parents[2] / "bench" / "metricscost.py"


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.skipif(shutil.which("valgrind") is None, reason="valgrind counts the instructions")
@pytest.mark.skipif(not is_compiled() or bool(os.environ.get("AEROBEE_PURE")), reason="interpreted, all costs differ")
@pytest.mark.parametrize("kind", ["alone", "pipelined", "pull"])
def test_metrics_no_cost_per_message(kind: str) -> None:
    """A send alone, a send among others and a pull take at most 1 % more instructions with metrics."""
    done = subprocess.run([sys.executable, str(BENCH), kind], capture_output=True, text=True, check=False)
    print(done.stdout, end="")
    assert done.returncode == 0, done.stdout + done.stderr
