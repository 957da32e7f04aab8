"""What a follower and a master do with each frame. Machines: the drivers read and write, these decide.

A connection goes so: hello (follower), welcome or refuse (master), the follower cuts its log where the two part, begin
(follower), then data and acks. Any contradiction ends the connection.
"""

from __future__ import annotations

import hmac
from dataclasses import dataclass
from typing import Final

from aerobee.errors import RemoteProtocolError
from aerobee.replication.epochs import Epochs
from aerobee.replication.frames import (
    BODY_SIZE_MAX,
    DIALECT,
    DIALECT_OLDEST,
    Ack,
    Begin,
    Data,
    Hello,
    Refuse,
    Welcome,
)
from aerobee.replication.values import Epoch, GroupView

# Why a master refuses. A follower that hears BEHIND or STRANGER cannot be helped by another try.
BEHIND: Final = "behind"
STRANGER: Final = "stranger"
NOT_MASTER: Final = "not master"
STALE: Final = "stale"
WRONG: Final = "wrong"

_SIZE_FIELD: Final = 4


class LogsPartError(RemoteProtocolError):
    """The log of a follower and that of its master part below what the follower knows to be confirmed."""


def proof_of(secret: bytes, side: str, *parts: object) -> str:
    """Return what shows that one side knows the secret, "" where the group has none."""
    if not secret:
        return ""
    text = "\n".join([side, *(str(part) for part in parts)])
    return hmac.new(secret, text.encode(), "sha256").hexdigest()


def is_proof(secret: bytes, given: str, side: str, *parts: object) -> bool:
    return hmac.compare_digest(proof_of(secret, side, *parts), given)


def dialect_for(theirs: int) -> int | None:
    """Return the version that both sides speak, None where there is none. Each speaks its newest and the one before."""
    version = min(DIALECT, theirs)
    return version if version >= DIALECT_OLDEST else None


def epochs_of(pairs: list[tuple[int, int]]) -> Epochs:
    """Return the epochs that a peer tells. Raise RemoteProtocolError if they make no sense."""
    try:
        return Epochs(Epoch(number=number, start=start) for number, start in pairs)
    except ValueError as error:
        raise RemoteProtocolError(f"the peer's list of epochs makes no sense: {error}") from None


def pairs_of(epochs: Epochs) -> list[tuple[int, int]]:
    return [(one.number, one.start) for one in epochs.entries]


# ---- the follower's side


def agreement(epochs: Epochs, start: int, end: int, master: Epochs, master_start: int, master_end: int) -> int:
    """Return up to where a follower's log, from `start` to `end`, agrees with its master's. Both sides compute it.

    An empty log agrees with everything: it goes on at the master's first record. Logs without a common epoch agree on
    nothing.
    """
    if start == end:
        return end or master_start
    point = epochs.parting(end, master, master_end)
    return start if point is None else max(start, point)


def parting_point(epochs: Epochs, start: int, end: int, confirmed: int, welcome: Welcome) -> int:
    """Return where the follower's log must end before it goes on. Raise LogsPartError if that is not allowed."""
    theirs = epochs_of(welcome.epochs)
    if start < end and start < welcome.start and epochs.parting(end, theirs, welcome.end) is None:
        # The master has forgotten the epochs of records that have expired, so nothing can be compared.
        raise LogsPartError(
            f"the log ends at {end} without an epoch of the master's, and the master's begins at {welcome.start}"
        )
    point = agreement(epochs, start, end, theirs, welcome.start, welcome.end)
    if point < min(confirmed, end):
        raise LogsPartError(f"the log parts from the master's at {point}, and it is confirmed up to {confirmed}")
    if not welcome.start <= point <= welcome.end:
        raise LogsPartError(
            f"the log agrees up to {point}, and the master's begins at {welcome.start} and ends at {welcome.end}"
        )
    return point


@dataclass(frozen=True, slots=True)
class Taken:
    """What a data frame means: bytes for the log, perhaps of a new epoch, and what may be seen then."""

    body: bytes
    new_epoch: int | None
    confirmed: int
    sealed: bool = False


class FollowerTransfer:
    """One connection of a follower, from its begin on."""

    def __init__(self, epoch: int, point: int) -> None:
        self.epoch = epoch
        # Where an empty log goes on.
        self._first = point

    def take(self, data: Data, epochs: Epochs, end: int) -> Taken:
        """Return what to do with a frame, where the log ends at `end`. Raise RemoteProtocolError if it does not fit."""
        if data.offset != (end or self._first):
            raise RemoteProtocolError(f"bytes for {data.offset} came, and the log ends at {end}")
        if not epochs.last <= data.epoch <= self.epoch:
            raise RemoteProtocolError(f"bytes of epoch {data.epoch} came after epoch {epochs.last} from {self.epoch}")
        new_epoch = data.epoch if data.body and data.epoch > epochs.last else None
        return Taken(data.body, new_epoch, min(data.confirmed, data.offset + len(data.body)), data.sealed)

    def ack(self, written: int, stored: int, stamp: int) -> Ack:
        if not written:
            written = stored = self._first  # the log is empty, and lacks nothing before the master's first record
        return Ack(self.epoch, written, min(stored, written), stamp)


# ---- the master's side


@dataclass(frozen=True, slots=True, kw_only=True)
class MasterLog:
    """What a master tells of itself in a handshake."""

    cluster: str
    group: str
    id: int
    epoch: int
    epochs: Epochs
    start: int
    end: int
    confirmed: int
    segment_size: int
    release: str


def why_refused(hello: Hello, log: MasterLog, view: GroupView) -> Refuse | None:
    """Return why a follower is not served, None where it is."""
    member = view.members.get(hello.id)
    reason, words = "", ""
    if (hello.cluster, hello.group) != (log.cluster, log.group):
        reason, words = STRANGER, f"this is group {log.group} of cluster {log.cluster}"
    elif hello.epoch > log.epoch:
        reason, words = STALE, f"epoch {hello.epoch} is known, this replica leads {log.epoch}"
    elif hello.id == log.id or member is None or member.incarnation != hello.incarnation:
        reason, words = WRONG, f"replica {hello.id} is no member under this incarnation, as far as is known here"
    elif hello.learner != member.learner:
        reason, words = WRONG, "it joined the group as another kind of replica"
    elif hello.segment_size != log.segment_size:
        reason, words = STRANGER, f"segments have {log.segment_size} bytes here, and {hello.segment_size} there"
    elif hello.start > hello.end:
        reason, words = WRONG, "its log ends before it begins"
    return Refuse(reason=reason, words=words, epoch=log.epoch) if reason else None


def why_not_begun(begin: Begin, hello: Hello, log: MasterLog) -> Refuse | None:
    """Return why a follower cannot go on where it says, None where it can. A claim to be ahead is never believed."""
    if begin.epoch != log.epoch:
        return Refuse(reason=STALE, words=f"this replica leads epoch {log.epoch}", epoch=log.epoch)
    point = agreement(epochs_of(hello.epochs), hello.start, hello.end, log.epochs, log.start, log.end)
    if point < log.start:
        return Refuse(reason=BEHIND, words=f"the log begins at {log.start} here", epoch=log.epoch)
    if begin.written != point or begin.written > log.end or begin.stored > begin.written:
        return Refuse(reason=WRONG, words=f"the logs agree up to {point}, not {begin.written}", epoch=log.epoch)
    return None


def whole_records(data: bytes) -> int:
    """Return how many bytes of the data are whole records. The data begins with a record."""
    at, size = 0, len(data)
    while at + _SIZE_FIELD <= size:
        following = at + int.from_bytes(data[at : at + _SIZE_FIELD], "big", signed=True)
        if following <= at or following > size:
            break
        at = following
    return at


def first_record_size(data: bytes) -> int:
    """Return the size of the record that the data begins with, 0 where that makes no sense."""
    size = int.from_bytes(data[:_SIZE_FIELD], "big", signed=True)
    return size if 0 < size <= BODY_SIZE_MAX else 0
