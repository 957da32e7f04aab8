"""The journal of a group's state under random changes: whoever reads it, in whatever pieces, has the master's state."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from aerobee.broker.groupstate.image import StateImage
from aerobee.model.group import SubscriptionGroupConfig
from aerobee.model.queue import MessageQueue
from aerobee.model.topic import TopicConfig
from aerobee.testing.brokerkit import BrokerKit, settle
from aerobee.testing.disk import RecordingDisk
from aerobee.testing.pairkit import STORE, Pair, run_pair
from aerobee.testing.storekit import bodies, draft


def change(kit: BrokerKit, rng: random.Random) -> None:
    """Change something as the features of a broker do."""
    state, name = kit.state, f"N{rng.randrange(6)}"
    kind = rng.randrange(9)
    if kind == 0:
        state.catalog.put_topic(TopicConfig(name, rng.randrange(1, 9), 4))
    elif kind == 1 and state.catalog.find(name) is not None:
        assert kit.broker.journal is not None
        kit.broker._delete_topics([name])
        state.catalog.delete_topic(name)
        state.offsets.remove_topic(name)
    elif kind == 2:
        state.catalog.put_group(SubscriptionGroupConfig(name, retry_max_times=rng.randrange(20)))
    elif kind == 3:
        state.catalog.delete_group(name)
        state.offsets.remove_group(name)
    elif kind == 4:
        state.offsets.commit("G", name, rng.randrange(3), rng.randrange(100))
    elif kind == 5:
        state.offsets.reset("G", name, rng.randrange(3), rng.randrange(100))
    elif kind == 6:
        state.offsets.take_reset("G", name, rng.randrange(3))
    elif kind == 7:
        now_s = kit.clock.monotonic()
        state.locks.lock("G", [MessageQueue(name, "broker-a", 0)], f"client{rng.randrange(2)}", now_s)
    elif state.catalog.find(name) is not None:
        kit.store.append([draft(rng.randbytes(20_000), name.encode())])


def tables(kit: BrokerKit) -> dict[str, object]:
    """Return what the journal is about, without what a broker makes by itself at a start."""
    journal = kit.broker.journal
    assert journal is not None
    found: dict[str, object] = {name: dict(entries) for name, entries in journal.image.sections.items()}
    del found["progress"], found["numbers"]
    found["live topics"] = dict(kit.state.catalog.topic_table.topics)
    found["live offsets"] = {key: dict(queues) for key, queues in kit.state.offsets.table.items()}
    found["live resets"] = {key: dict(queues) for key, queues in kit.state.offsets.resets.items()}
    found["deletions"] = kit.store.deletions.positions()
    found["messages"] = {f"N{n}": bodies(kit.store, b"N%d" % n) for n in range(6)}
    return found


@pytest.mark.parametrize("seed", range(30))
def test_replay_equals_the_state(seed: int) -> None:
    async def main(pair: Pair) -> None:
        rng = random.Random(seed)
        for _ in range(60):
            for _ in range(rng.randrange(4)):
                change(pair.master, rng)
            await settle()
            await pair.master.pass_time(rng.choice((0.02, 0.3, 1.1)), 0.3)
            if rng.random() < 0.4:
                copy_some(pair, rng)
            if rng.random() < 0.1:
                pair.restart_follower()
        await pair.master.pass_time(1.1)
        pair.follower.follow(pair.master)
        wanted = tables(pair.master)
        assert tables(pair.follower) == wanted
        pair.restart_follower()
        assert tables(pair.follower) == wanted
        fresh = pair.start_follower(0, RecordingDisk(seed=3))
        fresh.follow(pair.master)
        assert tables(fresh) == wanted
        again = pair.fail_over()
        await again.pass_time(1.1)
        assert tables(again) == wanted

    run_pair(main, replace(STORE, mapped_file_size_commit_log=1 << 18))


def copy_some(pair: Pair, rng: random.Random) -> None:
    """Give the follower the master's log up to the end of any record that it lacks."""
    store, source = pair.follower.store, pair.master.store
    ends = [store.log_end]
    while ends[-1] < source.log_end:
        size = int.from_bytes(source.read_log(ends[-1], 4), "big")
        if size == 0:
            break
        ends.append(ends[-1] + size)
    end = rng.choice(ends)
    while store.log_end < end:
        segment_end = (store.log_end // (1 << 18) + 1) << 18
        store.append_raw(store.log_end, source.read_log(store.log_end, min(end, segment_end) - store.log_end))
    store.set_confirm_limit(end)
    pair.follower.tick()


@pytest.mark.parametrize("seed", range(20))
def test_an_image_learns_a_snapshot_over_anything(seed: int) -> None:
    """A snapshot and the changes between its records give the same image, whatever was known before."""
    rng = random.Random(seed)
    live: dict[str, int] = {}
    leader, follower = StateImage(["a"]), StateImage(["a"])
    for number in range(10):
        follower.put("a", f"old{number}", number)
    follower.begin()
    for key in [f"k{number}" for number in range(20)]:
        live[key] = 1
    for key, value in leader.changed("a", live).items():
        leader.put("a", key, value)
    waiting = [key for _, key in leader]
    while waiting:
        key = rng.choice(list(live))
        if rng.random() < 0.5:
            live[key] = rng.randrange(100)
        else:
            del live[key]
        for changed, value in leader.changed("a", live).items():
            leader.put("a", changed, value)
            follower.put("a", changed, value)
        key = waiting.pop(0)
        if key in leader.sections["a"]:
            follower.put("a", key, leader.sections["a"][key])
        if not live:
            live["last"] = 1
    for changed, value in leader.changed("a", live).items():
        leader.put("a", changed, value)
        follower.put("a", changed, value)
    gone = follower.end()
    assert follower.sections == leader.sections == {"a": live}
    assert {key for _, key in gone} == {f"old{number}" for number in range(10)}
    assert follower.end() == []
