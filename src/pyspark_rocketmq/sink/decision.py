"""A machine that decides which run drives a query, and how to continue a batch, from the answers of all broker groups.

Every batch is told to all groups that can be reached, with or without rows for them. These must be most of the groups
that were told of the previous batch. A replay needs as many, so it reaches one that knows (docs/decisions/0004).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final, NamedTuple

from aerobee.errors import AerobeeError

OPEN, PREPARED, COMMITTED = "open", "prepared", "committed"
REPLACED_HINT: Final = "two drivers run one query: stop one of them. If only this one runs, start it again"


class BatchConflictError(AerobeeError):
    """A batch can neither be finished nor written again safely. The hint says what to do."""


class GroupsMissingError(BatchConflictError):
    """Broker groups that must be asked about a batch are away. They may come back."""

    retriable = True


class ReplacedError(BatchConflictError):
    """A later run of the query has begun, so brokers no longer obey this one."""


class Driver(NamedTuple):
    """A run of a query, with the epoch that it took (0: none yet). A later driver is greater."""

    epoch: int
    run: str


NOBODY: Final = Driver(0, "")


@dataclass(frozen=True, slots=True)
class Plan:
    """The attempts that count for each broker group, with the number of their chunks."""

    plan_id: str
    groups: dict[str, dict[str, int]] = field(default_factory=dict)
    # The epoch of the driver that made it.
    epoch: int = 0

    def encode(self) -> bytes:
        said = {"id": self.plan_id, "epoch": self.epoch, "groups": self.groups}
        return json.dumps(said, sort_keys=True).encode()


def decode_plan(body: bytes) -> Plan | None:
    """Return the plan in a broker's answer, or None."""
    if not body:
        return None
    found: Any = json.loads(body)
    return Plan(found["id"], found["groups"], found.get("epoch", 0))


@dataclass(frozen=True, slots=True)
class Status:
    """The answer of one broker group about a batch."""

    state: str
    # The last batch that this group has committed.
    committed: int
    plan: Plan | None = None
    remaining: int = 0
    # The broker groups that were told of that last batch.
    witnesses: tuple[str, ...] = ()
    # Idempotent: the broker groups that the batch's keys were spread over, by topic.
    keyed: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    # The newest driver at this group, and whether the run that asks was replaced by it.
    driver: Driver = NOBODY
    is_replaced: bool = False
    # Rows of the committed batch that could not be stored for readers.
    set_aside: int = 0


class Verdict(Enum):
    """What to do with a batch."""

    WRITE = "write"
    FINISH = "finish"
    NOTHING = "nothing"


@dataclass(frozen=True, slots=True)
class Decision:
    """A verdict. FINISH has the plan to finish."""

    verdict: Verdict
    plan: Plan | None = None
    # FINISH: a group has committed it, so it cannot be taken back.
    is_committed: bool = False


def choose_driver(query: str, driver: Driver, answers: Mapping[str, Status]) -> Driver:
    """Return the driver with its epoch, which it has or is to take at every group that names another one.

    A run that is new everywhere takes the number after the highest. One that has begun somewhere keeps its own, and is
    replaced where any group has seen a later one. Raises ReplacedError.
    """
    highest = max((answer.driver for answer in answers.values()), default=NOBODY)
    epoch, run = driver
    if not epoch:
        own = [answer.driver.epoch for answer in answers.values() if answer.driver.run == run]
        epoch = max(own, default=0)
    is_replaced = any(answer.is_replaced for answer in answers.values())
    if is_replaced or (epoch and highest > (epoch, run)):
        raise ReplacedError(
            f"query {query}: run {run} (epoch {epoch or 'unknown'}) was replaced by run {highest.run} (epoch "
            f"{highest.epoch})",
            hint=REPLACED_HINT,
        )
    return Driver(epoch or highest.epoch + 1, run)


def decide(query: str, batch: int, answers: Mapping[str, Status], first: int = 0) -> Decision:
    """Return what to do with a batch, or raise BatchConflictError.

    `first` is the first batch of the query that was sent at this level.
    """
    committed = [answer.plan for answer in answers.values() if answer.state == COMMITTED]
    plans = {plan.plan_id: plan for plan in committed if plan is not None}
    if len(plans) > 1:
        raise BatchConflictError(
            f"batch {batch} of query {query} was committed with {len(plans)} plans",
            hint="two drivers ran one query at the same time: readers may have rows twice",
        )
    if plans:
        return Decision(Verdict.FINISH, next(iter(plans.values())), is_committed=True)
    if committed:
        return Decision(Verdict.NOTHING)  # a later batch is committed: so was this one, everywhere
    known = {
        answer.plan.plan_id: answer.plan
        for answer in answers.values()
        if answer.state == PREPARED and answer.plan is not None
    }
    if known:
        # If there are several, any will do: none was committed, since each lacks a group.
        return Decision(Verdict.FINISH, max(known.values(), key=lambda plan: (plan.epoch, plan.plan_id)))
    if batch > first:
        _require_witnesses(query, batch, answers)
    return Decision(Verdict.WRITE)


def _require_witnesses(query: str, batch: int, answers: Mapping[str, Status]) -> None:
    """Raise GroupsMissingError unless any earlier writer of this batch told a group that can be reached now."""
    told = [answer.witnesses for answer in answers.values() if answer.committed == batch - 1]
    reached = ", ".join(sorted(answers))
    way_out = (
        f"if they are gone for good, or the query had another deliveryGuarantee until now: exactlyOnceFrom={batch} "
        "begins anew"
    )
    if not told:
        raise GroupsMissingError(
            f"batch {batch} of query {query}: no broker group that can be reached ({reached}) knows how batch "
            f"{batch - 1} ended",
            hint=f"start the broker groups that are missing; {way_out}",
        )
    witnesses = set().union(*told)
    missing = sorted(witnesses - set(answers))
    if 2 * len(missing) >= len(witnesses):
        raise GroupsMissingError(
            f"batch {batch} of query {query}: of the broker groups that took part in the batch before, "
            f"{', '.join(missing)} cannot be reached (only {reached})",
            hint=f"start them: they may have committed this batch already; {way_out}",
        )


def new_plan(plan_id: str, epoch: int, groups: list[str], attempts: Mapping[str, Mapping[str, int]]) -> Plan:
    """Return a plan that names every reachable group. `attempts` says how many chunks of each attempt a group has."""
    parts: dict[str, dict[str, int]] = {group: {} for group in groups}
    for attempt, chunks in attempts.items():
        for group, count in chunks.items():
            parts.setdefault(group, {})[attempt] = count
    return Plan(plan_id, parts, epoch)
