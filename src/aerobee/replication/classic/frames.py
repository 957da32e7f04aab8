"""The bytes of RocketMQ's HA protocol, without I/O: reports of a slave, transfers of a master.

A report is the offset at which a slave's log ends. A transfer is an offset, a length and that many bytes of the log;
a transfer without bytes is a heartbeat. All numbers are big-endian. RocketMQ: DefaultHAConnection, DefaultHAClient.

A *learner* follows a master that has a controller. Its messages begin with a state, and both sides greet first.
RocketMQ: AutoSwitchHAConnection, AutoSwitchHAClient.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final, Protocol

from aerobee.errors import RemoteProtocolError

_OFFSET: Final = struct.Struct(">q")
_HEAD: Final = struct.Struct(">qi")
REPORT_SIZE: Final = _OFFSET.size
HEAD_SIZE: Final = _HEAD.size
# Apache's slave reads into a buffer of 4 MiB: a transfer that does not fit never becomes whole there.
TRANSFER_BYTES_MAX: Final = 4 * 1024 * 1024 - HEAD_SIZE

_HANDSHAKE: Final = 1
_TRANSFER: Final = 2
_HELLO: Final = struct.Struct(">ihhq")
_GREETING: Final = struct.Struct(">iiqi")
_EPOCH: Final = struct.Struct(">iq")
_LEARNER_REPORT: Final = struct.Struct(">iq")
_LEARNER_HEAD: Final = struct.Struct(">iiqiqq")
# Apache's own buffer for a greeting holds 1,000 epochs.
_EPOCHS_BYTES_MAX: Final = 1000 * _EPOCH.size


@dataclass(frozen=True, slots=True)
class Transfer:
    """Bytes of a master's log; none in a heartbeat."""

    offset: int
    data: bytes


def encode_report(offset: int) -> bytes:
    """Return a slave's report."""
    return _OFFSET.pack(offset)


def encode_head(offset: int, size: int) -> bytes:
    """Return the head of a transfer of `size` bytes."""
    return _HEAD.pack(offset, size)


class Reports:
    """Reads what slaves send. Reports stay aligned, however the bytes arrive."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> list[int]:
        """Return the offsets that are whole now, oldest first."""
        held = self._rest + data
        whole = len(held) - len(held) % REPORT_SIZE
        self._rest = held[whole:]
        return [offset for (offset,) in _OFFSET.iter_unpack(held[:whole])]


class MasterWords(Protocol):
    """How one kind of master is spoken to."""

    def greeting(self) -> bytes:
        """Return what the follower says first, before any report; empty where it says nothing."""

    def report(self, offset: int) -> bytes:
        """Return a report."""

    def feed(self, data: bytes) -> list[Transfer]:
        """Return the transfers that are whole now. Raise RemoteProtocolError for bytes that no master sends."""

    @property
    def is_greeted(self) -> bool:
        """Tell whether the follower may report."""


class ClassicWords:
    """The words between a slave and a master with a static role."""

    is_greeted: Final = True

    def __init__(self) -> None:
        self._held = bytearray()

    def greeting(self) -> bytes:
        return b""

    def report(self, offset: int) -> bytes:
        return encode_report(offset)

    def feed(self, data: bytes) -> list[Transfer]:
        held = self._held
        if not held and len(data) >= HEAD_SIZE:
            # Mostly one transfer comes alone, and whole: it is not copied twice.
            offset, size = _HEAD.unpack_from(data)
            if len(data) == HEAD_SIZE + size and size <= TRANSFER_BYTES_MAX and offset >= 0:
                return [Transfer(offset, data[HEAD_SIZE:])]
        held += data
        found: list[Transfer] = []
        at = 0
        while len(held) - at >= HEAD_SIZE:
            offset, size = _HEAD.unpack_from(held, at)
            _require_transfer(offset, size)
            end = at + HEAD_SIZE + size
            if len(held) < end:
                break
            found.append(Transfer(offset, bytes(held[at + HEAD_SIZE : end])))
            at = end
        del held[:at]
        return found


class LearnerWords:
    """The words between a learner and a master that has a controller."""

    def __init__(self, broker_id: int) -> None:
        self._broker_id = broker_id
        self._held = bytearray()
        self.is_greeted = False
        # The master's epochs as (number, start), and the offset up to which it has confirmed its log.
        self.epochs: list[tuple[int, int]] = []
        self.confirmed = 0

    def greeting(self) -> bytes:
        """Return the hello of a learner, which the master never counts into its in-sync set."""
        return _HELLO.pack(_HANDSHAKE, 0, 1, self._broker_id)

    def report(self, offset: int) -> bytes:
        return _LEARNER_REPORT.pack(_TRANSFER, offset)

    def feed(self, data: bytes) -> list[Transfer]:
        held = self._held
        held += data
        if not self.is_greeted and not self._take_greeting():
            return []
        found: list[Transfer] = []
        at = 0
        while len(held) - at >= _LEARNER_HEAD.size:
            state, size, offset, _, _, confirmed = _LEARNER_HEAD.unpack_from(held, at)
            if state != _TRANSFER:
                raise RemoteProtocolError(f"the master sent state {state} where a transfer was due")
            _require_transfer(offset, size)
            end = at + _LEARNER_HEAD.size + size
            if len(held) < end:
                break
            self.confirmed = max(self.confirmed, confirmed)
            found.append(Transfer(offset, bytes(held[at + _LEARNER_HEAD.size : end])))
            at = end
        del held[:at]
        return found

    def _take_greeting(self) -> bool:
        held = self._held
        if len(held) < _GREETING.size:
            return False
        state, size, _, _ = _GREETING.unpack_from(held)
        if state != _HANDSHAKE or not 0 <= size <= _EPOCHS_BYTES_MAX or size % _EPOCH.size:
            raise RemoteProtocolError(
                "the master did not answer the greeting of a learner. Is it a master without a controller?"
            )
        end = _GREETING.size + size
        if len(held) < end:
            return False
        self.epochs = list(_EPOCH.iter_unpack(held[_GREETING.size : end]))
        self.is_greeted = True
        del held[:end]
        return True


def _require_transfer(offset: int, size: int) -> None:
    if offset < 0 or not 0 <= size <= TRANSFER_BYTES_MAX:
        raise RemoteProtocolError(f"the master sent a transfer of {size} bytes for offset {offset}")
