"""Limits of the batches of sinks: for memory, and for the time that one request takes."""

from __future__ import annotations

from typing import Final

from aerobee.broker.batches.records import BatchDriver, BatchPlan
from aerobee.broker.refusal import Refusal
from aerobee.protocol.codes import ResponseCode

# Queries that are remembered. Beyond it the longest unused is forgotten, unless it was used within a day.
QUERIES_MAX: Final = 20_000
CROWDED_KEEP_MS: Final = 86_400_000
# Chunks held or being copied: of one query, and of all.
QUERY_CHUNKS_MAX: Final = 30_000
CHUNKS_MAX: Final = 200_000
# Batches of one query with rows held: Spark has one, and another where the driver was replaced.
OPEN_BATCHES_MAX: Final = 64
# Limits of a plan's pairs of group and attempt, of its text, and of the texts of all plans.
PLAN_PARTS_MAX: Final = 30_000
PLAN_BYTES_MAX: Final = 1 << 20
PLANS_BYTES_MAX: Final = 64 << 20
KEYS_MAX: Final = 10_000_000
KEYED_TOPICS_MAX: Final = 1_000
# Limits of prepares, commits and aborts whose outcome is not stored yet.
ENDS_BYTES_MAX: Final = 32 << 20
TURNS_MAX: Final = 1_000

LEASE_MIN_MS: Final = 60_000
LEASE_MAX_MS: Final = 30 * 86_400_000
# A query is forgotten after so long a silence; a query without a name of its user's, after its lease.
FORGET_MS: Final = 30 * 86_400_000
# Replaced runs that are remembered by name.
PAST_MAX: Final = 8
# How far a driver's epoch may be ahead of what a group has seen, so that the next driver still finds a number.
EPOCH_STEP_MAX: Final = 1_000_000

_NAME_MAX: Final = 256
_ID_MAX: Final = 64
_GROUPS_TEXT_MAX: Final = 4_000


def illegal(remark: str) -> Refusal:
    return Refusal(ResponseCode.MESSAGE_ILLEGAL, remark)


def refuse_name(query: str, batch: int, driver: BatchDriver) -> Refusal | None:
    """Return why no request may name this query, batch and driver."""
    if not _is_name(query, _NAME_MAX):
        return illegal(f"queryId: {_NAME_MAX} printable characters at most, and at least one")
    if batch < 0:
        return illegal(f"batchId: {batch} is negative")
    if driver.epoch < 0 or bool(driver.epoch) != bool(driver.run) or (driver.run and not _is_name(driver.run, _ID_MAX)):
        return illegal(f"epoch and run: a number from 1 on and {_ID_MAX} printable characters at most, or neither")
    return None


def refuse_chunk(attempt: str, sequence: int, groups: str) -> Refusal | None:
    """Return why no rows may be named so."""
    if attempt and not _is_name(attempt, _ID_MAX):
        return illegal(f"attempt: {_ID_MAX} printable characters at most")
    if not 0 <= sequence < QUERY_CHUNKS_MAX:
        return illegal(f"sequence: {sequence} is not from 0 to {QUERY_CHUNKS_MAX - 1}")
    if groups and not _is_name(groups, _GROUPS_TEXT_MAX):
        return illegal(f"groups: {_GROUPS_TEXT_MAX} printable characters at most")
    return None


def refuse_plan(plan: BatchPlan, size: int) -> Refusal | None:
    """Return why no batch may have such a plan."""
    if size > PLAN_BYTES_MAX or plan.parts > PLAN_PARTS_MAX:
        return illegal(
            f"a plan of {size} bytes and {plan.parts} parts, more than {PLAN_BYTES_MAX} or {PLAN_PARTS_MAX}: write the "
            "batch with fewer tasks (coalesce)"
        )
    if not _is_name(plan.plan_id, _ID_MAX) or plan.epoch < 0:
        return illegal(f"a plan's id: {_ID_MAX} printable characters at most, and its epoch: not negative")
    return None


def _is_name(text: str, length_max: int) -> bool:
    return 0 < len(text) <= length_max and text.isprintable()
