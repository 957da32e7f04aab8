"""Recovery: what the store does at start, after a clean stop, a crash, or a crash of recovery itself.

This module decides where the log ends. It goes by offset and checksum, never by a clock. A torn tail is cut. Damage in
what was once synced stays where it is, is reported and never served. Recovering twice gives the same bytes.
RocketMQ: CommitLog.recoverNormally, recoverAbnormally; see #467, #7437, #10017, #10666 for what it must not do.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from aerobee.hot.log.layout import RECORD_MAGIC_POS, SEAL_NAME, SEAL_SIZE
from aerobee.hot.log.record import NEED_MORE, VERIFY_RECORD, Draft, check_record
from aerobee.hot.log.scan import scan_records
from aerobee.store.mending import SIZE_MAX, before_blank, lacks_a_byte, mend
from aerobee.store.segment import Damage, LogSource, Piece, PieceKind, scan

# A disk with more damage than this has more than single bits flipped.
_MENDED_MAX: Final = 16


@dataclass(slots=True, kw_only=True)
class RecoveryReport:
    """What was found at start, for the log, the metrics and the operator."""

    abnormal: bool
    log_start: int = 0
    log_end: int = 0
    scanned_from: int = 0
    # Where the log was cut.
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
    # Damaged records that one flipped bit explains: never served, but their numbers are known.
    mended: list[Draft] = field(default_factory=list)
    # Whether bytes behind the end were never synced. They are cut.
    torn: bool = False


def find_end(
    log: LogSource, start: int, stop: int, durable: int, verify: int = VERIFY_RECORD, sealed_from: int = -1
) -> LogEnd:
    """Walk from a record boundary to the end of the log.

    Everything below `durable` is known to have been synced once. From `sealed_from` on (-1: nowhere) the writer gave
    every record its checksum.
    """
    found = LogEnd(start)
    for piece in scan(log, start, stop, verify=verify):
        if piece.kind is PieceKind.RECORDS:
            least = max(sealed_from, durable) if sealed_from >= 0 else stop
            for draft in piece.drafts if piece.end > least else piece.drafts[-1:]:
                if draft.physical_offset >= least and not _is_sealed(draft):
                    # The record was not synced, and its checksum is torn beyond recognition.
                    found.torn = True
                    return found
                found.end = draft.physical_offset + draft.size
                found.store_timestamp = max(found.store_timestamp, draft.store_timestamp)
        elif piece.kind is PieceKind.BLANK:
            found.end = piece.end
        elif piece.kind is PieceKind.DAMAGE:
            if not _take_damage(log, piece, durable, verify, found):
                found.end = piece.start
                found.torn = True
                break
        else:
            found.end = max(found.end, piece.start)
    return found


def _is_sealed(draft: Draft) -> bool:
    """Tell whether a sound record has its whole-record checksum, in the form that makes it checked."""
    properties = draft.properties
    seal = properties[-SEAL_SIZE:]
    is_apart = len(properties) == SEAL_SIZE or properties[-SEAL_SIZE - 1 : -SEAL_SIZE] == b"\x02"
    return seal.startswith(SEAL_NAME + b"\x01") and seal.endswith(b"\x02") and is_apart


def _take_damage(log: LogSource, piece: Piece, durable: int, verify: int, found: LogEnd) -> bool:
    """Note damage to what was once sound. Return False for a torn tail, of which nothing is kept."""
    if piece.end < 0 and piece.start >= durable:
        return False
    # Where nothing sound follows, rot reaches to where the sync had reached.
    end = piece.end if piece.end >= 0 else durable
    data = before_blank(log.read(piece.start, min(end - piece.start, SIZE_MAX)), end - piece.start)
    mended = mend(data, piece.start) if len(found.damages) < _MENDED_MAX else None
    # The damage may never have been synced, yet whole records follow. After a power cut a disk may keep later sectors
    # and lose earlier ones: then all of it is tail. But a cut does not leave one flipped bit.
    if piece.start >= durable and (mended is None or lacks_a_byte(data, mended)):
        return False
    if mended is not None:
        found.mended += scan_records(mended, piece.start, verify)[0]
    found.damages.append(Damage(piece.start, end, piece.reason))
    found.end = end
    return True


def boundary_at_or_below(log: LogSource, offset: int, log_start: int, segment_size: int) -> int:
    """Return a place where a record surely begins: `offset` if a record stands there, else its segment's start."""
    if offset <= log_start:
        return log_start
    head = log.read(offset, RECORD_MAGIC_POS)
    size = int.from_bytes(head, "big", signed=True)
    if size > 0 and check_record(log.read(offset, size), 0, offset, VERIFY_RECORD) > NEED_MORE:
        return offset
    return max(offset - offset % segment_size, log_start)
