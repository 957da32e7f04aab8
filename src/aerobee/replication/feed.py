"""One follower's connection, on its master: the driver of the master's side of `transfer.py`."""

from __future__ import annotations

import asyncio
from enum import Enum
from typing import Final, Protocol, cast

from aerobee.errors import RemoteProtocolError, StoreError
from aerobee.replication.frames import (
    Ack,
    Begin,
    Data,
    Frame,
    FrameReader,
    Hello,
    Refuse,
    Welcome,
    Words,
    WordsKind,
    encode_data,
    encode_words,
)
from aerobee.replication.ownlog import OwnLog
from aerobee.replication.progress import Follower
from aerobee.replication.transfer import (
    BEHIND,
    NOT_MASTER,
    MasterLog,
    dialect_for,
    first_record_size,
    is_proof,
    pairs_of,
    proof_of,
    whole_records,
    why_not_begun,
    why_refused,
)
from aerobee.replication.values import GroupView
from aerobee.telemetry.stdlog import get_log

# A follower that does not complete its handshake in this time is closed.
_HANDSHAKE_S: Final = 10.0
# After this many frames the others have their turn.
_FRAMES_AT_ONCE: Final = 4
# A connection holds about this much that its follower has not read.
_BUFFER_BYTES: Final = 2 * 1024 * 1024
# Smaller bodies are copied behind their head, which costs less than a second write.
_JOINED_BYTES: Final = 64 * 1024
_log = get_log("replication")


class Feeder(Protocol):
    """The replica, as one follower's connection sees it."""

    secret: bytes
    frame_bytes: int

    def now(self) -> float: ...
    def nonce(self) -> str: ...
    def master_log(self) -> tuple[MasterLog, GroupView] | None:
        """Return what a master tells of itself, None where this replica leads no epoch."""

    def own_log(self) -> OwnLog: ...
    def begun(self, feed: Feed, follower: Follower) -> None: ...
    def acked(self, feed: Feed, ack: Ack) -> str:
        """Take an acknowledgement. Return why it cannot be true, or ""."""

    def left(self, feed: Feed, leaving: str) -> None: ...


class _Phase(Enum):
    HELLO = "hello"
    BEGIN = "begin"
    STREAM = "stream"
    CLOSED = "closed"


class Feed(asyncio.Protocol):
    """Sends the log to one follower and takes its acknowledgements."""

    def __init__(self, feeder: Feeder) -> None:
        self._feeder = feeder
        self._reader = FrameReader(body_size_max=0)
        self._phase = _Phase.HELLO
        self._transport: asyncio.Transport | None = None
        self._hello: Hello | None = None
        self._nonce = ""
        self._epoch = 0
        self._timer: asyncio.TimerHandle | None = None
        self._is_paused = False
        self._is_reading = False
        self._is_due = False
        self._leaving = ""
        self.follower_id = 0
        self.incarnation = ""
        # What the follower was sent last.
        self.sent = 0
        self.told_confirmed = -1
        self.sent_s = 0.0
        self.sent_bytes = 0

    # ---- the connection

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are no subclass of asyncio's.
        transport = cast(asyncio.Transport, transport)
        self._transport = transport
        transport.set_write_buffer_limits(high=_BUFFER_BYTES)
        self._timer = asyncio.get_running_loop().call_later(_HANDSHAKE_S, self.close)

    def data_received(self, data: bytes) -> None:
        if self._phase is _Phase.CLOSED:
            return
        try:
            for frame in self._reader.feed(data):
                self._take(frame)
                if self._is_closed():
                    return
        except RemoteProtocolError as error:
            _log.warning("a follower's connection is closed", replica=self.follower_id, reason=str(error))
            self.close()

    def _is_closed(self) -> bool:
        return self._phase is _Phase.CLOSED

    def pause_writing(self) -> None:
        self._is_paused = True

    def resume_writing(self) -> None:
        self._is_paused = False
        self.pump()

    def connection_lost(self, exc: Exception | None) -> None:
        self._end()

    def close(self) -> None:
        """Close the connection, whatever is on its way."""
        if self._transport is not None:
            self._transport.abort()
        self._end()

    def say_goodbye(self, reason: str, words: str = "") -> None:
        """Close the connection and tell the follower why."""
        if self._transport is not None and self._phase is not _Phase.CLOSED:
            self._transport.write(encode_words(WordsKind.BYE, Refuse(reason=reason, words=words, epoch=self._epoch)))
            self._transport.close()
        self._end()

    def _end(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        was, self._phase = self._phase, _Phase.CLOSED
        if was is _Phase.STREAM:
            self._feeder.left(self, self._leaving)

    # ---- what the follower says

    def _take(self, frame: Frame) -> None:
        match frame:
            case Words(kind=WordsKind.HELLO) if self._phase is _Phase.HELLO:
                self._greet(frame)
            case Words(kind=WordsKind.BEGIN) if self._phase is _Phase.BEGIN:
                self._begin(frame.read(Begin))
            case Words(kind=WordsKind.BYE):
                bye = frame.read(Refuse)
                self._leaving = f"{bye.reason}: {bye.words}"
                self.close()
            case Ack() if self._phase is _Phase.STREAM:
                why = "it names another epoch" if frame.epoch != self._epoch else self._feeder.acked(self, frame)
                if why:
                    raise RemoteProtocolError(f"an acknowledgement cannot be true: {why}")
            case _:
                raise RemoteProtocolError(f"{type(frame).__name__} came out of turn")

    def _greet(self, words: Words) -> None:
        hello = words.read(Hello)
        found = self._feeder.master_log()
        version = dialect_for(words.version)
        if found is None:
            self._refuse(Refuse(reason=NOT_MASTER, words="this replica does not lead"))
            return
        log, view = found
        refusal = why_refused(hello, log, view)
        if version is None:
            refusal = Refuse(reason=NOT_MASTER, words=f"dialect {words.version} is not spoken here")
        if refusal is not None:
            self._refuse(refusal)
            return
        self._hello, self._epoch = hello, log.epoch
        self.follower_id, self.incarnation = hello.id, hello.incarnation
        self._nonce = self._feeder.nonce()
        welcome = Welcome(
            id=log.id,
            epoch=log.epoch,
            epochs=pairs_of(log.epochs),
            start=log.start,
            end=log.end,
            confirmed=log.confirmed,
            release=log.release,
            nonce=self._nonce,
            proof=proof_of(self._feeder.secret, "welcome", hello.nonce, self._nonce, log.id, log.epoch),
        )
        self._phase = _Phase.BEGIN
        self._write(encode_words(WordsKind.WELCOME, welcome, version or 0))

    def _begin(self, begin: Begin) -> None:
        found, hello = self._feeder.master_log(), self._hello
        assert hello is not None
        if found is None or found[0].epoch != self._epoch:
            self._refuse(Refuse(reason=NOT_MASTER, words="this replica leads another epoch or none"))
            return
        proven = (hello.nonce, self._nonce, hello.id, hello.incarnation, begin.epoch, begin.written)
        if not is_proof(self._feeder.secret, begin.proof, "begin", *proven):
            raise RemoteProtocolError("the follower does not know the group's secret")
        refusal = why_not_begun(begin, hello, found[0])
        if refusal is not None:
            self._refuse(refusal)
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._phase = _Phase.STREAM
        self.sent = begin.written
        peer = self._transport.get_extra_info("peername") if self._transport is not None else None
        follower = Follower(
            hello.id,
            hello.incarnation,
            hello.learner,
            address="" if not peer else f"{peer[0]}:{peer[1]}",
            written=begin.written,
            stored=begin.stored,
        )
        self._feeder.begun(self, follower)
        self.heartbeat()
        self.pump()

    def _refuse(self, refusal: Refuse) -> None:
        _log.info("a follower is refused", reason=refusal.reason, words=refusal.words)
        self._write(encode_words(WordsKind.REFUSE, refusal))
        if self._transport is not None:
            self._transport.close()
        self._end()

    # ---- what the follower is sent

    def heartbeat(self) -> None:
        """Tell the follower that the master is there, and what is confirmed. One that does not read is told nothing."""
        if self._phase is _Phase.STREAM and not self._is_reading and not self._is_paused:
            self._send(b"", self._feeder.own_log())

    def pump(self) -> None:
        """Send what the log holds and the follower lacks, as far as its connection takes it."""
        for _ in range(_FRAMES_AT_ONCE):
            if self._phase is not _Phase.STREAM or self._is_paused or self._is_reading:
                return
            log = self._feeder.own_log()
            if self.sent >= log.end:
                return
            if not self._send_next(log):
                return
        if not self._is_due:
            self._is_due = True
            asyncio.get_running_loop().call_soon(self._pump_on)

    def _pump_on(self) -> None:
        self._is_due = False
        self.pump()

    def _send_next(self, log: OwnLog) -> bool:
        """Send one frame: whole records of one epoch and one segment. Return whether more can be sent at once."""
        if self.sent < log.start:
            self._write(encode_words(WordsKind.BYE, Refuse(reason=BEHIND, words=f"the log begins at {log.start} now")))
            self.close()
            return False
        segments = log.store.log.segments
        limit = min(log.epochs.at(self.sent, log.end)[1], log.end)
        segment_end = segments.segment_end(self.sent)
        if segment_end >= 0:
            limit = min(limit, segment_end)
        size = min(limit - self.sent, self._feeder.frame_bytes)
        if log.end - self.sent > log.store.reads.hot_bytes:
            self._read_cold(log, size, limit)
            return False
        return self._sent_body(log, self._read_hot(log, size, limit))

    def _read_hot(self, log: OwnLog, size: int, limit: int) -> bytes:
        try:
            data = log.store.read_log(self.sent, size)
            wanted = self._wanted(data, limit)
            return log.store.read_log(self.sent, wanted) if wanted > len(data) else data[:wanted]
        except StoreError as error:
            _log.warning("the log cannot be read for a follower", replica=self.follower_id, reason=str(error))
            self.close()
            return b""

    def _wanted(self, data: bytes, limit: int) -> int:
        """Return how many bytes make a frame of whole records. Damaged records go as they are."""
        if self.sent + len(data) >= limit:
            return len(data)
        whole = whole_records(data)
        if whole:
            return whole
        size = first_record_size(data)
        return size if size and self.sent + size <= limit else len(data)

    def _read_cold(self, log: OwnLog, size: int, limit: int) -> None:
        """Read through the reader thread. One read is under way at most."""
        place = log.store.log.segments.file_at(self.sent)
        if place is None:
            self.close()
            return
        self._is_reading = True
        file, at = place

        def done(outcome: bytes | OSError) -> None:
            self._is_reading = False
            if self._phase is not _Phase.STREAM:
                return
            if isinstance(outcome, OSError) or not outcome:
                _log.warning("the log cannot be read for a follower", replica=self.follower_id, reason=str(outcome))
                self.close()
                return
            wanted = self._wanted(outcome, limit)
            if wanted > len(outcome):
                self._read_cold(log, wanted, limit)
            else:
                self._sent_body(log, outcome[:wanted])
                self.pump()

        log.store.disk.read(file, at, size, done)

    def _sent_body(self, log: OwnLog, body: bytes) -> bool:
        if not body or self._phase is not _Phase.STREAM:
            return False
        self._send(body, log)
        return True

    def _send(self, body: bytes, log: OwnLog) -> None:
        now_s = self._feeder.now()
        epoch = log.epochs.at(self.sent, log.end)[0] if body else self._epoch
        sealed = log.store.mark.is_sealed(self.sent)
        pieces = encode_data(Data(self.sent, epoch, log.confirmed, int(now_s * 1_000_000), body, sealed))
        if len(body) < _JOINED_BYTES:
            self._write(b"".join(pieces))
        else:
            for piece in pieces:
                self._write(piece)
        self.sent += len(body)
        self.sent_bytes += len(body)
        self.sent_s = now_s
        self.told_confirmed = log.confirmed

    def _write(self, data: bytes) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)
