"""The keys of a group in the coordination store, and their values as JSON (docs/formats/coordination.md).

Below `/aerobee/CLUSTER/GROUP/` there are `state`, `members/ID`, `live/ID` and `next_id`. Every value says its version.
A field that a reader does not know is ignored, and one that is missing has its default.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final, TypeVar
from urllib.parse import quote

import msgspec

from aerobee.errors import CoordinationError
from aerobee.replication.values import GroupState, LiveReplica, ReplicaMember

FORMAT: Final = 1
_ROOT: Final = "/aerobee"

Record = TypeVar("Record", GroupState, LiveReplica, ReplicaMember)


class GroupKeys:
    """The keys of one group. Names are quoted, so that a slash in one of them is no other group."""

    def __init__(self, cluster: str, group: str) -> None:
        self.prefix = f"{_ROOT}/{quote(cluster, safe='')}/{quote(group, safe='')}/".encode()
        self.state = self.prefix + b"state"
        self.next_id = self.prefix + b"next_id"
        self._members = self.prefix + b"members/"
        self._live = self.prefix + b"live/"

    def member(self, number: int) -> bytes:
        return self._members + b"%d" % number

    def live(self, number: int) -> bytes:
        return self._live + b"%d" % number

    def is_member(self, key: bytes) -> bool:
        return key.startswith(self._members)

    def is_live(self, key: bytes) -> bool:
        return key.startswith(self._live)


class _Version(msgspec.Struct):
    v: int


def encode_record(record: GroupState | LiveReplica | ReplicaMember) -> bytes:
    """Return the value that is stored. The revision of a state is not part of it."""
    fields: dict[str, object] = {"v": FORMAT, **msgspec.to_builtins(record, str_keys=True)}
    if isinstance(record, GroupState):
        del fields["revision"]
    return msgspec.json.encode(fields)


def decode_record(kind: type[Record], key: bytes, value: bytes) -> Record:
    """Return a stored value. Raise CoordinationError for one that cannot be understood."""
    try:
        version = msgspec.json.decode(value, type=_Version).v
        if version != FORMAT:
            raise ValueError(f"its version {version} is not {FORMAT}; a newer release may have written it")
        return msgspec.json.decode(value, type=kind, strict=True)
    except ValueError as error:
        name = key.decode(errors="backslashreplace")
        raise CoordinationError(f"the coordination store holds {name}, which cannot be understood: {error}") from None


def decode_state(key: bytes, value: bytes, revision: int) -> GroupState:
    """Return a stored state with the revision at which it was stored. Raise CoordinationError if it makes no sense."""
    state = decode_record(GroupState, key, value)
    if state.epoch < 0 or state.min_in_sync < 1 or any(number < 1 for number in (*state.in_sync, *state.eligible)):
        raise CoordinationError(f"the coordination store holds {key.decode(errors='backslashreplace')} without sense")
    return replace(state, revision=revision)
