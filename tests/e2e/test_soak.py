"""A small sample of `make soak`: every kind of traffic runs, everything sent is received, and the table is printed."""

from __future__ import annotations

import subprocess
import sys

import pytest

from aerobee.testing.commands import environment
from aerobee.testing.soak import MemoryLook, grown

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="memory is read from /proc")
MIB = 1 << 20


def test_a_short_soak() -> None:
    words = [sys.executable, "-m", "aerobee.testing.soak", "--minutes", "0.2", "--rate", "60", "--allowance-mib", "32"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=170, env=environment(), check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "soak: memory is flat, and every message came" in done.stdout
    assert all(f"{part}: " in done.stdout for part in ("pushed", "popped", "by gRPC", "bounded", "comers"))


def test_memory_that_grows_is_told() -> None:
    looks = [
        MemoryLook(float(number), {"broker": (50 + number) * MIB, "clients": 40 * MIB}, {}) for number in range(16)
    ]
    assert grown(looks, 8 * MIB) == ["the memory of the broker grew by 12.0 MiB"]
    assert grown(looks, 13 * MIB) == []
