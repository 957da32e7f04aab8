"""Stores to damage: written by the real store on a disk in memory, with queues, keys, tags and a rolled log."""

from __future__ import annotations

from aerobee.store.config import StoreConfig
from aerobee.store.index import MessageIndex
from aerobee.store.messagestore import MessageStore
from aerobee.store.offline.directory import StoreDirectory, look_at
from aerobee.store.offline.problems import Problem
from aerobee.store.offline.verify import VerifyReport, verify
from aerobee.testing.clock import VirtualClock
from aerobee.testing.disk import RecordingDisk
from aerobee.testing.storekit import ROOT, draft, make_store, small_config


def open_store(
    disk: RecordingDisk, config: StoreConfig | None = None, clock: VirtualClock | None = None
) -> MessageStore:
    """Return an open store with an index."""
    config = config or small_config()
    store = make_store(disk, config, clock=clock, sinks=(MessageIndex(disk, ROOT, config),))
    store.open()
    return store


def fill(store: MessageStore, count: int, start: int = 0, clock: VirtualClock | None = None) -> None:
    """Send messages to two topics of one queue each, every one with a unique key, two keys and a tag."""
    for number in range(start, start + count):
        if clock is not None:
            clock.advance(0.7)
        store.append(
            [
                draft(
                    b"message %d" % number,
                    b"topic%d" % (number % 2),
                    tags=f"Tag{number % 5}",
                    keys=f"k{number} x{number % 7}",
                    uniq_key=f"U{number}",
                )
            ]
        )


def written(count: int = 45, config: StoreConfig | None = None) -> RecordingDisk:
    """Return the disk of a store that was filled and stopped in order."""
    disk = RecordingDisk()
    clock = VirtualClock()
    store = open_store(disk, config, clock)
    fill(store, count, clock=clock)
    store.close()
    return disk


def seen(disk: RecordingDisk, *, holder: int | None = None, config: StoreConfig | None = None) -> StoreDirectory:
    """Return the directory as seen from outside; `holder` is a process that has its lock."""
    return look_at(disk, ROOT, config=config, lock_holder=lambda path: holder)


def verified(disk: RecordingDisk, *, holder: int | None = None, config: StoreConfig | None = None) -> VerifyReport:
    """Return a look at everything."""
    return verify(seen(disk, holder=holder, config=config))


def places(report: VerifyReport) -> list[tuple[str, int]]:
    """Return file and byte of each problem."""
    return [place_of(problem) for problem in report.findings.problems]


def place_of(problem: Problem) -> tuple[str, int]:
    """Return the file and byte of a physical offset."""
    return problem.path, problem.offset
