"""The records of the batch topic, as values: rows held, plans prepared, committed and aborted, keys, what is done.

One queue holds them all, in order; a broker's memory of batches is what these records say (docs/formats/private.md).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from aerobee.hot.properties import decode_properties, encode_properties
from aerobee.hot.record import Draft, Record
from aerobee.model.names import BATCH_TOPIC
from aerobee.model.sysproperties import PRIVATE_PREFIX

TOPIC: Final = BATCH_TOPIC.encode()
MARK: Final = PRIVATE_PREFIX + "BATCH"
KEY_SIZE: Final = 16
# Copies of rows say in *prepared transaction offset* which chunk they come from: no place in a log is as high.
FIRST_SERIAL: Final = 1 << 62


class Kind(Enum):
    """What a record says."""

    ROWS = "rows"
    PREPARE = "prepare"
    COMMIT = "commit"
    ABORT = "abort"
    KEYS = "keys"
    DONE = "done"


@dataclass(frozen=True, slots=True)
class Entry:
    """One record. Fields that its kind has no use for are empty."""

    kind: Kind
    query: str = ""
    batch: int = -1
    # ROWS: who sent them, the how-manieth chunk of it; ROWS and KEYS: how many rows.
    attempt: str = ""
    sequence: int = 0
    rows: int = 0
    topic: str = ""
    queue_id: int = 0
    # Of a chunk or of keys; DONE names it, with sequence 1 where only `rows` of the keys' rows are there.
    serial: int = 0
    plan_id: str = ""
    lease_ms: int = 0
    # KEYS: the broker groups that keys are spread over.
    groups: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Plan:
    """What a batch is made of: for each broker group the attempts that count, with their chunks."""

    plan_id: str
    groups: dict[str, dict[str, int]]

    def encode(self) -> bytes:
        return json.dumps({"id": self.plan_id, "groups": self.groups}, sort_keys=True).encode()

    def of(self, group: str) -> dict[str, int]:
        return self.groups.get(group, {})


def decode_plan(body: bytes) -> Plan:
    """ValueError for anything else."""
    found: Any = json.loads(body)
    try:
        groups = {
            str(group): {str(attempt): int(count) for attempt, count in chunks.items()}
            for group, chunks in found["groups"].items()
        }
        return Plan(str(found["id"]), groups)
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"not a plan: {error!r}") from None


_NAMES: Final = {
    "query": "q", "batch": "b", "attempt": "a", "sequence": "s", "rows": "n", "topic": "t", "queue_id": "i",
    "serial": "x", "plan_id": "p", "lease_ms": "l", "groups": "g",
}  # fmt: skip
_DEFAULT: Final = Entry(Kind.DONE)


def entry_draft(entry: Entry, body: bytes, now_ms: int, born_host: bytes, store_host: bytes) -> Draft:
    """The record, ready for the log."""
    said: dict[str, object] = {"k": entry.kind.value}
    for name, short in _NAMES.items():
        value = getattr(entry, name)
        if value != getattr(_DEFAULT, name):
            said[short] = value
    block = encode_properties({MARK: json.dumps(said, separators=(",", ":"))})
    return Draft(TOPIC, 0, 0, 0, now_ms, born_host, store_host, 0, 0, body or b"-", block, 0, "", "")


def read_entry(record: Record) -> Entry | None:
    """None for a record that is none of ours."""
    text = decode_properties(record.properties).get(MARK)
    if text is None:
        return None
    try:
        said = json.loads(text)
        fields = {name: said[short] for name, short in _NAMES.items() if short in said}
        if "groups" in fields:
            fields["groups"] = tuple(fields["groups"])
        return Entry(Kind(said["k"]), **fields)
    except (ValueError, KeyError, TypeError):
        return None
