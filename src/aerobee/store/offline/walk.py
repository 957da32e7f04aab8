"""The whole log from outside, also while a broker appends to it and deletes from it.

This module adds what segment.scan cannot know: a record was only half written when it was read, retention deleted a
file, or the last stretch without a sound record is the log's end.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from aerobee.errors import StoreError
from aerobee.hot.log.record import NEED_MORE, VERIFY_RECORD, ZERO, Draft
from aerobee.store.offline.directory import LISTING_TRIES, StoreDirectory, common_size, read_error
from aerobee.store.offline.problems import CannotLookError, Progress, no_progress
from aerobee.store.segment import LogReader, Piece, PieceKind, SegmentFile, scan, segment_name

CHUNK_SIZE: Final = 4 * 1024 * 1024


class StretchKind(enum.Enum):
    """What a part of the log is."""

    RECORDS = "records"
    DAMAGE = "damage"  # a sound record follows at `end`
    DELETED = "deleted"  # retention deleted it during the walk
    END = "end"  # no sound record at or behind `start`; ZERO as reason where nothing was written there


@dataclass(frozen=True, slots=True)
class Stretch:
    """One part of the log, in its order."""

    kind: StretchKind
    start: int
    end: int
    reason: int
    drafts: list[Draft] = field(default_factory=list)


class OfflineLog:
    """The log of a store directory. `stop` is where its last file ended when the walk began."""

    def __init__(self, store: StoreDirectory) -> None:
        self._store = store
        self.reader = open_reader(store)
        self.files: list[SegmentFile] = list(self.reader.segments)
        self.start = self.reader.start
        self.stop = self.reader.stop
        config = store.config
        self.segment_size = config.mapped_file_size_commit_log if config is not None else common_size(self.files)

    def close(self) -> None:
        self.reader.close()

    def place_of(self, offset: int) -> tuple[str, int]:
        """Return file and byte of a physical offset; byte 0 of the name it should have where the file is missing."""
        for file in reversed(self.files):
            if file.start <= offset < max(file.end, file.start + self.segment_size):
                return file.path, offset - file.start
        start = offset - offset % self.segment_size if self.segment_size else offset
        return f"{self._store.log_directory}/{segment_name(start)}", 0

    def file_of(self, offset: int) -> SegmentFile | None:
        return next((file for file in self.files if file.start <= offset < file.start + self.segment_size), None)

    def walk(
        self,
        start: int | None = None,
        *,
        delay_levels_ms: Sequence[int] | None = None,
        progress: Progress = no_progress,
    ) -> Iterator[Stretch]:
        """Yield every part from a record boundary to the end, whole-record checksums compared."""
        offset = max(self.start, start or 0)
        total = self.stop - offset
        began, doubted = offset, -1
        while True:
            piece = self._next(offset, delay_levels_ms)
            if isinstance(piece, int):
                yield Stretch(StretchKind.DELETED, offset, piece, 0)
                offset = piece
                continue
            if piece.kind is PieceKind.DAMAGE and piece.start != doubted and self._store.is_live:
                # The record may have been half written when it was read, and what was found behind it came later.
                doubted = piece.start
                continue
            if piece.kind is PieceKind.DAMAGE and piece.end < 0:
                piece = Piece(PieceKind.END, piece.start, piece.start, piece.reason)
            if piece.kind is PieceKind.END:
                progress(total, total)
                yield Stretch(StretchKind.END, piece.start, piece.start, piece.reason)
                return
            progress(piece.end - began, total)
            if piece.kind is not PieceKind.BLANK:
                kind = StretchKind.RECORDS if piece.drafts else StretchKind.DAMAGE
                yield Stretch(kind, piece.start, piece.end, piece.reason, piece.drafts)
            offset = piece.end

    def _next(self, offset: int, delay_levels_ms: Sequence[int] | None) -> Piece | int:
        """Return the piece at `offset`, or the log's new start where retention took what stood there."""
        if offset >= self.stop:
            return Piece(PieceKind.END, offset, offset, ZERO)
        try:
            pieces = scan(
                self.reader,
                offset,
                self.stop,
                verify=VERIFY_RECORD,
                delay_levels_ms=delay_levels_ms,
                chunk_size=CHUNK_SIZE,
            )
            piece = next(pieces)
        except StoreError as error:
            moved = self._moved_on(offset)
            if moved is None:
                raise read_error(self.place_of(offset)[0], error) from error
            return moved
        except OSError as error:
            raise read_error(self.place_of(offset)[0], error) from error
        if piece.kind is PieceKind.DAMAGE or (piece.kind is PieceKind.END and piece.reason == NEED_MORE):
            moved = self._moved_on(offset)
            if moved is not None:
                return moved
        return piece

    def _moved_on(self, offset: int) -> int | None:
        """Return where the log begins now, if that is behind `offset`."""
        refresh(self.reader)
        now = self.reader.start if self.reader.segments else self.stop
        return now if now > offset else None


def open_reader(store: StoreDirectory) -> LogReader:
    """Return a reader, whatever a broker deletes while the directory is listed."""
    for _ in range(LISTING_TRIES):
        try:
            return LogReader(store.disk, store.log_directory)
        except FileNotFoundError:
            continue
        except OSError as error:
            raise read_error(store.log_directory, error) from error
    raise CannotLookError(f"{store.log_directory} changes faster than it can be listed")


def refresh(reader: LogReader) -> None:
    """List the files again."""
    for _ in range(LISTING_TRIES):
        try:
            reader.refresh()
            return
        except FileNotFoundError:
            continue
