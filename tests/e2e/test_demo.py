"""The demo with few orders: its table, what it leaves behind (nothing), and its pieces that need no cluster."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from aerobee.demo.ledger import Ledger
from aerobee.demo.timeline import COLUMNS_MAX, Timeline, sparkline

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="kill -9")


def start(home: Path, *arguments: str) -> subprocess.Popen[str]:
    """In a home, a working directory and a place for temporary files of its own, to see what is left there."""
    for name in ("home", "tmp", "cwd"):
        (home / name).mkdir()
    environment = {**os.environ, "HOME": str(home / "home"), "TMPDIR": str(home / "tmp")}
    command = [sys.executable, "-m", "aerobee.demo", *arguments]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, env=environment, cwd=home / "cwd", stdout=pipe, stderr=pipe, text=True)


def left_behind(home: Path) -> list[Path]:
    return [path for path in home.rglob("*") if path.is_file()]


def processes_of(directory: Path) -> list[str]:
    """Command lines that name the directory."""
    found = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
    return [line for line in found.splitlines() if str(directory) in line]


def test_the_demo_loses_nothing_and_leaves_nothing(tmp_path: Path) -> None:
    with start(tmp_path, "--orders", "2000") as process:
        said, complained = process.communicate(timeout=110)
    assert (process.returncode, complained) == (0, ""), said
    names, values = (
        re.split(r"\s{2,}", line.strip())
        for line in re.findall(r".*acknowledged  consumed.*\n.*", said)[0].splitlines()
    )
    row = dict(zip(names, values, strict=True))
    assert (row["sent"], row["acknowledged"], row["consumed"], row["lost"]) == ("2,000", "2,000", "2,000", "0")
    assert re.fullmatch(r"\d+\.\d s", row["recovery"])
    assert "kill -9 broker-b" in said and "broker-b is back" in said
    assert len(re.findall(r"^  \.venv/bin/aerobee ", said, re.MULTILINE)) == 3
    assert left_behind(tmp_path) == [] and processes_of(tmp_path) == []


def test_a_stopped_demo_leaves_nothing_either(tmp_path: Path) -> None:
    with start(tmp_path, "--orders", "50000") as process:
        assert process.stdout is not None
        for line in process.stdout:
            if "sending" in line:
                break
        process.send_signal(signal.SIGTERM)
        _, complained = process.communicate(timeout=60)
    assert process.returncode == 130
    assert complained == "interrupted; the cluster is stopped and its files are removed\n"
    assert left_behind(tmp_path) == [] and processes_of(tmp_path) == []


def test_the_books_tell_lost_from_twice() -> None:
    ledger = Ledger()
    ledger.sent = 3
    ledger.acknowledged |= {0, 1, 2}
    ledger.deliver(0, ("broker-a", 0, 0))
    ledger.deliver(0, ("broker-a", 0, 1))
    ledger.deliver(1, ("broker-b", 0, 0))
    totals = ledger.totals()
    assert (totals.consumed, totals.lost, totals.seen_twice, totals.sound) == (2, 1, 1, False)
    ledger.deliver(2, ("broker-b", 0, 1))
    assert ledger.totals().sound
    ledger.sent = 4
    assert not ledger.totals().sound


def test_the_picture_has_both_rates_on_one_scale_and_the_marks_below() -> None:
    timeline = Timeline(0.5)
    for count in (10, 20, 20, 40):
        if count == 40:
            timeline.mark("kill")
        timeline.sample(count, count // 2)
    assert timeline.lines() == [
        "sent/s      ▅▅ █  at most 40",
        "consumed/s  ▃▃ ▅  at most 20",
        "               ↑ kill",
    ]


def test_a_long_picture_is_narrow() -> None:
    timeline = Timeline(0.25)
    for count in range(1, 1000):
        timeline.sample(count, count)
    bars = re.findall("[▁-█]+", timeline.lines()[0])
    assert [len(run) <= COLUMNS_MAX for run in bars] == [True]
    assert sparkline([0.0, 1.0], 1.0) == " █"
