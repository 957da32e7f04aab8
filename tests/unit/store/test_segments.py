"""Zeros ahead of small writes: they never touch what is written, and large writes do without them."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from aerobee.store.commitlog import ZERO_AHEAD, Segments
from aerobee.testing.disk import RecordingDisk
from aerobee.testing.platter import Inode

SIZE = 4 * ZERO_AHEAD


class CountingDisk(RecordingDisk):
    """Knows how often a file was written to."""

    writes = 0

    def write_inode(self, inode: Inode, path: str, offset: int, data: bytes | bytearray | memoryview) -> None:
        self.writes += 1
        super().write_inode(inode, path, offset, data)


def written(sizes: list[int], *, zero_ahead: bool) -> tuple[bytes, bytes, int]:
    """Write so many bytes behind each other.

    Return the file, what it should begin with, and the writes made beside them.
    """
    disk = CountingDisk()
    segments = Segments(disk, "/log", SIZE, zero_ahead)
    segments.load()
    expected = b""
    for number, size in enumerate(sizes):
        data = bytes([number % 255 + 1]) * size
        segments.prepare(len(expected), size)
        segments.write(len(expected), data)
        expected += data
    return segments.read(0, SIZE), expected, disk.writes - len(sizes)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(1, ZERO_AHEAD // 4), min_size=1, max_size=12))
def test_what_is_written_stays_and_behind_it_are_zeros(sizes: list[int]) -> None:
    for zero_ahead in (True, False):
        found, expected, _ = written(sizes, zero_ahead=zero_ahead)
        assert found == expected + bytes(SIZE - len(expected))


def test_zeros_come_once_for_many_small_writes_and_not_for_large_ones() -> None:
    assert written([1000] * 100, zero_ahead=True)[2] == 1
    assert written([1000] * 300, zero_ahead=True)[2] == 2
    assert written([ZERO_AHEAD // 2] * 4, zero_ahead=True)[2] == 0
    assert written([1000] * 100, zero_ahead=False)[2] == 0
