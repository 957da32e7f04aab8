"""Buffers of megabytes, made and freed again and again, are made of the same pages."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

PROGRAM = """
import resource, sys
from aerobee.runtime.process import keep_freed_memory
if sys.argv[1] == "kept":
    keep_freed_memory()
def work():
    for _ in range(20):
        one, other = bytearray(8 << 20), bytearray(8 << 20)
work()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
work()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def faults(how: str) -> int:
    done = subprocess.run([sys.executable, "-c", PROGRAM, how], capture_output=True, text=True, check=True, timeout=60)
    return int(done.stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="of glibc's malloc")
def test_freed_buffers_are_used_again() -> None:
    assert faults("kept") * 20 < faults("given back")


LEFT = """
import sys
from aerobee.runtime.process import FreedMemory, _anonymous_bytes
memory = FreedMemory()
before = _anonymous_bytes()
bytearray(4 << 20)  # from here on the C library takes such buffers out of its heap
large, small = [], []
for _ in range(100):
    large.append(b"x" * 900_000)
    small.append(b"y" * 60_000)
del large
if sys.argv[1] == "looks":
    memory.look()
    assert _anonymous_bytes() - before > 50 << 20, "given back while the size changed"
    memory.look()
print((_anonymous_bytes() - before) >> 20)
"""


def left(how: str) -> int:
    done = subprocess.run([sys.executable, "-c", LEFT, how], capture_output=True, text=True, check=True, timeout=60)
    return int(done.stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="of glibc's malloc")
def test_what_large_buffers_leave_between_small_ones_is_given_back() -> None:
    assert left("does not look") > 50
    assert left("looks") < 16
