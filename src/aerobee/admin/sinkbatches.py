"""The batches of exactly-once sinks, as the journal of each broker tells them (docs/formats/private.md)."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from aerobee.admin.values import Value
from aerobee.model.message import Message
from aerobee.model.numbers import int_or
from aerobee.model.sysproperties import PRIVATE_PREFIX

_MARK: Final = PRIVATE_PREFIX + "BATCH"
# The phases of a batch in their order.
OPEN: Final = "open"
PREPARED: Final = "prepared"
COMMITTED: Final = "committed"
ABORTED: Final = "aborted"


@dataclass(frozen=True, slots=True)
class SinkBatch(Value):
    """The newest batch of a query on one broker."""

    query: str
    broker: str
    batch: int
    # open: rows came; prepared: they may be committed; committed: they are readable, or are being made so; aborted.
    phase: str
    rows: int
    topics: tuple[str, ...]
    # The run that is at work, counted from 1.
    epoch: int
    first_ms: int
    last_ms: int


@dataclass(slots=True)
class _Known:
    batch: int
    phase: str = OPEN
    rows: int = 0
    epoch: int = 0
    first_ms: int = 0
    last_ms: int = 0
    topics: set[str] = field(default_factory=set)


_PHASES: Final = {"prepare": PREPARED, "commit": COMMITTED, "abort": ABORTED}


def newest_batches(records: Iterable[Message]) -> tuple[SinkBatch, ...]:
    """Return the newest batch of each query on each broker. The records may come in any order of brokers, but those of
    one broker come newest first, so that the newest word on a batch counts."""
    found: dict[tuple[str, str], _Known] = {}
    for record in records:
        said = _said(record)
        kind, query, batch = said.get("k"), str(said.get("q", "")), int_or(str(said.get("b", -1)), -1)
        if not query or batch < 0:
            continue
        known = found.get((query, record.broker))
        if known is None:
            known = found[query, record.broker] = _Known(
                batch, _PHASES.get(str(kind), OPEN), epoch=int_or(str(said.get("e", 0)), 0),
                last_ms=record.store_timestamp,
            )  # fmt: skip
        if batch != known.batch:
            continue
        known.first_ms = record.store_timestamp
        if known.phase == OPEN and kind in _PHASES:
            known.phase = _PHASES[kind]
        if kind == "rows":
            known.rows += int_or(str(said.get("n", 0)), 0)
            known.topics.add(str(said.get("t", "")))
    return tuple(
        SinkBatch(
            query, broker, one.batch, one.phase, one.rows, tuple(sorted(filter(None, one.topics))), one.epoch,
            one.first_ms, one.last_ms,
        )
        for (query, broker), one in sorted(found.items())
    )  # fmt: skip


def is_entry(record: Message) -> bool:
    """Tell whether a record of the journal is about a batch of a query."""
    return bool(_said(record).get("q"))


def _said(record: Message) -> dict[str, Any]:
    text = record.system_properties.get(_MARK) or record.properties.get(_MARK) or ""
    try:
        said = json.loads(text)
    except ValueError:
        return {}
    return said if isinstance(said, dict) else {}
