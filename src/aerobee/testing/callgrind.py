"""Counts the instructions of a run of a Python file, by callgrind of valgrind."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from aerobee.model.numbers import parse_int


def instructions(file: str, *words: object) -> int:
    """Return how many instructions a run of this Python file with these words executes."""
    with tempfile.TemporaryDirectory() as work:
        out = Path(work) / "out"
        valgrind = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={out}", sys.executable, file]
        done = subprocess.run(
            [*valgrind, *map(str, words)], capture_output=True, text=True, check=False,
            # Sets and dicts of names lie in memory as in every other run.
            env={**os.environ, "PYTHONHASHSEED": "0"},
        )  # fmt: skip
        if done.returncode:
            raise SystemExit(done.stderr[-2000:])
        found = re.search(r"^(?:summary|totals): (\d+)", out.read_text(), re.MULTILINE)
        assert found is not None
        return parse_int(found[1])
