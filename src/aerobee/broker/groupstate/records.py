"""The records of the state topic: changes, snapshots, deletions of topics, and settings.

One queue holds them all, in order (docs/formats/group-state.md). The body is a JSON object. Entries of a change stand
by section and key; a null says that the entry is gone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

import msgspec

from aerobee.errors import InvalidArgumentError
from aerobee.hot.log.javahash import tags_code
from aerobee.hot.log.properties import decode_properties, encode_properties
from aerobee.hot.log.record import Draft, Record
from aerobee.model.names import STATE_TOPIC
from aerobee.model.sysproperties import PRIVATE_PREFIX, TAGS

TOPIC: Final = STATE_TOPIC.encode()
MARK: Final = PRIVATE_PREFIX + "STATE"
VERSION: Final = "1"
# One record has about this much of a long change.
PIECE_SIZE: Final = 128 << 10


class StateKind(StrEnum):
    """What a record says."""

    CHANGE = "change"
    # A snapshot: what stands between these two, changes included, is the whole state.
    BEGIN = "begin"
    END = "end"
    DELETE = "delete"
    SETTINGS = "settings"


# Queue units of ends of snapshots are found by this code.
END_CODE: Final = tags_code(StateKind.END)

Entries = dict[str, dict[str, object]]


@dataclass(frozen=True, slots=True)
class StateRecord:
    """One record. Fields that its kind has no use for are empty."""

    kind: StateKind
    # CHANGE: by section and key, the value as JSON, or None.
    entries: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    # END: the queue offset of the BEGIN.
    begin: int = -1
    # DELETE: topics whose records before this one are deleted.
    topics: tuple[str, ...] = ()
    # SETTINGS: what an administrator changed, under RocketMQ's keys.
    values: Mapping[str, str] = field(default_factory=dict)


class _Body(msgspec.Struct, omit_defaults=True):
    """The JSON form of a record."""

    entries: dict[str, dict[str, Any]] = {}
    begin: int = -1
    topics: tuple[str, ...] = ()
    values: dict[str, str] = {}


_BODIES: Final = msgspec.json.Decoder(_Body)


def state_draft(record: StateRecord, host: bytes, now_ms: int) -> Draft:
    """Return the record, ready for the log."""
    entries = {section: dict(found) for section, found in record.entries.items()}
    body = msgspec.json.encode(_Body(entries, record.begin, record.topics, dict(record.values)))
    block = encode_properties({MARK: VERSION, TAGS: record.kind.value})
    return Draft(TOPIC, 0, 0, 0, now_ms, host, host, 0, 0, body, block, tags_code(record.kind), "", "")


def read_state(record: Record) -> StateRecord:
    """Return what a record of the state topic says; raise InvalidArgumentError where no broker of a group wrote it.

    A broker's record is born where it is stored. What a client could send to another make of broker was born at the
    client, and must change nothing here.
    """
    properties = decode_properties(record.properties)
    if record.born_host != record.store_host or properties.get(MARK) != VERSION:
        raise InvalidArgumentError("a record of the group's state that no broker of this version wrote")
    try:
        kind, body = StateKind(properties.get(TAGS, "")), _BODIES.decode(record.body)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise InvalidArgumentError(f"a record of the group's state makes no sense: {error}") from error
    return StateRecord(kind, body.entries, body.begin, body.topics, body.values)


def size_of(key: str, value: object) -> int:
    """Return about how many bytes an entry takes; raise ValueError where it cannot be written as JSON."""
    try:
        return len(msgspec.json.encode({key: value}))
    except (msgspec.MsgspecError, TypeError, OverflowError) as error:
        raise ValueError(f"it cannot be written: {error}") from error


def pieces(entries: Iterable[tuple[str, str, object]], size_max: int) -> Iterable[Entries]:
    """Yield the entries (section, key, JSON value) in groups that make records of about `size_max` bytes."""
    found: Entries = {}
    size = 0
    for section, key, value in entries:
        found.setdefault(section, {})[key] = value
        size += size_of(key, value)
        if size >= size_max:
            yield found
            found, size = {}, 0
    if found:
        yield found
