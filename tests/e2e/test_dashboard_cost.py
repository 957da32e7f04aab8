"""What an open dashboard costs a broker, in instructions, which a busy machine does not change."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("starlette", reason="the extra `dashboard` is not installed")

from aerobee._pure import is_compiled

BENCH = Path(__file__).parents[2] / "bench" / "dashboardcost.py"


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.skipif(shutil.which("valgrind") is None, reason="valgrind counts the instructions")
@pytest.mark.skipif(not is_compiled() or bool(os.environ.get("AEROBEE_PURE")), reason="interpreted, all costs differ")
@pytest.mark.parametrize("kind", ["lists", "tail"])
def test_dashboard_cost_per_message(kind: str) -> None:
    """The lists cost at most 1 % of 5,000 sends a second, a tail at most 2 % of the 1,000 that it follows."""
    done = subprocess.run([sys.executable, str(BENCH), kind], capture_output=True, text=True, check=False)
    print(done.stdout, end="")
    assert done.returncode == 0, done.stdout + done.stderr
