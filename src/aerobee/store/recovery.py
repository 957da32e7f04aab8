"""Recovery: what the store does at start, after a clean stop, a crash, or a crash of recovery itself.

Owns the judgement where the log ends. It goes by offset and checksum, never by a clock: a torn tail is cut,
damage in what was once synced stays where it is, is reported and never served. Doing it twice gives the same
bytes. RocketMQ: CommitLog.recoverNormally, recoverAbnormally; see #467, #7437, #10017, #10666 for what it
must not do.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from aerobee.hot.record import NEED_MORE, VERIFY_NONE, VERIFY_RECORD, check_record
from aerobee.store.segment import Damage, LogSource, Piece, PieceKind, scan

# Trying every bit costs the square of the size: beyond this a damaged record at the tail counts as torn.
_ONE_BIT_SIZE_MAX: Final = 4096


@dataclass(slots=True, kw_only=True)
class RecoveryReport:
    """What was found at start, for the log, the metrics and the operator."""

    abnormal: bool
    log_start: int = 0
    log_end: int = 0
    scanned_from: int = 0
    # The tail that was cut: where the last file's bytes went on. Equal to `log_end` where nothing was cut.
    cut_to: int = 0
    redone_truncation: int | None = None
    damages: list[Damage] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    dispatched_from: int = 0


@dataclass(slots=True)
class LogEnd:
    """Where a log ends, and what lies before that."""

    end: int
    store_timestamp: int = 0
    damages: list[Damage] = field(default_factory=list)
    # Bytes behind the end that were never synced: they go.
    torn: bool = False


def find_end(log: LogSource, start: int, stop: int, durable: int, verify: int = VERIFY_RECORD) -> LogEnd:
    """Walk from a record boundary to the end. Everything below `durable` is known to have been synced
    once."""
    found = LogEnd(start)
    for piece in scan(log, start, stop, verify=verify):
        if piece.kind is PieceKind.RECORDS:
            found.end = piece.end
            found.store_timestamp = max(found.store_timestamp, piece.drafts[-1].store_timestamp)
        elif piece.kind is PieceKind.BLANK:
            found.end = piece.end
        elif piece.kind is PieceKind.DAMAGE:
            end = _end_of_damage(log, piece, durable, verify)
            if end < 0:
                found.end = piece.start
                found.torn = True
                break
            found.damages.append(Damage(piece.start, end, piece.reason))
            found.end = end
        else:
            found.end = max(found.end, piece.start)
    return found


def _end_of_damage(log: LogSource, piece: Piece, durable: int, verify: int) -> int:
    """Where damage ends that was once sound, or -1: a torn tail, of which nothing is kept."""
    if piece.start < durable:
        # Synced once, so this is rot. Where nothing sound follows it reaches to where the sync had reached.
        return piece.end if piece.end >= 0 else durable
    if piece.end < 0:
        return -1
    # Not known to have been synced, yet whole records follow. After a power cut a disk may keep later sectors
    # and lose earlier ones: then all of it is tail. One flipped bit, though, is not what a cut leaves.
    return piece.end if _is_one_bit_off(log, piece.start, piece.end, verify) else -1


def _is_one_bit_off(log: LogSource, start: int, end: int, verify: int) -> bool:
    """Whether one flipped bit makes the stretch a sound record. Only the whole-record checksum can tell."""
    size = end - start
    if size > _ONE_BIT_SIZE_MAX or verify == VERIFY_NONE:
        return False
    data = bytearray(log.read(start, size))
    if len(data) != size or data.count(0) == size:
        return False
    for bit in range(size * 8):
        data[bit >> 3] ^= 1 << (bit & 7)
        if check_record(bytes(data), 0, start, verify) == size:
            return True
        data[bit >> 3] ^= 1 << (bit & 7)
    return False


def boundary_at_or_below(log: LogSource, offset: int, log_start: int, segment_size: int) -> int:
    """A place where a record surely begins: `offset` itself if a record stands there, else its segment's
    start."""
    if offset <= log_start:
        return log_start
    head = log.read(offset, 4)
    size = int.from_bytes(head, "big", signed=True)
    if size > 0 and check_record(log.read(offset, size), 0, offset, VERIFY_RECORD) > NEED_MORE:
        return offset
    return max(offset - offset % segment_size, log_start)
