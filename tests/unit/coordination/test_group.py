"""The coordinator of a group over a store that loses answers, is cut off, compacts, restarts and forgets."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import fields, replace

import pytest

from aerobee.coordination.group import LEASE_S, GroupCoordinator
from aerobee.coordination.records import GroupKeys, decode_record, decode_state, encode_record
from aerobee.coordination.values import DeleteKeys, PutKey, Txn
from aerobee.errors import CoordinationError
from aerobee.replication.coordinator import Outcome
from aerobee.replication.values import GroupState, GroupView, LiveReplica, ReplicaMember
from aerobee.testing.clock import VirtualClock
from aerobee.testing.entropy import SeededEntropy
from aerobee.testing.keystore import SimCoordination, SimKeyStore
from aerobee.testing.loop import VirtualLoop, run_virtual
from aerobee.testing.workload import eventually

A, B = "a" * 32, "b" * 32
MEMBER = ReplicaMember(id=0, incarnation=A, address="10.0.0.1:10911", ha_address="10.0.0.1:10912")
KEYS = GroupKeys("c", "g")


class Place:
    """A store with coordinators of one group."""

    def __init__(self) -> None:
        self.store = SimCoordination(SeededEntropy(1))
        self._open: list[GroupCoordinator] = []

    def coordinator(self, name: str = "one") -> tuple[GroupCoordinator, SimKeyStore]:
        client = self.store.client(name)
        coordinator = GroupCoordinator(client, "c", "g", VirtualClock(asyncio.get_running_loop().time))
        self._open.append(coordinator)
        return coordinator, client

    async def close(self) -> None:
        for coordinator in self._open:
            await coordinator.close()


def run(test: Callable[[Place], Awaitable[None]]) -> None:
    async def main(_: VirtualLoop) -> None:
        place = Place()
        try:
            await test(place)
        finally:
            await place.close()

    run_virtual(main)


@pytest.mark.parametrize("record", [GroupState(), MEMBER, LiveReplica(id=1, incarnation=A, epoch=0, log_end=0)])
def test_every_field_of_a_record_is_stored(record: GroupState | ReplicaMember | LiveReplica) -> None:
    changed = {}
    for field in fields(record):
        old = getattr(record, field.name)
        kinds = {bool: not old, int: 7, str: "text", dict: {3: A}, type(None): 3}
        changed[field.name] = kinds[type(old)]
    full = replace(record, **changed)
    if isinstance(full, GroupState):
        assert decode_state(b"k", encode_record(full), full.revision) == full
    else:
        assert decode_record(type(full), b"k", encode_record(full)) == full


def test_names_with_a_slash_are_groups_of_their_own() -> None:
    assert GroupKeys("a/b", "c").prefix != GroupKeys("a", "b/c").prefix
    assert GroupKeys("a", "b/live").state != GroupKeys("a", "b").live(1)


@pytest.mark.parametrize(
    "value",
    [b"", b"{}", b"[1]", b'{"v":2}', b'{"v":1,"epoch":-1}', b'{"v":1,"epoch":"1"}', b'{"v":1,"in_sync":{"0":"x"}}'],
)
def test_a_state_without_sense_is_an_error(value: bytes) -> None:
    with pytest.raises(CoordinationError):
        decode_state(b"/aerobee/c/g/state", value, 1)


def test_ids_count_up_and_an_incarnation_keeps_its_id() -> None:
    async def test(place: Place) -> None:
        one, _ = place.coordinator()
        assert (await one.join(MEMBER)).id == 1
        assert (await one.join(replace(MEMBER, incarnation=B))).id == 2
        assert (await one.join(MEMBER)).id == 1  # its answer was lost: it asks again
        assert (await one.join(replace(MEMBER, id=2, incarnation="c" * 32))).id == 2
        assert (await one.join(replace(MEMBER, id=7, incarnation="d" * 32))).id == 7
        assert (await one.join(replace(MEMBER, incarnation="e" * 32))).id == 8
        assert sorted((await one.view()).members) == [1, 2, 7, 8]

    run(test)


def test_many_join_at_once() -> None:
    async def test(place: Place) -> None:
        coordinators = [place.coordinator(str(number))[0] for number in range(8)]
        members = [replace(MEMBER, incarnation=str(number) * 32) for number in range(8)]
        joined = await asyncio.gather(*(c.join(m) for c, m in zip(coordinators, members, strict=True)))
        assert sorted(member.id for member in joined) == list(range(1, 9))

    run(test)


def test_a_replica_that_was_removed_does_not_come_back() -> None:
    async def test(place: Place) -> None:
        one, _ = place.coordinator()
        await one.join(MEMBER)
        assert await one.remove(1)
        assert not await one.remove(1)
        with pytest.raises(CoordinationError, match="not a member"):
            await one.join(replace(MEMBER, id=1))
        assert (await one.join(replace(MEMBER, incarnation=B))).id == 2

    run(test)


def test_a_copy_of_a_replica_does_not_join_in_its_place() -> None:
    async def test(place: Place) -> None:
        first, _ = place.coordinator()
        joined = await first.join(replace(MEMBER, start="s1"), ("s1",))
        # The same directory is started again. Its answer may be lost, and it asks once more.
        for _ in range(2):
            assert (await first.join(replace(joined, start="s2"), ("s1", "s2"))).id == joined.id
        # Two processes start on directories that were equal. Whoever comes first is the replica.
        other, _ = place.coordinator("other")
        both = [
            coordinator.join(replace(joined, start=start), ("s2", start))
            for coordinator, start in ((first, "s3"), (other, "s4"))
        ]
        done = await asyncio.gather(*both, return_exceptions=True)
        (refused,) = [one for one in done if isinstance(one, CoordinationError)]
        assert not refused.retriable and "ran from another directory last (at 10.0.0.1:10911)" in str(refused)
        assert sum(isinstance(one, ReplicaMember) for one in done) == 1
        # A copy that was never told its id is found by its incarnation.
        with pytest.raises(CoordinationError, match="ran from another directory last"):
            await other.join(replace(MEMBER, start="s5"), ("s1", "s5"))

    run(test)


def test_one_of_two_changes_of_the_state_wins() -> None:
    async def test(place: Place) -> None:
        one, _ = place.coordinator("one")
        two, _ = place.coordinator("two")
        seen = (await one.view()).state
        assert seen == GroupState()
        outcomes = await asyncio.gather(
            one.replace(seen, GroupState(epoch=1, master=1)), two.replace(seen, GroupState(epoch=1, master=2))
        )
        assert set(outcomes) == {Outcome.DONE, Outcome.REFUSED}
        state = (await one.view()).state
        assert state.master == (1 if outcomes[0] is Outcome.DONE else 2)
        assert await one.replace(state, replace(state, epoch=2)) is Outcome.DONE
        assert await two.replace(state, replace(state, epoch=2)) is Outcome.REFUSED

    run(test)


def test_a_lost_answer_is_unknown_and_the_view_tells() -> None:
    async def test(place: Place) -> None:
        one, client = place.coordinator()
        seen = (await one.view()).state
        client.reach.answers_lost = True
        assert await one.replace(seen, GroupState(epoch=1)) is Outcome.UNKNOWN
        client.reach.answers_lost = False
        assert (await one.view()).state.epoch == 1
        assert await one.replace(seen, GroupState(epoch=1)) is Outcome.REFUSED

    run(test)


def test_a_lease_shows_who_lives_and_ends_without_its_keeper() -> None:
    async def test(place: Place) -> None:
        one, _ = place.coordinator("one")
        two, _ = place.coordinator("two")
        live = LiveReplica(id=1, incarnation=A, epoch=0, log_end=0)
        views: list[GroupView] = []
        two.watch(views.append)
        assert await one.keep(live) == LEASE_S
        await eventually(lambda: bool(views) and views[-1].live == {1: live})
        moved = replace(live, log_end=9)
        for _ in range(10):
            await asyncio.sleep(1)
            await one.keep(moved)
        assert views[-1].live == {1: moved}
        stopped = asyncio.get_running_loop().time()
        await eventually(lambda: not views[-1].live)
        assert LEASE_S - 0.1 <= asyncio.get_running_loop().time() - stopped <= LEASE_S + 0.1
        assert await one.keep(moved) == LEASE_S  # it opens a new one
        await eventually(lambda: bool(views[-1].live))
        await one.let_go()
        await eventually(lambda: not views[-1].live)
        await one.let_go()

    run(test)


def test_a_lease_whose_key_is_not_known_to_be_stored_does_not_count() -> None:
    async def test(place: Place) -> None:
        one, client = place.coordinator()
        client.reach.answers_lost = True
        with pytest.raises(CoordinationError):
            await one.keep(LiveReplica(id=1, incarnation=A, epoch=0, log_end=0))
        client.reach.answers_lost = False
        await one.keep(LiveReplica(id=1, incarnation=A, epoch=0, log_end=0))
        assert 1 in (await one.view()).live

    run(test)


def test_a_second_process_of_the_same_replica_takes_its_place() -> None:
    async def test(place: Place) -> None:
        old, _ = place.coordinator("old")
        new, _ = place.coordinator("new")
        live = LiveReplica(id=1, incarnation=A, epoch=0, log_end=0)
        views: list[GroupView] = []
        old.watch(views.append)
        with pytest.raises(CoordinationError, match="took the place"):
            for turn in range(10):
                await old.keep(live)
                await new.keep(replace(live, log_end=turn))
                await asyncio.sleep(0.5)

    run(test)


def test_an_own_request_that_arrives_late_is_no_second_process() -> None:
    async def test(place: Place) -> None:
        one, _ = place.coordinator("one")
        late, _ = place.coordinator("late")
        live = LiveReplica(id=1, incarnation=A, epoch=0, log_end=0)
        one.watch([].append)
        await one.keep(live)
        await late.keep(live)
        await asyncio.sleep(0.5)
        await late.let_go()
        await asyncio.sleep(0.5)
        await one.keep(live)
        assert 1 in (await one.view()).live

    run(test)


@pytest.mark.parametrize("gap", ["cut", "down", "compacted"])
def test_a_gap_of_a_watch_is_closed_by_a_read(gap: str) -> None:
    async def test(place: Place) -> None:
        one, client = place.coordinator("one")
        two, _ = place.coordinator("two")
        views: list[GroupView] = []
        one.watch(views.append)
        await eventually(lambda: bool(views))
        if gap == "down":
            place.store.stop()
            await asyncio.sleep(5)
            place.store.start()
        else:
            client.reach.requests_lost = True
            await asyncio.sleep(1)
        state = (await two.view()).state
        assert await two.replace(state, GroupState(epoch=1)) is Outcome.DONE
        if gap == "compacted":
            place.store.model.compact(place.store.model.revision)
            place.store.model.txn(Txn(success=(PutKey(key=KEYS.prefix + b"x", value=b""),)))
            place.store.model.txn(Txn(success=(DeleteKeys(key=KEYS.prefix + b"x"),)))
            place.store.model.compact(place.store.model.revision)
        client.reach.requests_lost = False
        await eventually(lambda: views[-1].state.epoch == 1, timeout_s=5)
        # And the watch goes on afterwards, without a read.
        state = (await two.view()).state
        await two.replace(state, replace(state, epoch=2))
        await eventually(lambda: views[-1].state.epoch == 2, timeout_s=0.5)
        assert [view.revision for view in views] == sorted(view.revision for view in views)

    run(test)


def test_a_store_that_went_back_is_refused() -> None:
    async def test(place: Place) -> None:
        one, _ = place.coordinator()
        views: list[GroupView] = []
        one.watch(views.append)
        await one.join(MEMBER)
        await one.replace(GroupState(), GroupState(epoch=3))
        await eventually(lambda: bool(views) and views[-1].state.epoch == 3)
        place.store.stop()
        place.store.start(empty=True)
        with pytest.raises(CoordinationError, match="went back"):
            await one.view()
        await asyncio.sleep(10)
        assert views[-1].state.epoch == 3

    run(test)


def test_entries_without_sense_are_set_aside() -> None:
    async def test(place: Place) -> None:
        one, client = place.coordinator()
        await one.join(MEMBER)
        await client.txn(Txn(success=(PutKey(key=KEYS.member(9), value=b"?"), PutKey(key=KEYS.live(9), value=b"{}"))))
        view = await one.view()
        assert (list(view.members), list(view.live)) == ([1], [])

    run(test)
