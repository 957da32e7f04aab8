"""What the check of a signed send costs, and what it may cost."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from aerobee._pure import is_compiled

BENCH = Path(__file__).parents[3] / "bench" / "access.py"


@pytest.mark.slow
@pytest.mark.skipif(not is_compiled(), reason="the limits are those of compiled code")
def test_signature_cost() -> None:
    """Test 24: at most 1.5 us a check, and sends at 0.65 of the rate without. CPU time, as the machine is shared."""
    done = subprocess.run([sys.executable, str(BENCH)], capture_output=True, text=True, timeout=300, check=True)
    print(done.stdout)
    checks = [float(found) for found in re.findall(r"header +([\d.]+) us", done.stdout)]
    (ratio,) = re.findall(r"([\d.]+)x", done.stdout)
    assert len(checks) == 2
    assert max(checks) <= 1.5, done.stdout
    assert 1 / float(ratio) >= 0.65, done.stdout
