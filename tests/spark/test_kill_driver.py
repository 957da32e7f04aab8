"""`kill -9` of the Spark driver at drawn points inside and between batches, again and again: nothing is lost at any
level, nothing is there twice at the upper ones, compared message by message with what was sent. The same while the
driver lives and servers go away: brokers, the name server, and masters of replicated groups.

The driver (killjob.py) is a process of its own with a JVM of its own. Its Python workers are not killed: as in a real
fall of a driver, some may still be sending when the next driver starts. Each start reads with another `minPartitions`.
The next driver gets ready while the one before it works, because starting takes longer than a round.

The long runs are cut into legs of a few rounds. Each leg is checked, and remembered (aerobee.testing.longruns).
"""

from __future__ import annotations

import itertools
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

import pytest

from aerobee.model.message import Message
from aerobee.testing.longruns import LongRun, rounds_of, table

JOB = Path(__file__).with_name("killjob.py")
# Where the output of drivers that fail is kept.
KEPT = Path(__file__).parents[2] / "out" / "spark-kills"
# For `make test`: each query more costs seconds of every start.
FEW = ("once", "counted", "table")
ALL = ("loose", "keyed", *FEW)
# Tables that the libraries deltalake and pyiceberg commit.
LAKE = ("delta", "iceberg")
LEVELS = ("loose", "keyed", "once")
# As many run beside each other in a driver that is killed; they take turns.
WIDTH = 3
SEED = int(os.environ.get("AEROBEE_KILL_SEED", "20"))
ROUNDS = int(os.environ.get("AEROBEE_KILL_ROUNDS", "20"))
LEG = 5
LEGS = range(-(-ROUNDS // LEG))
FAULTS = ("broker killed", "name server killed", "replica switched")
BATCH_ROWS = 60
# Three batches for each query and start: more than a kill point may lie ahead.
ROUND_ROWS = 3 * BATCH_ROWS
PATIENCE_S = 180.0
# For a driver that did not start in time; a message lost or doubled is told at once.
SECOND_TRY = pytest.mark.flaky(reruns=1, rerun_except=AssertionError)
Content = tuple[str, str | None, str | None, tuple[tuple[str, str], ...]]


@dataclass
class Point:
    """Where a driver is killed: `delay_s` after it wrote `batch` of `query` to offsets or to commits."""

    query: str
    log: str
    ahead: int
    delay_s: float
    batch: int = -1


@dataclass
class Story:
    """What was sent and done, for the checks and for the eye."""

    cluster: Any
    directory: Path
    draw: random.Random
    queries: tuple[str, ...] = ALL
    # Those that the driver runs now.
    running: tuple[str, ...] = ()
    source: str = ""
    topics: dict[str, str] = field(default_factory=dict)
    sent: list[Content] = field(default_factory=list)
    kills: list[Point] = field(default_factory=list)
    # At the moment of each kill, the queries in the middle of a batch.
    inside: list[str] = field(default_factory=list)
    width: int = WIDTH
    sessions: set[int] = field(default_factory=set)

    def checkpoint(self, query: str, log: str) -> set[int]:
        """The batches in a query's log."""
        directory = self.directory / "checkpoints" / query / log
        return {int(path.name) for path in directory.glob("*") if path.name.isdigit()}

    def send(self, count: int) -> None:
        messages = []
        for number in range(len(self.sent), len(self.sent) + count):
            tags, keys, properties = f"t{number % 7}", f"k{number}", {"n": str(number), "colour": "röd"}
            body = f"{'x' * (number % 50)}:{number}"
            messages.append(Message(self.source, body.encode(), tags=tags, keys=keys, properties=properties))
            self.sent.append((body, tags, keys, tuple(sorted(properties.items()))))
        self.cluster.send(self.source, messages)

    def others(self, first: str) -> list[str]:
        """The queries that run beside the one that is watched."""
        rest = [name for name in self.queries if name != first]
        return self.draw.sample(rest, min(len(rest), self.width - 1))

    def iceberg(self) -> dict[str, str]:
        """The catalog of the Iceberg table."""
        place = self.directory
        return {"type": "sql", "uri": f"sqlite:///{place}/catalog.db", "warehouse": f"file://{place}/warehouse"}

    def plan(self, first: str | None) -> Path:
        """Of the next start: the query that is watched starts first; without one all run to their end."""
        partitions = self.draw.randrange(1, 7)
        self.running = self.queries if first is None else (first, *self.others(first))
        made = {
            "namesrv": self.cluster.namesrv, "source": self.source, "topics": self.topics, "partitions": partitions,
            "batch_rows": BATCH_ROWS if first is not None else 10 * BATCH_ROWS, "available_now": first is None,
            "checkpoints": str(self.directory / "checkpoints"), "table": str(self.directory / "table"),
            "delta": str(self.directory / "delta"), "iceberg": self.iceberg(),
            "rows": str(self.directory / "rows.json"), "queries": self.running,
        }  # fmt: skip
        path = self.directory / "plan.json"
        path.write_text(json.dumps(made))
        return path


class Driver:
    """One process of the job. It gets ready by itself, and begins when it is told."""

    _numbers = itertools.count()

    def __init__(self, story: Story) -> None:
        self._story = story
        number = next(self._numbers)
        self._pid = story.directory / f"pid-{number}"
        self.log = story.directory / f"driver-{number}.log"
        environ = {**os.environ, "TMPDIR": str(story.directory), "PYSPARK_PYTHON": sys.executable}
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, str(JOB), str(self._pid)], stdin=subprocess.PIPE, stdout=log, stderr=log, env=environ
            )

    def begin(self, first: str | None) -> None:
        """Run the queries, the one to be watched first. Without one, all run to their end."""
        self.until(self._pid.exists)
        self._story.sessions.add(int(self._pid.read_text()))
        assert self._process.stdin is not None
        self._process.stdin.write(f"{self._story.plan(first)}\n".encode())
        self._process.stdin.close()

    def until(self, condition: Callable[[], bool]) -> None:
        deadline_s = time.monotonic() + PATIENCE_S
        while not condition():
            if self._process.poll() is not None:
                self.fail(f"the driver ended with {self._process.returncode}")
            if time.monotonic() > deadline_s:
                self.fail(f"the driver did not come there within {PATIENCE_S:g} s")
            threading.Event().wait(0.002)

    def kill(self) -> None:
        """The JVM first: it is what runs the queries."""
        os.kill(int(self._pid.read_text()), signal.SIGKILL)
        self._process.kill()
        self._process.wait(PATIENCE_S)

    def finish(self) -> None:
        """To the end of all that was sent, which is most of it where the kills came early."""
        try:
            if self._process.wait(5 * PATIENCE_S):
                self.fail(f"the driver ended with {self._process.returncode}")
        except subprocess.TimeoutExpired:
            self.fail(f"the driver did not end within {5 * PATIENCE_S:g} s")

    def end(self) -> None:
        """However far it came."""
        if self._process.poll() is None:
            if self._pid.exists():
                self._story.sessions.add(int(self._pid.read_text()))
                self.kill()
            self._process.kill()
            self._process.wait(PATIENCE_S)

    def fail(self, what: str) -> NoReturn:
        """Fail the test. What the driver and Spark wrote outlives it, in the directory that the message names."""
        kept = KEPT / f"{self._story.directory.name}-{self.log.stem}-{os.getpid()}"
        kept.mkdir(parents=True, exist_ok=True)
        running = self._story.directory.glob("aerobee-spark-*/spark.log")  # of drivers that have not ended
        for log in (self.log, *self._pid.parent.glob(f"{self._pid.name}.*"), *running):
            shutil.copy(log, kept / f"{log.parent.name}-{log.name}")
        pytest.fail(f"{what}; all that it said is in {kept}:\n{self.log.read_text()[-3000:]}")


def draw_point(story: Story, number: int) -> Point:
    """The queries take turns, so that few rounds meet every kind of way out."""
    query = story.queries[number % len(story.queries)]
    log = story.draw.choice(("offsets", "offsets", "commits"))
    return Point(query, log, story.draw.randrange(3), story.draw.choice((0.0, story.draw.uniform(0.0, 0.8))))


def one_round(story: Story, number: int, driver: Driver) -> None:
    point = draw_point(story, number)
    point.batch = max(story.checkpoint(point.query, point.log), default=-1) + 1 + point.ahead
    story.send(ROUND_ROWS)
    try:
        driver.begin(point.query)
        path = story.directory / "checkpoints" / point.query / point.log / str(point.batch)
        driver.until(path.exists)
        threading.Event().wait(point.delay_s)
        driver.kill()
    finally:
        driver.end()
    story.kills.append(point)
    story.inside += [
        one for one in story.running if story.checkpoint(one, "offsets") > story.checkpoint(one, "commits")
    ]


def run(story: Story, rounds: int, first: int = 0) -> None:
    story.source = story.cluster.topic("kill-source", queues=2)
    story.topics = {
        name: story.cluster.topic(f"kill-{name}", queues=2) for name in story.queries if name not in ("table", *LAKE)
    }
    following = Driver(story)
    try:
        for number in range(first, first + rounds):
            driver, following = following, Driver(story)
            one_round(story, number, driver)
        story.send(ROUND_ROWS // 2)
        following.begin(None)
        following.finish()
    finally:
        following.end()


# -- servers that go away while the driver lives


def strike(story: Story, fault: str) -> None:
    """Take a server away for some seconds and bring it back."""
    cluster, away_s, broker = story.cluster, story.draw.uniform(0.5, 4.0), story.draw.randrange(2)
    if fault == "name server killed":
        cluster.stop_namesrv(0)
        threading.Event().wait(away_s)
        cluster.restart_namesrv(0)
        return
    master = cluster.master(broker)
    if fault == "replica switched":
        cluster.kill(broker, master)
        assert cluster.master(broker) != master
        threading.Event().wait(away_s)
        cluster.restart(broker, master)
        return
    for replica in (1, 2):
        cluster.kill(broker, replica)
    threading.Event().wait(away_s)
    cluster.restart(broker)


def has_read_all(story: Story, query: str) -> bool:
    """Tell whether a query has committed every message that was sent. The offsets of its topic begin at 0."""
    done = max(story.checkpoint(query, "commits"), default=-1)
    if done < 0:
        return False
    lines = (story.directory / "checkpoints" / query / "offsets" / str(done)).read_text().splitlines()
    return sum(offsets_of(json.loads(lines[2])["offsets"]).values()) == len(story.sent)


def run_faults(story: Story, rounds: int) -> Counter[str]:
    """Each round has every fault once, at a point of a query that is drawn. All queries must outlive them."""
    story.source = story.cluster.topic("fault-source", queues=2)
    story.topics = {name: story.cluster.topic(f"fault-{name}", queues=2) for name in story.queries if name not in LAKE}
    struck: Counter[str] = Counter()
    story.send(BATCH_ROWS)
    story.width = len(story.queries)
    driver, last = Driver(story), None
    try:
        driver.begin(story.queries[0])
        driver.until(lambda: all(has_read_all(story, name) for name in story.queries))
        for number in range(rounds):
            if number == rounds - 1:
                last = Driver(story)
            for fault in story.draw.sample(FAULTS, len(FAULTS)):
                point = draw_point(story, struck.total())
                point.batch = max(story.checkpoint(point.query, point.log), default=-1) + 1 + point.ahead % 2
                story.send(2 * BATCH_ROWS)
                path = story.directory / "checkpoints" / point.query / point.log / str(point.batch)
                driver.until(path.exists)
                threading.Event().wait(point.delay_s)
                story.inside += [
                    one for one in story.queries if story.checkpoint(one, "offsets") > story.checkpoint(one, "commits")
                ]
                strike(story, fault)
                struck[fault] += 1
                driver.until(lambda: all(has_read_all(story, name) for name in story.queries))
                story.cluster.register()
            print(f"round {number}: {dict(struck)}, {len(story.sent)} rows", flush=True)
        driver.end()
        assert last is not None
        last.begin(None)
        last.finish()
    finally:
        for one in (driver, last):
            if one is not None:
                one.end()
    return struck


# -- what must be there


def content(message: Message) -> Content:
    properties = tuple(sorted(message.properties.items()))
    return message.body.decode(), message.tags, message.keys, properties


def in_topic(story: Story, name: str) -> Counter[Content]:
    return Counter(content(message) for message in story.cluster.messages(story.topics[name]))


def in_table(story: Story) -> Counter[Content]:
    rows = json.loads((story.directory / "rows.json").read_text())
    return Counter((r["body"], r["tags"], r["keys"], tuple(sorted(r["properties"].items()))) for r in rows)


def offsets_of(value: dict[str, Any]) -> dict[tuple[str, int], int]:
    (brokers,) = value.values()
    return {(broker, int(queue)): at for broker, queues in brokers.items() for queue, at in queues.items()}


def updates(story: Story) -> Counter[str]:
    """What the aggregate must have written: all its rows with each of the batches that its checkpoint names."""
    queues: dict[tuple[str, int], list[Message]] = {}
    for message in story.cluster.messages(story.source):
        queues.setdefault((message.broker or "", message.queue_id), []).append(message)
    counts: Counter[str] = Counter()
    sums: Counter[str] = Counter()
    result: Counter[str] = Counter()
    read: Counter[tuple[str, int]] = Counter()
    for batch in sorted(story.checkpoint("counted", "offsets")):
        lines = (story.directory / "checkpoints/counted/offsets" / str(batch)).read_text().splitlines()
        for queue, end in offsets_of(json.loads(lines[2])["offsets"]).items():
            for message in queues.get(queue, [])[read[queue] : end]:
                tags = message.tags or ""
                counts[tags] += 1
                sums[tags] += int(message.body.decode().split(":")[1])
            read[queue] = end
        result.update(f"{tags}:{counts[tags]}:{sums[tags]}" for tags in counts)
    assert counts.total() == len(story.sent)
    return result


def check(story: Story) -> dict[str, Any]:
    """Compare every output with what was sent, message by message. Return what was counted."""
    sent = Counter(story.sent)
    assert len({message.broker for message in story.cluster.messages(story.source)}) == 2
    found: dict[str, Counter[Any]] = {name: in_topic(story, name) for name in story.topics}
    if "table" in story.queries:
        found["table"] = in_table(story)
    found |= {name: in_lake(story, name) for name in LAKE if name in story.queries}
    # The aggregate's rows are no messages that were sent.
    if "counted" in found:
        found["counted"] = Counter(body for body, *_ in found["counted"].elements())
    counts = ", ".join(f"{name} {rows.total()} rows" for name, rows in found.items())
    twice = f"; at least once: {found['loose'].total() - len(found['loose'])} twice" if "loose" in found else ""
    inside = ", ".join(f"{name} {count}" for name, count in sorted(Counter(story.inside).items()))
    kills = f"\n{len(story.kills) or 'no'} kills of the driver"
    print(f"{kills}; inside a batch of {inside}; sent {sent.total()}; {counts}{twice}")
    for name, rows in found.items():
        expected: Counter[Any] = updates(story) if name == "counted" else sent
        if name == "loose":
            assert set(rows) == set(sent)
        else:
            assert not expected - rows, f"{name} lost {list((expected - rows).items())[:3]}"
            assert not rows - expected, f"{name} has too many: {list((rows - expected).items())[:3]}"
    return {
        "kills": len(story.kills),
        "inside": dict(Counter(story.inside)),
        "sent": sent.total(),
        "rows": {name: rows.total() for name, rows in found.items()},
        "expected": {name: updates(story).total() if name == "counted" else sent.total() for name in found},
    }


def in_lake(story: Story, name: str) -> Counter[Content]:
    if name == "delta":
        from deltalake import DeltaTable

        rows = DeltaTable(str(story.directory / "delta")).to_pyarrow_table().to_pylist()
    else:
        from pyiceberg.catalog import load_catalog

        rows = load_catalog(None, **story.iceberg()).load_table("kills.rows").scan().to_arrow().to_pylist()
    return Counter((r["body"], r["tags"], r["keys"], tuple(sorted(r["properties"]))) for r in rows)


def left_over(sessions: set[int]) -> list[int]:
    """Processes of the killed drivers' sessions that still run."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[3]) in sessions and fields[0] != "Z":
            found.append(int(path.parent.name))
    return found


@pytest.fixture
def story(cluster: Any, tmp_path: Path) -> Iterator[Story]:
    with told(cluster, tmp_path) as made:
        yield made


@pytest.fixture
def replicated_story(replicated_cluster: Any, tmp_path: Path) -> Iterator[Story]:
    with told(replicated_cluster, tmp_path) as made:
        yield made


@contextmanager
def told(cluster: Any, tmp_path: Path) -> Iterator[Story]:
    made = Story(cluster, tmp_path, random.Random(SEED))
    yield made
    # A worker whose driver is gone ends by itself; what does not is a fault, and must not stay.
    deadline_s = time.monotonic() + 60
    while (stay := left_over(made.sessions)) and time.monotonic() < deadline_s:
        threading.Event().wait(0.05)
    for pid in stay:
        os.kill(pid, signal.SIGKILL)
    assert stay == []


@SECOND_TRY
@pytest.mark.timeout(600)
def test_three_kills_lose_and_repeat_nothing(story: Story) -> None:
    story.queries = FEW
    run(story, 3)
    check(story)


@pytest.fixture(scope="module")
def rounds() -> Iterator[LongRun]:
    """The file of the long runs. At the end, a table tells what all of them found."""
    made = rounds_of("AEROBEE_KILLS_STATE")
    yield made
    print(f"\n\n{report(made)}\n")


def report(made: LongRun) -> str:
    """A row for each output of each kind of legs. What is not in it was not run."""
    lines: list[tuple[Any, ...]] = []
    for kind in ("driver", "servers"):
        legs = [found for name, found in made.done.items() if name.startswith(f"{kind} ")]
        struck: Counter[str] = Counter()
        totals: dict[str, Counter[str]] = {}
        for leg in legs:
            struck.update(leg.get("struck", {"driver killed": leg["kills"]}))
            for name, count in leg["rows"].items():
                at = totals.setdefault(name, Counter())
                at.update(sent=leg["expected"][name], rows=count, inside=leg["inside"].get(name, 0))
        what = ", ".join(f"{name} {count}" for name, count in sorted(struck.items()))
        minutes = sum(leg["seconds"] for leg in legs) / 60
        for name, at in totals.items():
            twice = f"{at['rows'] - at['sent']} (allowed)" if name == "loose" else at["rows"] - at["sent"]
            lines.append((kind, what, f"{minutes:.0f}", name, at["inside"], at["sent"], at["rows"], 0, twice))
    head = ("kind", "faults", "minutes", "output", "inside a batch", "expected rows", "rows", "lost", "twice")
    return f"source {made.source}\n\n" + table(head, lines)


def leg_rounds(leg: int) -> int:
    return min(LEG, ROUNDS - leg * LEG)


@SECOND_TRY
@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("leg", LEGS)
def test_killed_drivers_lose_and_repeat_nothing(story: Story, rounds: LongRun, leg: int) -> None:
    name = f"driver {leg} of {leg_rounds(leg)}"
    if rounds.is_done(name):
        pytest.skip("done before")
    story.queries = (*ALL, *LAKE)
    story.draw.seed(SEED + leg)
    with rounds.noted(name) as found:
        run(story, leg_rounds(leg), leg * LEG)
        found.update(check(story))


@pytest.mark.slow
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("leg", LEGS)
def test_servers_that_go_away_lose_and_repeat_nothing(replicated_story: Story, rounds: LongRun, leg: int) -> None:
    name = f"servers {leg} of {leg_rounds(leg)}"
    if rounds.is_done(name):
        pytest.skip("done before")
    story = replicated_story
    story.queries = (*LEVELS, *LAKE)
    story.draw.seed(SEED + len(LEGS) + leg)
    with rounds.noted(name) as found:
        struck = run_faults(story, leg_rounds(leg))
        found.update(check(story), struck=dict(struck))
    assert set(struck) == set(FAULTS)
