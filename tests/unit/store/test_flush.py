"""The flush machine and the waiters, on virtual time."""

from __future__ import annotations

from aerobee.errors import StoreError
from aerobee.store.flush import PAGE_SIZE, FlushMachine, FlushPolicy, Waiters


def test_sync_flush_is_group_commit() -> None:
    machine = FlushMachine(FlushPolicy(sync_flush=True))
    assert machine.wrote(100) == 100
    assert machine.wrote(200) is None  # one at a time
    assert machine.wrote(300) is None
    assert machine.confirmed == 0
    assert machine.synced() == 300  # one sync for both that came meanwhile
    assert machine.confirmed == 100
    assert machine.synced() is None
    assert machine.confirmed == machine.flushed == 300
    assert machine.tick(10_000) is None


def test_async_flush_waits_for_time_and_pages() -> None:
    machine = FlushMachine(FlushPolicy(sync_flush=False))
    machine.tick(10_000)
    assert machine.wrote(4 * PAGE_SIZE - 1) is None
    assert machine.confirmed == 4 * PAGE_SIZE - 1
    assert machine.tick(10_499) is None
    assert machine.tick(10_500) is None  # too few pages
    assert machine.wrote(4 * PAGE_SIZE) is None
    assert machine.tick(10_999) is None
    assert machine.tick(11_000) == 4 * PAGE_SIZE
    assert machine.tick(12_000) is None  # under way
    assert machine.synced() is None
    assert machine.flushed == 4 * PAGE_SIZE
    machine.wrote(4 * PAGE_SIZE + 1)
    assert machine.tick(19_999) is None
    assert machine.tick(20_500) == 4 * PAGE_SIZE + 1  # thorough


def test_untimed_async_flush_starts_with_enough_pages() -> None:
    machine = FlushMachine(FlushPolicy(sync_flush=False, timed=False))
    assert machine.wrote(4 * PAGE_SIZE - 1) is None
    assert machine.wrote(4 * PAGE_SIZE) == 4 * PAGE_SIZE


def test_truncation_while_a_sync_is_under_way() -> None:
    machine = FlushMachine(FlushPolicy(sync_flush=True))
    machine.wrote(500)
    machine.truncated(200)
    assert machine.wrote(300) is None
    assert machine.synced() == 300
    assert machine.flushed == 200
    machine.flushed_to(900)
    assert machine.flushed == 300


def test_waiters_are_told_once_in_order() -> None:
    told: list[tuple[int, StoreError | None]] = []
    waiters = Waiters()
    for end in (30, 10, 20, 20):
        waiters.add(end, lambda error, end=end: told.append((end, error)))  # type: ignore[misc]
    gone = waiters.add(15, lambda error: told.append((15, error)))
    gone.cancel()
    assert len(waiters) == 4
    waiters.advance(20)
    waiters.advance(20)
    assert told == [(10, None), (20, None), (20, None)]
    error = StoreError("no")
    waiters.add(40, lambda e: told.append((40, e)))
    waiters.fail(error, beyond=30)
    assert told[3:] == [(40, error)]
    waiters.fail(error)
    assert told[4:] == [(30, error)]
    assert len(waiters) == 0
