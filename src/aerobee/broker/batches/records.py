"""The records of the batch topic: drivers, rows, plans, ends and keys.

One queue holds them all, in order. What a broker knows of batches is what these records say (docs/formats/private.md).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import Enum
from typing import Annotated, Final, NamedTuple

import msgspec

from aerobee.hot.log.properties import decode_properties, encode_properties
from aerobee.hot.log.record import Draft, Record
from aerobee.model.names import BATCH_TOPIC
from aerobee.model.sysproperties import PRIVATE_PREFIX

TOPIC: Final = BATCH_TOPIC.encode()
MARK: Final = PRIVATE_PREFIX + "BATCH"
KEY_SIZE: Final = 16
# Copies of rows say in *prepared transaction offset* which chunk they come from: no place in a log is as high.
FIRST_SERIAL: Final = 1 << 62


class BatchDriver(NamedTuple):
    """One run of a query. A later run is greater. Two runs that took the same epoch differ by their name."""

    epoch: int
    run: str


# The driver of records from before drivers had epochs.
NOBODY: Final = BatchDriver(0, "")


class Kind(Enum):
    """What a record says."""

    BEGIN = "begin"
    ROWS = "rows"
    PREPARE = "prepare"
    COMMIT = "commit"
    ABORT = "abort"
    KEYS = "keys"
    DONE = "done"


# `sequence` of a DONE: all rows are stored; only the first rows of the keys are; some rows were set aside.
ALL_DONE: Final = 0
CUT: Final = 1
SET_ASIDE: Final = 2


@dataclass(frozen=True, slots=True)
class BatchEntry:
    """One record. Fields that its kind has no use for are empty."""

    kind: Kind
    query: str = ""
    batch: int = -1
    # ROWS: who sent them, and the number of the chunk. ROWS and KEYS: how many rows. COMMIT: how many were set aside.
    attempt: str = ""
    sequence: int = 0
    rows: int = 0
    topic: str = ""
    queue_id: int = 0
    # The number of a chunk or of keys. DONE names it, and its `rows` counts what its `sequence` says.
    serial: int = 0
    plan_id: str = ""
    lease_ms: int = 0
    # KEYS: the broker groups that keys are spread over.
    groups: tuple[str, ...] = ()
    # Who asked for it.
    epoch: int = 0
    run: str = ""
    # BEGIN: the runs that were replaced before, the newest first.
    past: tuple[str, ...] = ()

    @property
    def driver(self) -> BatchDriver:
        return BatchDriver(self.epoch, self.run)


@dataclass(frozen=True, slots=True)
class BatchPlan:
    """What a batch is made of: for each broker group the attempts that count, with their chunks."""

    plan_id: str
    groups: dict[str, dict[str, int]]
    # The epoch of the driver that made the plan.
    epoch: int = 0

    def encode(self) -> bytes:
        return msgspec.json.encode({"id": self.plan_id, "epoch": self.epoch, "groups": self.groups}, order="sorted")

    def of(self, group: str) -> dict[str, int]:
        return self.groups.get(group, {})

    @property
    def parts(self) -> int:
        """How many pairs of group and attempt it names, and groups."""
        return len(self.groups) + sum(len(chunks) for chunks in self.groups.values())


_Int32 = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]
_Int64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]


class _PlanText(msgspec.Struct):
    """The JSON form of a plan. The decoder refuses every other form, and numbers out of bounds."""

    id: str
    groups: dict[str, dict[str, _Int32]]
    epoch: _Int64 = 0


_PLANS: Final = msgspec.json.Decoder(_PlanText)


def decode_plan(body: bytes) -> BatchPlan:
    """Return the plan; raise ValueError for anything else."""
    try:
        found = _PLANS.decode(body)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise ValueError(f"not a plan: {error}") from None
    return BatchPlan(found.id, found.groups, found.epoch)


class _EntryText(msgspec.Struct):
    """The JSON form of an entry, in property MARK, with short names."""

    k: Kind
    q: str = ""
    b: _Int64 = -1
    a: str = ""
    s: _Int64 = 0
    n: _Int64 = 0
    t: str = ""
    i: _Int64 = 0
    x: _Int64 = 0
    p: str = ""
    l: _Int64 = 0  # noqa: E741 (stored so)
    g: tuple[str, ...] = ()
    e: _Int64 = 0
    r: str = ""
    o: tuple[str, ...] = ()


_ENTRIES: Final = msgspec.json.Decoder(_EntryText)
_NAMES: Final = {
    "query": "q", "batch": "b", "attempt": "a", "sequence": "s", "rows": "n", "topic": "t", "queue_id": "i",
    "serial": "x", "plan_id": "p", "lease_ms": "l", "groups": "g", "epoch": "e", "run": "r", "past": "o",
}  # fmt: skip
_DEFAULT: Final = BatchEntry(Kind.DONE)


def entry_draft(entry: BatchEntry, body: bytes, now_ms: int, born_host: bytes, store_host: bytes) -> Draft:
    """Return the record, ready for the log."""
    said: dict[str, object] = {"k": entry.kind.value}
    for name, short in _NAMES.items():
        value = getattr(entry, name)
        if value != getattr(_DEFAULT, name):
            said[short] = value
    block = encode_properties({MARK: json.dumps(said, separators=(",", ":"))})
    return Draft(TOPIC, 0, 0, 0, now_ms, born_host, store_host, 0, 0, body or b"-", block, 0, "", "")


def read_entry(record: Record) -> BatchEntry | None:
    """Return the entry of a record; None where it is not ours, or of a kind that a later version writes."""
    text = decode_properties(record.properties).get(MARK)
    if text is None:
        return None
    try:
        said = _ENTRIES.decode(text)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return None
    return BatchEntry(
        said.k, said.q, said.b, said.a, said.s, said.n, said.t, said.i, said.x, said.p, said.l, said.g, said.e,
        said.r, said.o,
    )  # fmt: skip
