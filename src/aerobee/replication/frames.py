"""The frames of our own replication dialect, and the reader that takes them from a stream. No I/O.

    words (16 + n)   4s `AEHA`, int16 version, int16 kind, int32 n, int32 crc32 of the body; body: n bytes of JSON
    data (44 + n)    int16 3, int16 flags, int32 n, int64 offset, int32 epoch of the records, int64 confirmed,
                     int64 stamp, int32 crc32 of the body, int32 crc32 of the 40 bytes before; body: n bytes of the log
    ack (40)         int16 4, int16 flags, int32 epoch, int64 written, int64 stored, int64 stamp,
                     int32 crc32 of the 32 bytes before, int32 0

Words open a connection and end it: hello, welcome, begin, refuse, bye. All numbers are big-endian.
`docs/formats/replication.md` has the fields.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum
from typing import Annotated, Final, TypeVar

import msgspec

from aerobee.errors import RemoteProtocolError
from aerobee.hot.log.checksum import crc32

MAGIC: Final = b"AEHA"
# The newest version of the dialect that this release speaks. It also speaks the one before.
DIALECT: Final = 1
DIALECT_OLDEST: Final = 1
WORDS_SIZE_MAX: Final = 1024 * 1024
# A frame ends at a whole record, so one record that is larger than the usual frame goes alone.
BODY_SIZE_MAX: Final = 64 * 1024 * 1024
OFFSET_MAX: Final = (1 << 62) - 1
EPOCHS_MAX: Final = 4096

_WORDS: Final = struct.Struct(">4sHHII")
_DATA: Final = struct.Struct(">HHIqIqqI")
_ACK: Final = struct.Struct(">HHIqqq")
_SUM: Final = struct.Struct(">I")
DATA_HEAD_SIZE: Final = _DATA.size + _SUM.size
ACK_SIZE: Final = _ACK.size + 2 * _SUM.size
_DATA_KIND: Final = 3
_ACK_KIND: Final = 4
# The flag of a data frame whose records all carry their checksum.
_SEALED: Final = 1
_MAGIC_START: Final = 0x4145

W = TypeVar("W", bound=msgspec.Struct)
Offset = Annotated[int, msgspec.Meta(ge=0, le=OFFSET_MAX)]
EpochNumber = Annotated[int, msgspec.Meta(ge=0, le=(1 << 32) - 1)]
EpochList = Annotated[list[tuple[EpochNumber, Offset]], msgspec.Meta(max_length=EPOCHS_MAX)]
Word = Annotated[str, msgspec.Meta(max_length=1024)]


class WordsKind(IntEnum):
    """What a frame of words says."""

    HELLO = 1
    WELCOME = 2
    REFUSE = 5
    BEGIN = 6
    BYE = 7


class Hello(msgspec.Struct, frozen=True, kw_only=True):
    """A follower's first words. `nonce` and the proofs that follow are empty where the group has no secret."""

    cluster: Word
    group: Word
    id: Offset
    incarnation: Word
    # The highest epoch that it has seen.
    epoch: EpochNumber
    epochs: EpochList
    start: Offset
    end: Offset
    segment_size: Offset
    learner: bool = False
    release: Word = ""
    nonce: Word = ""


class Welcome(msgspec.Struct, frozen=True, kw_only=True):
    """A master's answer. `proof` shows that it knows the group's secret."""

    id: Offset
    epoch: EpochNumber
    epochs: EpochList
    start: Offset
    end: Offset
    confirmed: Offset
    release: Word = ""
    nonce: Word = ""
    proof: Word = ""


class Begin(msgspec.Struct, frozen=True, kw_only=True):
    """A follower's log after it was cut: the master sends from `written` on."""

    epoch: EpochNumber
    written: Offset
    stored: Offset
    proof: Word = ""


class Refuse(msgspec.Struct, frozen=True, kw_only=True):
    """Why the master does not serve this follower, or (as BYE) why one of them leaves."""

    reason: Word
    words: Word = ""
    epoch: EpochNumber = 0


@dataclass(frozen=True, slots=True)
class Words:
    """A frame of words with its version."""

    version: int
    kind: WordsKind
    body: bytes

    def read(self, kind: type[W]) -> W:
        """Return the body. Raise RemoteProtocolError for one that makes no sense."""
        try:
            return msgspec.json.decode(self.body, type=kind)
        except (msgspec.DecodeError, RecursionError, ValueError) as error:
            raise RemoteProtocolError(f"words of replication that make no sense: {error}") from None


@dataclass(frozen=True, slots=True)
class Data:
    """Bytes of the log, or none: then it only tells that the master is there and what is confirmed."""

    offset: int
    epoch: int
    confirmed: int
    # The master's own time when it was sent, in microseconds. An ack returns it.
    stamp: int
    body: bytes
    # Every record of the body carries its whole-record checksum.
    sealed: bool = False


@dataclass(frozen=True, slots=True)
class Ack:
    """How far a follower is. `stored` is what it calls stored at its own level of flushing."""

    epoch: int
    written: int
    stored: int
    stamp: int


Frame = Words | Data | Ack


def encode_words(kind: WordsKind, body: msgspec.Struct, version: int = DIALECT) -> bytes:
    """Return a frame of words."""
    content = msgspec.json.encode(body)
    return _WORDS.pack(MAGIC, version, kind, len(content), crc32(content)) + content


def encode_data(data: Data) -> list[bytes]:
    """Return a frame in pieces: the body is not copied."""
    head = _DATA.pack(
        _DATA_KIND,
        _SEALED if data.sealed else 0,
        len(data.body),
        data.offset,
        data.epoch,
        data.confirmed,
        data.stamp,
        crc32(data.body),
    )
    head += _SUM.pack(crc32(head))
    return [head, data.body] if data.body else [head]


def encode_ack(ack: Ack) -> bytes:
    head = _ACK.pack(_ACK_KIND, 0, ack.epoch, ack.written, ack.stored, ack.stamp)
    return head + _SUM.pack(crc32(head)) + _SUM.pack(0)


class FrameReader:
    """Takes frames from a stream. It holds at most one frame that is not complete."""

    def __init__(self, *, body_size_max: int = BODY_SIZE_MAX) -> None:
        self._buffer = bytearray()
        self._body_size_max = body_size_max

    def feed(self, data: bytes) -> list[Frame]:
        """Return the frames that are complete now. Raise RemoteProtocolError at the first that is none."""
        self._buffer += data
        found: list[Frame] = []
        at = 0
        while (frame := self._next(at)) is not None:
            found.append(frame[0])
            at += frame[1]
        if at:
            del self._buffer[:at]
        return found

    def _next(self, at: int) -> tuple[Frame, int] | None:
        have = len(self._buffer) - at
        if have < 2:
            return None
        kind = int.from_bytes(self._buffer[at : at + 2], "big")
        if kind == _DATA_KIND:
            return self._data(at) if have >= DATA_HEAD_SIZE else None
        if kind == _ACK_KIND:
            return self._ack(at) if have >= ACK_SIZE else None
        if kind == _MAGIC_START:
            return self._words(at) if have >= _WORDS.size else None
        raise RemoteProtocolError(f"no frame of replication begins with {kind}")

    def _data(self, at: int) -> tuple[Frame, int] | None:
        buffer = self._buffer
        _, flags, size, offset, epoch, confirmed, stamp, body_sum = _DATA.unpack_from(buffer, at)
        if crc32(buffer[at : at + _DATA.size]) != _SUM.unpack_from(buffer, at + _DATA.size)[0]:
            raise RemoteProtocolError("the checksum of a data frame's head does not match")
        if size > self._body_size_max or flags & ~_SEALED or not _are_offsets(offset, confirmed, stamp):
            raise RemoteProtocolError(f"a data frame of {size} bytes at {offset} with flags {flags} is not allowed")
        start = at + DATA_HEAD_SIZE
        if len(buffer) - start < size:
            return None
        body = bytes(buffer[start : start + size])
        if crc32(body) != body_sum:
            raise RemoteProtocolError(f"the checksum of {size} bytes of the log at {offset} does not match")
        return Data(offset, epoch, confirmed, stamp, body, bool(flags & _SEALED)), DATA_HEAD_SIZE + size

    def _ack(self, at: int) -> tuple[Frame, int]:
        buffer = self._buffer
        _, flags, epoch, written, stored, stamp = _ACK.unpack_from(buffer, at)
        if crc32(buffer[at : at + _ACK.size]) != _SUM.unpack_from(buffer, at + _ACK.size)[0]:
            raise RemoteProtocolError("the checksum of an ack does not match")
        if flags or stored > written or not _are_offsets(written, stored, stamp):
            raise RemoteProtocolError(f"an ack of {written} and {stored} with flags {flags} is not allowed")
        return Ack(epoch, written, stored, stamp), ACK_SIZE

    def _words(self, at: int) -> tuple[Frame, int] | None:
        buffer = self._buffer
        magic, version, kind, size, body_sum = _WORDS.unpack_from(buffer, at)
        if magic != MAGIC or size > WORDS_SIZE_MAX or kind not in _WORDS_KINDS:
            raise RemoteProtocolError(f"words of replication of kind {kind} and {size} bytes are not allowed")
        start = at + _WORDS.size
        if len(buffer) - start < size:
            return None
        body = bytes(buffer[start : start + size])
        if crc32(body) != body_sum:
            raise RemoteProtocolError("the checksum of words does not match")
        return Words(version, WordsKind(kind), body), _WORDS.size + size


_WORDS_KINDS: Final = frozenset(WordsKind)


def _are_offsets(*values: int) -> bool:
    return all(0 <= value <= OFFSET_MAX for value in values)
