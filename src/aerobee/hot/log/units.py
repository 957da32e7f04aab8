"""Consume queue units: 20 bytes each, physical offset 8, size 4, tags code 8. Loops are inside.

RocketMQ: ConsumeQueue.putMessagePositionInfo, DefaultMessageStore.getMessage.
"""

from typing import Final

from librt.strings import BytesWriter, read_i32_be, read_i64_be, write_i32_be, write_i64_be
from mypy_extensions import i32, i64

from aerobee.errors import InvalidArgumentError
from aerobee.hot.log.draft import Draft
from aerobee.hot.log.layout import UNIT_SIZE

# Why a selection ended.
END_OF_UNITS: Final = 0
COUNT_REACHED: Final = 1
BYTES_REACHED: Final = 2
END_OF_LOG: Final = 3  # a unit points at or behind `physical_end`: not yet safe to read
SCAN_REACHED: Final = 4


class Selection:
    """What a pull takes from a run of units. Mostly all of them, one after the other: then nothing is listed."""

    def __init__(self, buf: bytes) -> None:
        self.buf: bytes = buf
        self.count: i64 = 0
        # The unit of the first message, counted from the start of the buffer.
        self.first: i64 = 0
        # The unit of each message, where some were passed over between them.
        self.scattered: list[int] | None = None
        # The first unit not looked at: the next pull begins here.
        self.next_unit: int = 0
        self.size_total: int = 0
        self.stop: int = END_OF_UNITS

    def take(self, unit: i64) -> None:
        """One more message, of a unit behind those taken."""
        if self.scattered is not None:
            self.scattered.append(unit)
        elif self.count == 0:
            self.first = unit
        elif unit != self.first + self.count:
            self.scattered = [*range(self.first, self.first + self.count), unit]
        self.count += 1

    def unit(self, number: i64) -> i64:
        """The unit of message `number` of these, counted from the start of the buffer."""
        if self.scattered is not None:
            return self.scattered[number]
        return self.first + number

    def physical_offset(self, number: i64) -> i64:
        return read_i64_be(self.buf, self.unit(number) * UNIT_SIZE)

    def size(self, number: i64) -> i64:
        return i64(read_i32_be(self.buf, self.unit(number) * UNIT_SIZE + 8))

    @property
    def units(self) -> list[int]:
        return [self.unit(number) for number in range(self.count)]

    @property
    def physical_offsets(self) -> list[int]:
        return [self.physical_offset(number) for number in range(self.count)]

    @property
    def sizes(self) -> list[int]:
        return [self.size(number) for number in range(self.count)]


def encode_units(drafts: list[Draft]) -> bytes:
    """The units of drafts of one queue, in their order."""
    out = BytesWriter()
    for draft in drafts:
        write_i64_be(out, draft.physical_offset)
        write_i32_be(out, i32(draft.size))
        write_i64_be(out, draft.tags_code)
    return out.getvalue()


def follow_on(drafts: list[Draft], queue_offset: int) -> bool:
    """Whether the drafts are those of one queue from `queue_offset` on, without a gap."""
    expected: i64 = queue_offset
    for draft in drafts:
        if draft.queue_offset != expected:
            return False
        expected += 1
    return True


def encode_unit(physical_offset: int, size: int, tags_code: int) -> bytes:
    """One unit."""
    if not 0 <= size <= 0x7FFFFFFF:
        raise InvalidArgumentError(f"a unit cannot hold a size of {size}")
    out = BytesWriter()
    write_i64_be(out, physical_offset)
    write_i32_be(out, i32(size))
    write_i64_be(out, tags_code)
    return out.getvalue()


def encode_unit_columns(physical_offsets: list[int], sizes: list[int], tags_codes: list[int]) -> bytes:
    """Units from three lists of equal length."""
    if len(sizes) != len(physical_offsets) or len(tags_codes) != len(physical_offsets):
        raise InvalidArgumentError("the three columns of units differ in length")
    out = BytesWriter()
    for i in range(len(physical_offsets)):
        write_i64_be(out, physical_offsets[i])
        write_i32_be(out, i32(sizes[i]))
        write_i64_be(out, tags_codes[i])
    return out.getvalue()


def decode_units(buf: bytes) -> list[tuple[int, int, int]]:
    """Every whole unit of a buffer as (physical offset, size, tags code)."""
    units: list[tuple[int, int, int]] = []
    at: i64 = 0
    end: i64 = len(buf) - UNIT_SIZE
    while at <= end:
        units.append((read_i64_be(buf, at), read_i32_be(buf, at + 8), read_i64_be(buf, at + 12)))
        at += UNIT_SIZE
    return units


def first_physical(buf: bytes) -> int:
    """Where the record of the first unit lies; 0 where there is no unit."""
    return read_i64_be(buf, 0) if len(buf) >= UNIT_SIZE else 0


def select_units(
    buf: bytes,
    start: int,
    tag_codes: set[int] | None,
    count_max: int,
    bytes_max: int,
    physical_min: int = 0,
    physical_end: int = 0x7FFFFFFFFFFFFFFF,
    scan_max: int = 16000,
) -> Selection:
    """Choose the messages of a pull: from unit `start`, those whose tags code is asked for.

    The first message is taken whatever its size. Units below `physical_min` (their segment is deleted) and
    blank ones are passed over. RocketMQ: DefaultMessageStore.getMessage, isTheBatchFull.
    """
    chosen = Selection(buf)
    unit: i64 = max(start, 0)
    units: i64 = len(buf) // UNIT_SIZE
    scan_end: i64 = unit + scan_max
    low: i64 = physical_min
    high: i64 = physical_end
    count: i64 = 0
    total: i64 = 0
    while unit < units:
        if unit >= scan_end:
            chosen.stop = SCAN_REACHED
            break
        if count > 0 and count >= count_max:
            chosen.stop = COUNT_REACHED
            break
        at: i64 = unit * UNIT_SIZE
        physical: i64 = read_i64_be(buf, at)
        size: i64 = i64(read_i32_be(buf, at + 8))
        if physical >= high:
            chosen.stop = END_OF_LOG
            break
        if count > 0 and total + size > bytes_max:
            chosen.stop = BYTES_REACHED
            break
        # A queue that starts in the middle of its file is filled up with units of size 2^31 - 1 before.
        if physical >= low and 0 < size < 0x7FFFFFFF:
            if tag_codes is None or read_i64_be(buf, at + 12) in tag_codes:
                chosen.take(unit)
                count += 1
                total += size
        unit += 1
    chosen.next_unit = unit
    chosen.size_total = total
    return chosen


def runs_of(physical_offsets: list[int], sizes: list[int]) -> list[tuple[int, int]]:
    """Messages that lie end to end joined into (physical offset, size) runs, so that one read takes many."""
    runs: list[tuple[int, int]] = []
    begin: i64 = -1
    end: i64 = -1
    for i in range(len(physical_offsets)):
        physical: i64 = physical_offsets[i]
        if physical != end:
            if begin >= 0:
                runs.append((begin, end - begin))
            begin = physical
        end = physical + sizes[i]
    if begin >= 0:
        runs.append((begin, end - begin))
    return runs
