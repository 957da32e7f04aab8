"""One run: build the cluster, load it, break it, mend it, wait until everything is handled, and judge."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from aerobee.testing.crash import CrashMode
from aerobee.testing.loop import VirtualLoop
from aerobee.testing.simulation.cluster import SimulatedCluster, plain_cluster
from aerobee.testing.simulation.faults import Faults
from aerobee.testing.simulation.judge import Judge, Stored
from aerobee.testing.simulation.load import ClientHost, LoadSender, Receiver
from aerobee.testing.simulation.story import KeptOffset, Story
from aerobee.testing.simulation.world import World

# Virtual seconds of load and faults, and the longest wait for everything to be handled after them.
LOAD_S: Final = 8.0
DRAIN_S: Final = 100.0
_LOOK_S: Final = 0.1
# Longer than consumers wait between looks at their group, so that a late copy is seen too.
_SETTLE_S: Final = 0.5


@dataclass(slots=True)
class RunOutcome:
    """What a run came to."""

    seed: int
    digest: str = ""
    events: int = 0
    virtual_s: float = 0.0
    problems: list[str] = field(default_factory=list)
    faults: Counter[str] = field(default_factory=Counter)
    # What was counted: messages sent, acknowledged, handled, and so on.
    counts: Counter[str] = field(default_factory=Counter)
    last_lines: list[str] = field(default_factory=list)
    expected_errors: set[str] = field(default_factory=set)


Prepare = Callable[[World, SimulatedCluster], None]


def run_seed(seed: int, *, prepare: Prepare | None = None) -> RunOutcome:
    """Run one seed. `prepare` may change the cluster before it starts, to plant a bug."""
    return run_virtually(seed, lambda loop, outcome: _run(loop, outcome, prepare))


def run_virtually(seed: int, body: Callable[[VirtualLoop, RunOutcome], Coroutine[Any, Any, None]]) -> RunOutcome:
    """Run a body on a loop of its own. Take errors that nobody handled, and errors that were logged, for problems."""
    loop = VirtualLoop(seed=seed, shuffle=seed % 2 == 1)
    outcome = RunOutcome(seed)
    loop.set_exception_handler(lambda _, context: outcome.problems.append(_told(context)))
    asyncio.set_event_loop(loop)
    try:
        with _errors_logged(outcome):
            loop.run_until_complete(body(loop, outcome))
    except Exception as error:  # noqa: BLE001 - whatever ends a run is what it found
        outcome.problems.append(f"the run failed: {error!r}")
    finally:
        loop.set_exception_handler(lambda _, context: None)
        loop.bury_all()
        loop.close()
        asyncio.set_event_loop(None)
    return outcome


async def _run(loop: VirtualLoop, outcome: RunOutcome, prepare: Prepare | None) -> None:
    world = World(loop, outcome.seed)
    world.problems = outcome.problems
    outcome.faults, outcome.expected_errors = world.faults, world.expected_errors
    story = Story(world.trace, loop.time)
    cluster = plain_cluster(world, story)
    load = Load(world, story)
    if prepare is not None:
        prepare(world, cluster)
    await cluster.start()
    load.start()
    faults = Faults(world, story, cluster, load.clients)
    await endure(loop, outcome, story, cluster, load, faults)
    judge = Judge(story, {broker.name: broker.sync_flush for broker in cluster.brokers})
    judge.jumped_s = {broker.name: broker.machine.jumped_ms / 1000 for broker in cluster.brokers}
    await drained(loop, load, judge)
    load.watching.cancel()
    stored = [
        Stored(broker.name, topic, queue_id, tuple(records))
        for broker in cluster.brokers
        for (topic, queue_id), records in broker.stored().items()
    ]
    mode = world.entropy.choose(list(CrashMode))
    after_cut = {broker.name: broker.survivors(mode, outcome.seed) for broker in cluster.brokers}
    outcome.problems += judge.verdict(stored, after_cut)
    conclude(outcome, world, judge)


class Load:
    """The clients of a run, and who watches the offsets that brokers keep for them."""

    def __init__(self, world: World, story: Story) -> None:
        self.sender = LoadSender(world, "10.0.2.1", story)
        receivers = [Receiver(world, f"10.0.3.{number}", story, pulls=number == 1) for number in (1, 2)]
        self.clients: list[ClientHost] = [self.sender, *receivers]
        self.watching: asyncio.Task[None]

    def start(self) -> None:
        for client in self.clients:
            client.start()


async def endure(
    loop: VirtualLoop, outcome: RunOutcome, story: Story, cluster: SimulatedCluster, load: Load, faults: Faults
) -> None:
    """Let faults happen under load, mend them, and end the load."""
    load.watching = loop.create_task(_watch(cluster, story), name="watch")
    try:
        async with asyncio.timeout(LOAD_S + DRAIN_S):
            await faults.run(loop.time() + LOAD_S)
    except TimeoutError:
        outcome.problems.append("a server or client did not stop or start")
    load.sender.is_quiet = True


async def drained(loop: VirtualLoop, load: Load, judge: Judge) -> None:
    """Wait until everything is sent and handled, or until that has taken too long."""
    until_s = loop.time() + DRAIN_S
    while loop.time() < until_s and (load.sender.is_sending or any(judge.missing())):  # noqa: ASYNC110 - nobody tells
        await asyncio.sleep(_LOOK_S)
    await asyncio.sleep(_SETTLE_S)


def conclude(outcome: RunOutcome, world: World, judge: Judge) -> None:
    """Write down what the run came to."""
    outcome.digest, outcome.events = world.trace.digest(), world.trace.count
    outcome.virtual_s = world.loop.time()
    outcome.counts = judge.counts
    outcome.last_lines = list(world.trace.lines)


async def _watch(cluster: SimulatedCluster, story: Story) -> None:
    """Note every change of the offsets that the brokers keep."""
    last: dict[tuple[str, tuple[str, str, int]], int] = {}

    def note(seen: KeptOffset) -> None:
        key = (seen.group, seen.place)
        if last.get(key) != seen.offset:
            last[key] = seen.offset
            story.progress.append(seen)

    while True:
        await asyncio.sleep(_LOOK_S)
        for broker in cluster.serving():
            broker.observe(note)
        cluster.watch_routes(story.problems)


def _told(context: dict[str, Any]) -> str:
    error = context.get("exception")
    return f"unhandled: {context.get('message')}: {error!r}"


class _Errors(logging.Handler):
    """Takes every ERROR line of the product for a problem, unless a fault explains it."""

    def __init__(self, outcome: RunOutcome) -> None:
        super().__init__(logging.ERROR)
        self._outcome = outcome

    def emit(self, record: logging.LogRecord) -> None:
        message = record.getMessage()
        if not any(word in message for word in self._outcome.expected_errors):
            self._outcome.problems.append(f"logged: {record.name}: {message}")


@contextmanager
def _errors_logged(outcome: RunOutcome) -> Iterator[None]:
    logger, handler = logging.getLogger("aerobee"), _Errors(outcome)
    before = logger.level, logger.propagate
    logger.setLevel(logging.ERROR)
    logger.propagate = False
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before[0])
        logger.propagate = before[1]
