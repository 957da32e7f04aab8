"""Brokers that follow a master's log and take over: what the master did is not done again, the rest goes on."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from aerobee.model.names import TIMER_TOPIC
from aerobee.model.producermark import PRODUCER_MARK
from aerobee.protocol.codes import ResponseCode
from aerobee.testing.batchkit import ended, keyed, plan, rows
from aerobee.testing.brokerkit import BrokerKit, settle
from aerobee.testing.pairkit import Pair, run_pair
from aerobee.testing.sendkit import COMMIT, ROLLBACK, end, half, heartbeat, send
from aerobee.testing.storekit import bodies


async def sent(kit: BrokerKit, name: str, **properties: str) -> None:
    answer = await kit.connect().call(send(name, name.encode(), properties=properties))
    assert answer.code == 0, answer.remark


def test_a_follower_does_nothing_by_itself() -> None:
    async def main(pair: Pair) -> None:
        await sent(pair.master, "level", DELAY="1")
        await sent(pair.master, "timer", TIMER_DELAY_MS="500")
        await pair.master.connect().call(half("half"))
        pair.follower.follow(pair.master)
        end_before = pair.follower.store.log_end
        await pair.follower.pass_time(100)
        assert pair.follower.store.log_end == end_before
        assert bodies(pair.follower.store, b"T") == []
        assert not pair.follower.broker.is_behind(pair.clock.now_ms())

    run_pair(main)


def test_delay_levels_go_on_once() -> None:
    async def main(pair: Pair) -> None:
        for number in range(10):
            await sent(pair.master, f"{number}", DELAY="1" if number < 5 else "2")
        await pair.pass_time(2)
        assert len(bodies(pair.follower.store, b"T")) == 5
        leader = pair.fail_over()
        await leader.pass_time(10)
        assert bodies(leader.store, b"T") == [b"%d" % number for number in range(10)]
        leader.broker.scheduler.schedule.validate()

    run_pair(main)


def test_timers_go_on_once_and_cancelled_ones_stay_cancelled() -> None:
    async def main(pair: Pair) -> None:
        pair.follower.broker.timers.index._run_size = 8
        for number in range(40):
            await sent(pair.master, f"{number}", TIMER_DELAY_MS=str(1000 + 100 * number))
        await sent(pair.master, "x", TIMER_DELIVER_MS=str(pair.clock.now_ms() + 4_950), TIMER_DEL_UNIQKEY="T+39")
        await pair.pass_time(3)
        before = len(bodies(pair.follower.store, b"T"))
        assert 15 < before < 30
        leader = pair.fail_over()
        await leader.pass_time(10, 0.1)
        assert bodies(leader.store, b"T") == [b"%d" % number for number in range(39)]
        assert leader.broker.timers.pending == 0

    run_pair(main)


def test_the_masters_progress_empties_the_followers_index() -> None:
    async def main(pair: Pair) -> None:
        timers = pair.follower.broker.timers
        timers.index._run_size = 8
        for number in range(60):
            await sent(pair.master, f"{number}", TIMER_DELAY_MS=str(1000 + 50 * number))
        await pair.pass_time(3)
        assert 10 < timers.pending < 50
        await pair.pass_time(20, 0.5)
        assert (timers.pending, timers._marked, timers._held) == (0, {}, [])
        files = pair.disks[1].listdir(timers.index.directory)
        assert not [name for name in files if name.startswith("run-")]
        leader = pair.fail_over()
        await leader.pass_time(5)
        assert bodies(leader.store, b"T") == [b"%d" % number for number in range(60)]

    run_pair(main)


def test_transactions_are_ended_once() -> None:
    async def main(pair: Pair) -> None:
        client = pair.master.connect()
        await client.call(heartbeat())
        answers = [await client.call(half(f"{number}", b"%d" % number)) for number in range(6)]
        assert (await client.call(end(answers[0], COMMIT))).code == 0
        assert (await client.call(end(answers[1], ROLLBACK))).code == 0
        # The questions come at 6 s: each half message has a newer copy then.
        await pair.pass_time(8)
        assert (await client.call(end(answers[2], COMMIT))).code == 0
        leader = pair.fail_over()
        assert leader.broker.transactions.pending == 3
        leader.broker.transactions.table.validate()
        again = leader.connect()
        await again.call(heartbeat())
        # Said twice, because the answer was lost: the first end counts.
        assert (await again.call(end(answers[2], COMMIT))).code == 0
        assert (await again.call(end(answers[1], COMMIT))).code == ResponseCode.SYSTEM_ERROR
        assert (await again.call(end(answers[3], COMMIT))).code == 0
        assert (await again.call(end(answers[4], ROLLBACK))).code == 0
        await leader.pass_time(31)
        assert len(await again.pushes()) == 1
        assert bodies(leader.store, b"T") == [b"0", b"2", b"3"]
        assert leader.broker.transactions.pending == 1

    run_pair(main)


def test_batches_and_idempotent_sends_go_on() -> None:
    async def main(pair: Pair) -> None:
        client = pair.master.connect()
        await client.call(rows("1", "2"))
        await client.call(ended("prepare", plan(a1=1)))
        await client.call(keyed("k1", "k2", query="K"))
        mark = {PRODUCER_MARK: "0123456789abcdef:7"}
        first = await client.call(send("once", b"once", properties=mark))
        leader = pair.fail_over()
        again = leader.connect()
        repeat = await again.call(send("once", b"once", properties=mark))
        assert (repeat.code, repeat.ext["msgId"]) == (0, first.ext["msgId"])
        assert (await again.call(ended("commit", plan(a1=1)))).code == 0
        assert (await again.call(ended("commit", plan(a1=1)))).code == 0
        assert (await again.call(keyed("k2", "k3", query="K"))).code == 0
        await leader.pass_time(2)
        assert Counter(bodies(leader.store, b"T")) == Counter([b"1", b"2", b"k1", b"k2", b"k3", b"once"])

    run_pair(main)


@pytest.mark.parametrize("records", range(0, 14))
@pytest.mark.parametrize("with_keys", [False, True])
def test_rows_cut_short_are_finished(records: int, with_keys: bool) -> None:
    """The follower has so many records of the commit's write, or of a write of rows with keys."""

    async def main(pair: Pair) -> None:
        client = pair.master.connect()
        names = [f"row-{number}" for number in range(10)]
        if not with_keys:
            await client.call(rows(*names))
            await client.call(ended("prepare", plan(a1=1)))
        pair.follower.follow(pair.master)
        start = pair.follower.store.log_end
        last = keyed(*names) if with_keys else ended("commit", plan(a1=1))
        await client.call(last)
        await settle()
        cut_at(pair, boundaries_from(pair, start)[: records + 1][-1])
        pair.take_over()
        await pair.follower.pass_time(3)
        assert (await pair.follower.connect().call(last)).code == 0
        await pair.follower.pass_time(3)
        assert Counter(bodies(pair.follower.store, b"T")) == Counter(name.encode() for name in names)

    run_pair(main)


@pytest.mark.parametrize("seed", range(40))
def test_a_log_cut_anywhere_goes_on_once(seed: int) -> None:
    """The master dies, and the follower has its log up to some record: inside a write of the master, too. Everything
    whose first record the follower has is delivered once."""

    async def main(pair: Pair) -> None:
        rng = random.Random(seed)
        client = pair.master.connect()
        pair.follower.broker.timers.index._run_size = 8
        await client.call(heartbeat())
        waiting = []
        for number in range(30):
            name = f"{number}"
            kind = rng.choice(("delay", "timer", "half", "batch", "keys"))
            if kind == "delay":
                await sent(pair.master, name, DELAY=str(rng.choice((1, 2))))
            elif kind == "timer":
                await sent(pair.master, name, TIMER_DELAY_MS=str(rng.randrange(100, 6000)))
            elif kind == "half":
                waiting.append(await client.call(half(name, name.encode())))
            elif kind == "batch":
                query = f"Q{number}"
                await client.call(rows(*(f"{name}.{row}" for row in range(5)), query=query))
                await client.call(ended("prepare", plan(a1=1), query=query))
                client.send(ended("commit", plan(a1=1), query=query))
            else:
                client.send(keyed(*(f"{name}.{row}" for row in range(5)), query=f"Q{number}"))
            if waiting and rng.random() < 0.4:
                client.send(end(waiting.pop(), COMMIT))
            await settle()
            if rng.random() < 0.5:
                await pair.pass_time(rng.random())
            if rng.random() < 0.1:
                pair.restart_follower()
        start = pair.follower.store.log_end
        await pair.master.pass_time(rng.choice((0, 0, 1, 4)), 0.1)
        cut_at(pair, rng.choice(boundaries_from(pair, start)))
        wanted = deliverable(pair.follower)
        leader = pair.take_over()
        await leader.pass_time(20, 0.1)
        found = Counter(body.decode() for queue in range(4) for body in bodies(leader.store, b"T", queue))
        assert not [name for name, count in found.items() if count > 1]
        assert wanted <= set(found)
        leader.broker.transactions.table.validate()
        leader.broker.scheduler.schedule.validate()

    run_pair(main)


def boundaries_from(pair: Pair, start: int) -> list[int]:
    """Return where the records of the master's log begin and end, from a place on."""
    found = [start]
    while found[-1] < pair.master.store.log_end:
        found.append(found[-1] + int.from_bytes(pair.master.store.read_log(found[-1], 4), "big"))
    return found


def cut_at(pair: Pair, end_at: int) -> None:
    """Give the follower the master's log up to a place."""
    store = pair.follower.store
    if end_at > store.log_end:
        store.append_raw(store.log_end, pair.master.store.read_log(store.log_end, end_at - store.log_end))
    store.set_confirm_limit(end_at)
    pair.follower.tick()


def deliverable(kit: BrokerKit) -> set[str]:
    """Return the names of delayed and timed messages that the log holds."""
    found = {body.decode() for level in (0, 1) for body in bodies(kit.store, b"SCHEDULE_TOPIC_XXXX", level)}
    return found | {body.decode() for body in bodies(kit.store, TIMER_TOPIC.encode())}
