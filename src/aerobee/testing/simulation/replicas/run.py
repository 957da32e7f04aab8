"""One run of replicas: build the group, write to it, break it, mend it, wait until it serves again, and judge."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from aerobee.testing.loop import VirtualLoop
from aerobee.testing.simulation.replicas.coordination import CoordinationServer
from aerobee.testing.simulation.replicas.faults import ReplicaFaults
from aerobee.testing.simulation.replicas.judge import BEHIND, ReplicaJudge
from aerobee.testing.simulation.replicas.nodes import CLUSTER, GROUP, Node
from aerobee.testing.simulation.run import RunOutcome, run_virtually
from aerobee.testing.simulation.world import World

LOAD_S: Final = 8.0
# How long the group may take to serve again and to be level once everything is mended.
MEND_S: Final = 30.0
_LOOK_S: Final = 0.05
# The share of runs that end with an emptied coordination store.
_EMPTIED: Final = 0.1
Prepare = Callable[[World, list[Node]], None]


def run_replicas(seed: int, *, prepare: Prepare | None = None) -> RunOutcome:
    """Run one seed. `prepare` may change the group before it starts, to plant a bug."""
    return run_virtually(seed, lambda loop, outcome: _run(loop, outcome, prepare))


async def _run(loop: VirtualLoop, outcome: RunOutcome, prepare: Prepare | None) -> None:
    world = World(loop, outcome.seed)
    world.problems = outcome.problems
    outcome.faults, outcome.expected_errors = world.faults, world.expected_errors
    judge = ReplicaJudge(world.trace)
    judge.problems = outcome.problems
    server = CoordinationServer(world, CLUSTER, GROUP)
    server.on_change = judge.changed
    # A follower whose log ends before its master's begins stops, and its operator gives it an empty directory.
    world.expected_errors.add(BEHIND)
    sync_flush = world.entropy.chance(0.6)
    min_in_sync = world.entropy.below(2) + 1
    has_learner = world.entropy.chance(0.15)
    nodes = [
        Node(
            world, number, judge, server,
            sync_flush=sync_flush, min_in_sync=min_in_sync, learner=has_learner and number == 3,
        )
        for number in (1, 2, 3)
    ]  # fmt: skip
    judge.nodes = nodes
    if prepare is not None:
        prepare(world, nodes)
    tasks = [
        loop.create_task(server.expire(), name="expire"),
        loop.create_task(_watch(loop, judge), name="watch"),
        loop.create_task(_supervise(nodes, judge), name="supervise"),
    ]
    for node in nodes:
        node.start()
    faults = ReplicaFaults(world, server, nodes, judge)
    try:
        async with asyncio.timeout(LOAD_S + 60):
            await faults.run(loop.time() + LOAD_S)
    except TimeoutError:
        outcome.problems.append("a replica did not stop or start")
    await _mended(loop, judge, nodes)
    judge.verdict()
    for task in tasks:
        task.cancel()
    if not outcome.problems and world.entropy.chance(_EMPTIED):
        await _emptied(world, server, judge, nodes)
    outcome.digest, outcome.events = world.trace.digest(), world.trace.count
    outcome.virtual_s = loop.time()
    outcome.counts = judge.counts
    outcome.last_lines = list(world.trace.lines)


async def _emptied(world: World, server: CoordinationServer, judge: ReplicaJudge, nodes: list[Node]) -> None:
    """Start every replica anew against an emptied coordination store: all of them must stop in words."""
    world.faults["emptied coordinator"] += 1
    world.expected_errors.update(("emptied or restored", "not a member"))
    for node in nodes:
        node.kill()
    server.empty()
    for node in nodes:
        node.start()
    await asyncio.sleep(3.0)
    for node in nodes:
        if not node.stopped:
            judge.problem(f"node {node.number} goes on over an emptied coordination store: {_standing([node])}")


async def _mended(loop: VirtualLoop, judge: ReplicaJudge, nodes: list[Node]) -> None:
    """Wait until a master acknowledges again, then let the writers rest and wait until all replicas are level."""
    until_s, acks = loop.time() + MEND_S, len(judge.acks)
    while len(judge.acks) == acks:
        if loop.time() > until_s:
            judge.problem(f"the group does not serve again: {_standing(nodes)}, {judge.state}")
            return
        await asyncio.sleep(_LOOK_S)
    for node in nodes:
        node.is_quiet = True
    until_s = loop.time() + MEND_S
    while not _are_level(nodes):
        if loop.time() > until_s:
            judge.problem(f"the replicas do not become level: {_standing(nodes)}, {judge.state}")
            return
        await asyncio.sleep(_LOOK_S)


def _are_level(nodes: list[Node]) -> bool:
    stores = [node.store for node in nodes]
    if any(store is None for store in stores):
        return False
    places = {(one.log_end, one.confirmed_offset, one.dispatched_offset) for one in stores if one is not None}
    return len(places) == 1 and len(set(places.pop())) == 1


def _standing(nodes: list[Node]) -> str:
    words: list[str] = []
    for node in nodes:
        if node.replica is None:
            words.append(f"node {node.number} is down ({node.machine.down})")
        else:
            status = node.replica.status()
            words.append(
                f"node {node.number}: replica {status.id} {status.role} epoch {status.epoch} end {status.log_end}"
                f" confirmed {status.confirmed} ({status.reason})"
            )
    return "; ".join(words)


async def _watch(loop: VirtualLoop, judge: ReplicaJudge) -> None:
    while True:
        await asyncio.sleep(_LOOK_S)
        judge.look_at_authority()
        judge.look_at_failures(loop.time())


async def _supervise(nodes: list[Node], judge: ReplicaJudge) -> None:
    """Start a process again that stopped by itself, as an operator does."""
    while True:
        await asyncio.sleep(0.5)
        for node in nodes:
            if node.stopped and not node.machine.down and not node.is_busy:
                judge.halted(node)
                node.kill()
                if BEHIND in node.stopped:
                    node.wipe()
                node.start()
