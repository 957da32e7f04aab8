"""A follower's connection to its master: the driver of the follower's side of `transfer.py`."""

from __future__ import annotations

import asyncio
from enum import Enum
from typing import Final, Protocol, cast

from aerobee.errors import AerobeeError, RemoteProtocolError
from aerobee.replication.frames import (
    DIALECT,
    DIALECT_OLDEST,
    Begin,
    Data,
    Frame,
    FrameReader,
    Hello,
    Refuse,
    Welcome,
    Words,
    WordsKind,
    encode_ack,
    encode_words,
)
from aerobee.replication.ownlog import OwnLog
from aerobee.replication.transfer import (
    FollowerTransfer,
    LogsPartError,
    is_proof,
    parting_point,
    proof_of,
)
from aerobee.telemetry.stdlog import get_log

# A master that says nothing for this long is left, and connected to anew. It speaks every half second.
SILENT_MAX_S: Final = 5.0
_log = get_log("replication")


class Linker(Protocol):
    """The replica, as its connection to the master sees it."""

    secret: bytes

    def now(self) -> float: ...
    def nonce(self) -> str: ...
    def own_log(self) -> OwnLog: ...
    def linked(self) -> None:
        """Note that the master has answered."""

    def promises(self) -> bool:
        """Tell whether this replica can promise not to stand for a while, and note that it does."""

    def cannot_follow(self, reason: str) -> None:
        """Stop the replica: another try cannot help."""

    def store_failed(self, error: AerobeeError | OSError) -> None:
        """Note that the store did not take what the master sent."""


class _Phase(Enum):
    WELCOME = "welcome"
    STREAM = "stream"
    CLOSED = "closed"


class MasterLink(asyncio.Protocol):
    """One connection. It ends with the first contradiction; its owner connects anew."""

    def __init__(self, linker: Linker, epoch: int, hello: Hello) -> None:
        self._linker = linker
        self._epoch = epoch
        self._hello = hello
        self._reader = FrameReader()
        self._phase = _Phase.WELCOME
        self._transport: asyncio.Transport | None = None
        self._transfer: FollowerTransfer | None = None
        self._stamp = 0
        self._is_ack_due = False
        self.heard_s = linker.now()
        # Set when the connection has ended.
        self.ended = asyncio.Event()
        # Why the master refused, empty if it did not.
        self.refused = ""

    # ---- the connection

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are no subclass of asyncio's.
        transport = cast(asyncio.Transport, transport)
        self._transport = transport
        transport.write(encode_words(WordsKind.HELLO, self._hello))

    def data_received(self, data: bytes) -> None:
        if self._phase is _Phase.CLOSED:
            return
        self.heard_s = self._linker.now()
        try:
            for frame in self._reader.feed(data):
                self._take(frame)
                if self._is_closed():
                    return
        except LogsPartError as error:
            self.close()
            self._linker.cannot_follow(str(error))
        except RemoteProtocolError as error:
            _log.warning("the connection to the master is closed", epoch=self._epoch, reason=str(error))
            self.close()

    def _is_closed(self) -> bool:
        return self._phase is _Phase.CLOSED

    def connection_lost(self, exc: Exception | None) -> None:
        self._phase = _Phase.CLOSED
        self.ended.set()

    def close(self) -> None:
        """End the connection. Nothing that arrives later is taken, and nothing is acknowledged any more."""
        self._phase = _Phase.CLOSED
        if self._transport is not None:
            self._transport.abort()
        self.ended.set()

    def say_goodbye(self, reason: str, words: str = "") -> None:
        """End the connection and tell the master why."""
        if self._transport is not None and self._phase is _Phase.STREAM:
            self._transport.write(encode_words(WordsKind.BYE, Refuse(reason=reason, words=words, epoch=self._epoch)))
            self._transport.close()
        self._phase = _Phase.CLOSED
        self.ended.set()

    # ---- what the master says

    def _take(self, frame: Frame) -> None:
        match frame:
            case Words(kind=WordsKind.WELCOME) if self._phase is _Phase.WELCOME:
                self._welcomed(frame)
            case Words(kind=WordsKind.REFUSE | WordsKind.BYE):
                refusal = frame.read(Refuse)
                self.refused = f"{refusal.reason}: {refusal.words}"
                self.close()
            case Data() if self._transfer is not None and self._phase is _Phase.STREAM:
                self._take_data(frame, self._transfer)
            case _:
                raise RemoteProtocolError(f"{type(frame).__name__} came out of turn")

    def _welcomed(self, words: Words) -> None:
        welcome, log, hello = words.read(Welcome), self._linker.own_log(), self._hello
        if not DIALECT_OLDEST <= words.version <= DIALECT:
            raise RemoteProtocolError(f"the master answers in dialect {words.version}")
        proven = (hello.nonce, welcome.nonce, welcome.id, welcome.epoch)
        if not is_proof(self._linker.secret, welcome.proof, "welcome", *proven):
            raise RemoteProtocolError("the master does not know the group's secret")
        if welcome.epoch != self._epoch or welcome.epoch < log.identity.epoch:
            raise RemoteProtocolError(f"the master leads epoch {welcome.epoch}, and epoch {self._epoch} was expected")
        point = parting_point(log.epochs, log.start, log.end, log.confirmed, welcome)
        try:
            log.see(welcome.epoch)
            if point < log.end:
                _log.warning(
                    "the log is cut where it parts from the master's", at=point, end=log.end, epoch=welcome.epoch
                )
            log.cut(point)
        except (AerobeeError, OSError) as error:
            self._fail(error)
            return
        self._linker.linked()
        self._transfer = FollowerTransfer(self._epoch, point)
        self._phase = _Phase.STREAM
        written, stored = point, min(log.stored, point) if log.end else point
        proof = proof_of(
            self._linker.secret, "begin", hello.nonce, welcome.nonce, hello.id, hello.incarnation, self._epoch, written
        )
        begin = Begin(epoch=self._epoch, written=written, stored=stored, proof=proof)
        self._write(encode_words(WordsKind.BEGIN, begin))

    def _take_data(self, data: Data, transfer: FollowerTransfer) -> None:
        log = self._linker.own_log()
        if log.identity.epoch > self._epoch:
            self.close()  # a newer epoch was seen: nothing of this one is acknowledged any more
            return
        taken = transfer.take(data, log.epochs, log.end)
        self._stamp = data.stamp
        try:
            log.take(data.offset, taken)
        except (AerobeeError, OSError) as error:
            self._fail(error)
            return
        self.ack_soon()

    def _fail(self, error: AerobeeError | OSError) -> None:
        self.say_goodbye("failed", str(error)[:200])
        self._linker.store_failed(error)

    # ---- what the master is told

    def ack_soon(self) -> None:
        """Acknowledge at the end of this turn: one acknowledgement serves all frames of a read."""
        if not self._is_ack_due and self._phase is _Phase.STREAM:
            self._is_ack_due = True
            asyncio.get_running_loop().call_soon(self._ack)

    def _ack(self) -> None:
        self._is_ack_due = False
        log = self._linker.own_log()
        if self._phase is not _Phase.STREAM or self._transfer is None or log.identity.epoch > self._epoch:
            return
        if log.store.fenced is not None:
            self._fail(log.store.fenced)
            return
        # A stamp is returned only with a promise.
        stamp = self._stamp if self._linker.promises() else 0
        self._write(encode_ack(self._transfer.ack(log.end, log.stored, stamp)))

    def _write(self, data: bytes) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)
