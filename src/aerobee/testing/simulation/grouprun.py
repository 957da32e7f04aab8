"""One run with replicas: a group of three is loaded, broken and mended, until everything is handled."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from aerobee.broker.assembly import Broker
from aerobee.store.messagestore import MessageStore
from aerobee.testing.crash import CrashMode
from aerobee.testing.loop import VirtualLoop
from aerobee.testing.simulation.group import GROUP, GroupCluster, GroupLevel
from aerobee.testing.simulation.groupfaults import GroupFaults
from aerobee.testing.simulation.groupjudge import GroupJudge
from aerobee.testing.simulation.judge import Stored
from aerobee.testing.simulation.run import Load, RunOutcome, conclude, drained, endure, run_virtually
from aerobee.testing.simulation.story import Story
from aerobee.testing.simulation.world import World

# Virtual seconds until a group whose faults are mended has all replicas in sync again.
_MENDED_S: Final = 60.0
# Replicas are given so many looks, with so much time between, to have dispatched the same log.
_STATE_TRIES: Final = 400
_STATE_PAUSE_S: Final = 0.05

PrepareGroup = Callable[[World, GroupCluster], None]


def run_group_seed(seed: int, *, prepare: PrepareGroup | None = None) -> RunOutcome:
    """Run one seed with replicas. `prepare` may change the cluster before it starts, to plant a bug."""
    return run_virtually(seed, lambda loop, outcome: _run(loop, outcome, prepare))


async def _run(loop: VirtualLoop, outcome: RunOutcome, prepare: PrepareGroup | None) -> None:
    world = World(loop, outcome.seed)
    world.problems = outcome.problems
    outcome.faults, outcome.expected_errors = world.faults, world.expected_errors
    story = Story(world.trace, loop.time)
    cluster = GroupCluster(world, story, GroupLevel.drawn(world))
    load = Load(world, story)
    if prepare is not None:
        prepare(world, cluster)
    async with asyncio.timeout(_MENDED_S):
        await cluster.start()
    load.start()
    faults = GroupFaults(world, story, cluster, load.clients)
    operator = loop.create_task(faults.operate(), name="operator")
    await endure(loop, outcome, story, cluster, load, faults)
    judge = GroupJudge(story, cluster.level)
    judge.jumped_s = {GROUP: spread_s(cluster)}
    try:
        async with asyncio.timeout(_MENDED_S):
            await cluster.mended()
    except TimeoutError:
        outcome.problems.append(f"the group does not serve again: {_told(cluster)}")
    await drained(loop, load, judge)
    load.watching.cancel()
    operator.cancel()
    master = cluster.master()
    if master is None:
        outcome.problems.append(f"the group has no master at the end: {_told(cluster)}")
        conclude(outcome, world, judge)
        return
    outcome.problems += await _state_problems(cluster)
    stored = [Stored(GROUP, topic, queue_id, tuple(records)) for (topic, queue_id), records in master.stored().items()]
    mode = world.entropy.choose(list(CrashMode))
    for replica in cluster.replicas:
        assert replica.node is not None
        store = replica.node.state.store
        judge.logs[replica.machine.address] = (store.log_start, _bytes(store))
        judge.after_cuts[replica.machine.address] = replica.survivors(mode, outcome.seed)
    outcome.problems += judge.verdict(stored, {GROUP: judge.after_cuts[master.machine.address]})
    conclude(outcome, world, judge)


async def _state_problems(cluster: GroupCluster) -> list[str]:
    """Return how the group's state differs between replicas that have dispatched the same log."""
    brokers = [replica.node.broker for replica in cluster.replicas if replica.node is not None]
    for _ in range(_STATE_TRIES):
        if (
            len(
                {
                    end
                    for broker in brokers
                    for end in (broker.state.store.log_end, broker.state.store.dispatched_offset)
                }
            )
            == 1
        ):
            break
        await asyncio.sleep(_STATE_PAUSE_S)
    else:
        return ["the replicas do not come to have dispatched the same log"]
    problems = []
    told = [(broker.state.address, group_state(broker)) for broker in brokers]
    for address, state in told[1:]:
        for name, entries in state.items():
            if entries != told[0][1][name]:
                problems.append(f"{name} at {address} differ from those at {told[0][0]}: {entries} {told[0][1][name]}")
    return problems


def group_state(broker: Broker) -> dict[str, dict[str, object]]:
    """Return what replicas must agree on: by what they know of the journal, and by their own tables."""
    assert broker.journal is not None
    found: dict[str, dict[str, object]] = {
        name: dict(broker.journal.image.sections[name]) for name in ("topics", "groups", "offsets", "locks")
    }
    found["deletions"] = {topic.decode(): place for topic, place in broker.state.store.deletions.positions().items()}
    if broker.is_following:
        # A leader's own tables may be ahead of the journal by a second. A follower's are what the journal says.
        live = broker.state.catalog.topic_table.topics
        missing = found["topics"].keys() - live.keys()
        assert not missing, f"topics of the journal are missing in the table: {missing}"
    return found


def _bytes(store: MessageStore) -> bytes:
    """Return the log up to the confirmed offset."""
    parts, at = [], store.log_start
    while at < store.confirmed_offset:
        part = store.read_log(at, store.confirmed_offset - at)
        parts.append(part)
        at += len(part)
    return b"".join(parts)


def spread_s(cluster: GroupCluster) -> float:
    """Return by how much the wall clocks of two replicas may differ."""
    return sum(replica.machine.clock_moved_ms for replica in cluster.replicas) / 1000


def _told(cluster: GroupCluster) -> str:
    """Tell what each replica says of itself."""
    told = []
    for replica in cluster.replicas:
        status = replica.status
        words = f"{status.role} in epoch {status.epoch}, set {sorted(status.state.in_sync)}" if status else "not up"
        told.append(f"{replica.machine.address} {words}")
    return "; ".join(told)
