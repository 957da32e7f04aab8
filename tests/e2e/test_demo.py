"""The demo with few orders: its table, its Spark half, what it leaves behind (a picture), and its pieces apart."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from aerobee.demo.ledger import Ledger, Report, Totals
from aerobee.demo.picture import draw, smooth_rates
from aerobee.demo.story import Aggregates, DemoOutcome
from aerobee.demo.timeline import COLUMNS_MAX, Timeline, sparkline

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="kill -9")


# A Spark start, its first batch and the imports of its workers, on a machine with other work.
SPARK_S = 240


def start(home: Path, *arguments: str, **changed: str) -> subprocess.Popen[str]:
    """In a home, a working directory and a place for temporary files of its own, to see what is left there."""
    for name in ("home", "tmp", "cwd"):
        (home / name).mkdir()
    environment = {**os.environ, "HOME": str(home / "home"), "TMPDIR": str(home / "tmp"), **changed}
    command = [sys.executable, "-m", "aerobee.demo", *arguments]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, env=environment, cwd=home / "cwd", stdout=pipe, stderr=pipe, text=True)


def left_behind(home: Path) -> list[Path]:
    return [path for path in home.rglob("*") if path.is_file()]


def processes_of(directory: Path) -> list[str]:
    """Command lines that name the directory: as wide as they are, or ps may cut them before it."""
    found = subprocess.run(["ps", "-ww", "-eo", "args"], capture_output=True, text=True, check=True).stdout
    return [line for line in found.splitlines() if str(directory) in line]


def nothing_runs(directory: Path) -> bool:
    """Whoever lives with a parent that was killed (a broker, a JVM's workers) needs a moment to see that."""
    deadline_s = time.monotonic() + 60
    while processes_of(directory):
        if time.monotonic() > deadline_s:
            return False
    return True


def row_of(said: str) -> dict[str, str]:
    """The table's."""
    found = re.findall(r".*acknowledged  consumed.*\n.*", said)[0].splitlines()
    names, values = (re.split(r"\s{2,}", line.strip()) for line in found)
    return dict(zip(names, values, strict=True))


def missing_spark() -> str | None:
    from pyspark_rocketmq.session import why_no_spark

    return why_no_spark()


def test_without_java_the_messaging_half_loses_nothing_and_leaves_nothing(tmp_path: Path) -> None:
    with start(tmp_path, "--orders", "2000", PATH=str(tmp_path), JAVA_HOME="") as process:
        said, complained = process.communicate(timeout=110)
    assert (process.returncode, complained) == (0, ""), said
    row = row_of(said)
    assert (row["sent"], row["acknowledged"], row["consumed"], row["lost"]) == ("2,000", "2,000", "2,000", "0")
    assert re.fullmatch(r"\d+\.\d\d s", row["take-over"]) and re.fullmatch(r"\d+\.\d\d s", row["recovery"])
    assert "kill -9 of the master" in said and "another replica is master" in said and "is back" in said
    assert len(re.findall(r" the Spark half is skipped: .*$", said, re.MULTILINE)) == 1
    assert len(re.findall(r"^  \.venv/bin/aerobee ", said, re.MULTILINE)) == 3
    assert left_behind(tmp_path) == [] and processes_of(tmp_path) == []


@pytest.mark.timeout(SPARK_S + 30)
def test_spark_adds_up_the_same_as_python_and_leaves_a_picture(tmp_path: Path) -> None:
    reason = missing_spark()
    if reason is not None:
        pytest.skip(reason)
    with start(tmp_path, "--orders", "2000", "--picture", "out/demo.png") as process:
        said, complained = process.communicate(timeout=SPARK_S)
    assert (process.returncode, complained) == (0, ""), said
    assert row_of(said)["lost"] == "0"
    assert "Spark totals == Python totals" in said and "Spark joins" in said
    assert not re.search(r"log4j|WARN|Exception|Traceback|^\s+at ", said, re.MULTILINE)
    assert len(re.findall(r"^  \.venv/bin/aerobee ", said, re.MULTILINE)) == 3
    picture = tmp_path / "cwd" / "out" / "demo.png"
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert left_behind(tmp_path) == [picture] and nothing_runs(tmp_path)
    times_s = [float(found) for found in re.findall(r"^ *(\d+\.\d) s  ", said, re.MULTILINE)]
    assert times_s == sorted(times_s) and len(times_s) > 5


@pytest.mark.timeout(SPARK_S)
def test_the_servers_of_a_demo_that_is_killed_stop_by_themselves(tmp_path: Path) -> None:
    with start(tmp_path, "--orders", "50000", "--no-spark") as process:
        assert process.stdout is not None
        for line in process.stdout:
            if "sending" in line:
                break
        assert len(processes_of(tmp_path)) == 5, "a name server, a coordination store and three brokers"
        process.kill()
        process.communicate(timeout=60)
    assert nothing_runs(tmp_path), "\n".join(processes_of(tmp_path))
    logs = {path.name: path.read_text() for path in tmp_path.rglob("*.log") if path.name != "coordination.log"}
    assert [name for name, text in logs.items() if " stopped" not in text.splitlines()[-1]] == []
    # Whoever stops has records that nobody confirms any more, because the others stop as well. That is no reason to
    # recover.
    assert len(logs) == 4 and list(tmp_path.rglob("abort")) == [], logs


@pytest.mark.parametrize("moment", ["sending", "session is up"])
@pytest.mark.timeout(SPARK_S)
def test_a_stopped_demo_leaves_nothing_either(tmp_path: Path, moment: str) -> None:
    if moment != "sending" and missing_spark() is not None:
        pytest.skip("no Spark to stop")
    with start(tmp_path, "--orders", "50000") as process:
        assert process.stdout is not None
        for line in process.stdout:
            if moment in line:
                break
        process.send_signal(signal.SIGTERM)
        _, complained = process.communicate(timeout=60)
    assert process.returncode == 130
    assert complained == "interrupted; the cluster is stopped and its files are removed\n"
    assert left_behind(tmp_path) == [] and nothing_runs(tmp_path)


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


def test_spark_joins_the_picture_with_its_lag(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MPLCONFIGDIR", "")
    timeline = Timeline(0.5)
    for count in (10, 20, 20, 20):
        timeline.sample(count, count)
    timeline.mark("Spark joins")
    timeline.fill_spark([(1.0, 2.0, 20)])
    assert timeline.spark == [0, 0, 0, 10, 20]
    assert timeline.spark_lag == [0, 10, 20, 10, 0] and timeline.lag == [0, 0, 0, 0, 0]
    assert timeline.lines()[2:4] == ["Spark/s       ██  at most 20", "Spark lag   ▅█▅   at most 20"]
    assert timeline.flow_per_s(timeline.acknowledged) == 20.0
    assert smooth_rates([0, 10, 20, 20], 1.0) == [10.0, 10.0, 5.0, 0.0]
    assert str(tmp_path / "new" / "a.png") in draw(timeline, tmp_path / "new" / "a.png", tmp_path)
    assert (tmp_path / "new" / "a.png").stat().st_size > 10_000


def test_totals_are_counted_from_numbers_and_aggregates_once_a_place() -> None:
    ledger, report = Ledger(), Report()
    ledger.acknowledged |= {0, 4, 1}
    assert ledger.by_shop() == {"north": (2, 348), "east": (1, 137)}
    for place in (0, 0, 1):
        report.deliver(b'{"shop": "north", "orders": 1, "cents": 174}', ("broker-a", 0, place))
    report.deliver(b'{"shop": "east", "orders": 1, "cents": 137}', ("broker-b", 0, 0))
    assert report.shops == ledger.by_shop()
    equal = Aggregates(ledger.by_shop(), report.shops, report.shops, 3, 3)
    wrong = Aggregates(ledger.by_shop(), report.shops, {}, 3, 0)
    totals = Totals(3, 3, 3, 0, 0)
    sound = [DemoOutcome(totals, 1.0, 1.0, 1.0, 1.0, Timeline(0.5), one).sound for one in (equal, None, wrong)]
    assert sound == [True, True, False]
