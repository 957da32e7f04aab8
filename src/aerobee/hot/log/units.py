"""Units of a consume queue: encode them, choose those of a pull, and take their records out of the log.

A record is taken only after a check that it is the one that its unit means. Apache trusts the unit.
RocketMQ: ConsumeQueue.putMessagePositionInfo, DefaultMessageStore.getMessage.
"""

from __future__ import annotations

from typing import Final, Protocol

from librt.strings import BytesWriter, read_i16_be, read_i32_be, read_i64_be, read_i64_le, write_i32_be, write_i64_be
from mypy_extensions import i32, i64

from aerobee.errors import InvalidArgumentError
from aerobee.hot.log.layout import (
    BORNHOST_V6,
    FIXED_SIZE,
    MAGIC_V1,
    MAGIC_V2,
    PROPERTIES_LENGTH_SIZE,
    RECORD_BODY_POS,
    RECORD_BODY_SIZE_POS,
    RECORD_PHYSICAL_OFFSET_POS,
    RECORD_QUEUE_ID_POS,
    RECORD_QUEUE_OFFSET_POS,
    RECORD_SYS_FLAG_POS,
    STOREHOST_V6,
    UNIT_PHYSICAL_OFFSET_POS,
    UNIT_RECORD_SIZE_POS,
    UNIT_SIZE,
    UNIT_TAGS_CODE_POS,
    V6_HOST_EXTRA,
)
from aerobee.hot.log.record import VERIFY_RECORD, Draft, check_record

# Why a selection ended.
END_OF_UNITS: Final = 0
COUNT_REACHED: Final = 1
BYTES_REACHED: Final = 2
END_OF_LOG: Final = 3  # a unit points to `physical_end` or above, where the log may not be read yet
SCAN_REACHED: Final = 4
_STRETCH_MAX: Final = 1024 * 1024
_DENSE: Final = 4
_SPARE: Final = 4096
# A slice of a mapping makes three objects, a slice of bytes makes one. So one copy of the mapping takes several records
# if at most _GAP_MAX bytes of other queues lie between two of them. The copy stays small enough for the CPU's cache.
_GAP_MAX: Final = 2048
_MAPPED_MAX: Final = 64 * 1024
_MAGIC_MASK: Final = 0xFFFFFFFF
_MAGIC_1: Final = MAGIC_V1 & _MAGIC_MASK
_MAGIC_2: Final = MAGIC_V2 & _MAGIC_MASK


class Selection:
    """The units that a pull takes from a run of units. Usually they follow each other, and then no list is made."""

    def __init__(self, buf: bytes) -> None:
        self.buf: bytes = buf
        self.count: i64 = 0
        # The unit of the first message, counted from the start of the buffer.
        self.first: i64 = 0
        # The unit of each message, if units between them were passed over.
        self.scattered: list[int] | None = None
        # The first unit that was not looked at. The next pull begins here.
        self.next_unit: int = 0
        self.size_total: int = 0
        self.stop: int = END_OF_UNITS

    def take(self, unit: i64) -> None:
        """Add the message of a unit that comes after all units taken so far."""
        if self.scattered is not None:
            self.scattered.append(unit)
        elif self.count == 0:
            self.first = unit
        elif unit != self.first + self.count:
            self.scattered = [*range(self.first, self.first + self.count), unit]
        self.count += 1

    def unit(self, number: i64) -> i64:
        """Return the unit of a message, counted from the start of the buffer. `number` counts the messages taken."""
        if self.scattered is not None:
            return self.scattered[number]
        return self.first + number

    def physical_offset(self, number: i64) -> i64:
        return read_i64_be(self.buf, self.unit(number) * UNIT_SIZE + UNIT_PHYSICAL_OFFSET_POS)

    def size(self, number: i64) -> i64:
        return i64(read_i32_be(self.buf, self.unit(number) * UNIT_SIZE + UNIT_RECORD_SIZE_POS))

    @property
    def units(self) -> list[int]:
        return [self.unit(number) for number in range(self.count)]

    @property
    def physical_offsets(self) -> list[int]:
        return [self.physical_offset(number) for number in range(self.count)]

    @property
    def sizes(self) -> list[int]:
        return [self.size(number) for number in range(self.count)]


class Mapped(Protocol):
    """A file mapped into memory. Its slices are copies."""

    def __getitem__(self, part: slice, /) -> bytes: ...


class Gathered:
    """The records that a selection gave."""

    def __init__(self) -> None:
        # Whole records in order. Records that follow each other in the log are one piece.
        self.pieces: list[bytes | memoryview] = []
        self.size: i64 = 0
        # The numbers of those in the selection whose record is damaged or is another record.
        self.wrong: list[int] = []


def encode_units(drafts: list[Draft]) -> bytes:
    """Return the units of drafts of one queue, in their order."""
    out = BytesWriter()
    for draft in drafts:
        write_i64_be(out, draft.physical_offset)
        write_i32_be(out, i32(draft.size))
        write_i64_be(out, draft.tags_code)
    return out.getvalue()


def follow_on(drafts: list[Draft], queue_offset: int) -> bool:
    """Tell whether the queue offsets of the drafts count up from `queue_offset` without a gap."""
    expected: i64 = queue_offset
    for draft in drafts:
        if draft.queue_offset != expected:
            return False
        expected += 1
    return True


def encode_unit(physical_offset: int, size: int, tags_code: int) -> bytes:
    """Return the bytes of one unit."""
    if not 0 <= size <= 0x7FFFFFFF:
        raise InvalidArgumentError(f"a unit cannot hold a size of {size}")
    out = BytesWriter()
    write_i64_be(out, physical_offset)
    write_i32_be(out, i32(size))
    write_i64_be(out, tags_code)
    return out.getvalue()


def decode_units(buf: bytes) -> list[tuple[int, int, int]]:
    """Return each whole unit of a buffer as (physical offset, size, tags code)."""
    units: list[tuple[int, int, int]] = []
    at: i64 = 0
    end: i64 = len(buf) - UNIT_SIZE
    while at <= end:
        units.append(
            (
                read_i64_be(buf, at + UNIT_PHYSICAL_OFFSET_POS),
                read_i32_be(buf, at + UNIT_RECORD_SIZE_POS),
                read_i64_be(buf, at + UNIT_TAGS_CODE_POS),
            )
        )
        at += UNIT_SIZE
    return units


def first_physical(buf: bytes) -> int:
    """Return the place in the log of the first unit's record, or 0 if there is no unit."""
    return read_i64_be(buf, UNIT_PHYSICAL_OFFSET_POS) if len(buf) >= UNIT_SIZE else 0


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
    """Return the units of a pull that starts at unit `start`: those with one of `tag_codes`, or all if that is None.

    The first message is taken whatever its size. Units that point below `physical_min`, where the log is deleted, and
    blank units are passed over. RocketMQ: DefaultMessageStore.getMessage, isTheBatchFull.
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
        physical: i64 = read_i64_be(buf, at + UNIT_PHYSICAL_OFFSET_POS)
        size: i64 = i64(read_i32_be(buf, at + UNIT_RECORD_SIZE_POS))
        if physical >= high:
            chosen.stop = END_OF_LOG
            break
        if count > 0 and total + size > bytes_max:
            chosen.stop = BYTES_REACHED
            break
        # Units of size 2^31 - 1 fill the file of a queue up to the place where the queue starts.
        if physical >= low and 0 < size < 0x7FFFFFFF:
            if tag_codes is None or read_i64_be(buf, at + UNIT_TAGS_CODE_POS) in tag_codes:
                chosen.take(unit)
                count += 1
                total += size
        unit += 1
    chosen.next_unit = unit
    chosen.size_total = total
    return chosen


def is_record_of(
    buf: bytes, pos: i64, size: i64, physical_offset: i64, queue_id: i64, queue_offset: i64, topic: bytes
) -> bool:
    """Tell whether the `size` bytes at `pos` are the record with these values."""
    return _is_record(buf, pos, size, physical_offset, queue_id, queue_offset, topic, _first_word(topic))


def _first_word(topic: bytes) -> i64:
    """Return a topic of fewer than eight bytes as a number, which can be compared in one step."""
    return int.from_bytes(topic, "little", signed=True) if len(topic) < 8 else 0


def _is_record(
    buf: bytes,
    pos: i64,
    size: i64,
    physical_offset: i64,
    queue_id: i64,
    queue_offset: i64,
    topic: bytes,
    first_word: i64,
) -> bool:
    if size < FIXED_SIZE or pos < 0 or pos + size > len(buf):
        return False
    # Total size and magic in one read.
    word: i64 = read_i64_be(buf, pos)
    magic: i64 = word & _MAGIC_MASK
    if word >> 32 != size or (magic != _MAGIC_1 and magic != _MAGIC_2):
        return False
    if i64(read_i32_be(buf, pos + RECORD_QUEUE_ID_POS)) != queue_id:
        return False
    if read_i64_be(buf, pos + RECORD_QUEUE_OFFSET_POS) != queue_offset:
        return False
    if read_i64_be(buf, pos + RECORD_PHYSICAL_OFFSET_POS) != physical_offset:
        return False
    flags: i64 = i64(read_i32_be(buf, pos + RECORD_SYS_FLAG_POS))
    after_hosts: i64 = pos
    if flags & BORNHOST_V6:
        after_hosts += V6_HOST_EXTRA
    if flags & STOREHOST_V6:
        after_hosts += V6_HOST_EXTRA
    body: i64 = i64(read_i32_be(buf, after_hosts + RECORD_BODY_SIZE_POS))
    at: i64 = after_hosts + RECORD_BODY_POS + body
    end: i64 = pos + size
    if body < 0 or at + PROPERTIES_LENGTH_SIZE > end:
        return False
    length: i64 = buf[at]
    at += 1
    if magic == _MAGIC_2:
        length = i64(read_i16_be(buf, at - 1))
        at += 1
    if length != len(topic) or at + length > end:
        return False
    # A slice would make an object for each record, so the topic is compared by words.
    if length < 8:
        # The word that ends with the topic. It does not begin before the record, whose fixed fields come first.
        return length == 0 or read_i64_le(buf, at + length - 8) >> (64 - length * 8) == first_word
    i: i64 = 0
    while i + 8 <= length:
        if read_i64_be(buf, at + i) != read_i64_be(topic, i):
            return False
        i += 8
    return read_i64_be(buf, at + length - 8) == read_i64_be(topic, length - 8)


def dense_stretch(chosen: Selection, first: int, segment_size: int) -> tuple[int, int]:
    """Return (stop, size): one copy of `size` bytes of the log should take the records [first, stop).

    Records of other queues lie between them. The copy may hold up to three times as many bytes of others as are wanted.
    """
    base: i64 = chosen.physical_offset(first)
    limit: i64 = base - base % segment_size + segment_size
    wanted: i64 = chosen.size(first)
    end: i64 = base + wanted
    count: i64 = chosen.count
    i: i64 = first + 1
    stop: i64 = i
    best: i64 = end
    while i < count:
        physical: i64 = chosen.physical_offset(i)
        size: i64 = chosen.size(i)
        if physical < end or physical + size > limit or physical + size - base > _STRETCH_MAX:
            break
        end = physical + size
        wanted += size
        i += 1
        if end - base <= wanted * _DENSE + _SPARE:
            stop = i
            best = end
    return stop, best - base


def gather_records(
    into: Gathered,
    buf: bytes,
    base: int,
    chosen: Selection,
    first: int,
    stop: int,
    queue_id: int,
    queue_offset: int,
    topic: bytes,
    verify_below: int,
) -> None:
    """Take the records [first, stop) of a selection out of `buf`, which holds the log from `base` on.

    `queue_offset` is that of the selection's unit 0. The checksums of records below `verify_below` are verified too.
    """
    begin: i64 = base
    units = chosen.buf
    scattered = chosen.scattered
    unit: i64 = chosen.first + first
    word: i64 = _first_word(topic)
    # Sound records that follow each other are taken as one piece, [taken_from, taken_to) of the buffer.
    taken_from: i64 = 0
    taken_to: i64 = 0
    i: i64 = first
    while i < stop:
        if scattered is not None:
            unit = scattered[i]
        physical: i64 = read_i64_be(units, unit * UNIT_SIZE + UNIT_PHYSICAL_OFFSET_POS)
        size: i64 = i64(read_i32_be(units, unit * UNIT_SIZE + UNIT_RECORD_SIZE_POS))
        at: i64 = physical - begin
        right = _is_record(buf, at, size, physical, queue_id, queue_offset + unit, topic, word)
        unit += 1
        if right and physical < verify_below:
            right = check_record(buf, at, physical, VERIFY_RECORD) == size
        if not right:
            into.wrong.append(i)
        elif at == taken_to:
            taken_to += size
        else:
            _take(into, buf, taken_from, taken_to)
            taken_from = at
            taken_to = at + size
        i += 1
    _take(into, buf, taken_from, taken_to)


def _take(into: Gathered, buf: bytes, start: i64, stop: i64) -> None:
    if stop > start:
        into.pieces.append(buf if stop - start == len(buf) else buf[start:stop])
        into.size += stop - start


def gather_mapped(
    into: Gathered,
    mapped: Mapped,
    base: int,
    length: int,
    chosen: Selection,
    first: int,
    queue_id: int,
    queue_offset: int,
    topic: bytes,
    verify_below: int,
) -> int:
    """Take records as `gather_records` does, out of a mapped segment, and return the first one that is not in it.

    The segment has `length` bytes from `base` on. Records that lie close together are taken from one copy of it.
    """
    begin: i64 = base
    limit: i64 = begin + length
    count: i64 = chosen.count
    units = chosen.buf
    scattered = chosen.scattered
    i: i64 = first
    while i < count:
        physical: i64 = chosen.physical_offset(i)
        if physical < begin or physical >= limit:
            break
        end: i64 = physical + chosen.size(i)
        stop: i64 = i + 1
        while stop < count:
            unit: i64 = chosen.first + stop
            if scattered is not None:
                unit = scattered[stop]
            following: i64 = read_i64_be(units, unit * UNIT_SIZE + UNIT_PHYSICAL_OFFSET_POS)
            following_end: i64 = following + i64(read_i32_be(units, unit * UNIT_SIZE + UNIT_RECORD_SIZE_POS))
            if following < end or following > end + _GAP_MAX:
                break
            if following_end > limit or following_end > physical + _MAPPED_MAX:
                break
            end = following_end
            stop += 1
        piece = mapped[int(physical - begin) : int(end - begin)]
        if stop == i + 1 and physical >= verify_below:
            # A record alone, as is usual if many queues take turns in the log.
            if is_record_of(piece, 0, end - physical, physical, queue_id, queue_offset + chosen.unit(i), topic):
                into.pieces.append(piece)
                into.size += end - physical
            else:
                into.wrong.append(i)
        else:
            gather_records(into, piece, physical, chosen, i, stop, queue_id, queue_offset, topic, verify_below)
        i = stop
    return i
