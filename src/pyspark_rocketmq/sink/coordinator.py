"""The commit of one batch on every broker group, which also finishes what an earlier try began (docs/decisions/0004).

This module sends requests, and `decision.py` decides what to do. First every broker group is told which run of the
query is the driver, so that it refuses earlier runs. Every request may be repeated: where a try is cut off, the next
one asks how the batch stands and goes on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Final, Protocol

from aerobee.errors import AerobeeError, RequestTimeoutError
from aerobee.errors.codes import IllegalOperationError
from aerobee.telemetry.stdlog import get_log
from pyspark_rocketmq.sink.decision import (
    BatchConflictError,
    Decision,
    Driver,
    GroupsMissingError,
    Plan,
    ReplacedError,
    Status,
    Verdict,
    choose_driver,
    decide,
    new_plan,
)

_POLL_S: Final = 0.005
_POLL_MAX_S: Final = 0.2
# How often another run may begin between the question who drives and the answer.
_JOINS_MAX: Final = 5

_log = get_log("spark.sink")


class Groups(Protocol):
    """The requests to broker groups, which `groups.BrokerGroups` sends."""

    async def find(self) -> list[str]: ...
    async def begin(self, group: str, query: str, driver: Driver) -> None: ...
    async def status(self, group: str, query: str, batch: int, driver: Driver) -> Status: ...
    async def statuses(self, groups: Iterable[str], query: str, batch: int, driver: Driver) -> dict[str, Status]: ...
    async def end(self, group: str, query: str, batch: int, action: str, plan: Plan | None, driver: Driver) -> None: ...


class BatchCoordinator:
    """The commit of one batch of one query."""

    def __init__(
        self,
        groups: Groups,
        driver: Driver,
        query: str,
        batch: int,
        first: int = 0,
        stall_s: float = 60.0,
        patience_s: float = 0.0,
    ) -> None:
        """Make a coordinator. A `driver` without an epoch takes one.

        A broker may make no progress for `stall_s`, and a group that must be asked may be away for `patience_s`.
        """
        self._groups = groups
        self.driver = driver
        self._begun: set[str] = set()
        self._query = query
        self._batch = batch
        self._first = first
        self._stall_s = stall_s
        self._patience_s = patience_s

    async def decision(self) -> Decision:
        """Return what follows from the answers of the groups that can be reached."""
        return (await self._ask())[1]

    async def _ask(self) -> tuple[list[str], Decision]:
        """Return the groups that are there and the decision. Wait for groups that must be asked and are away."""
        loop = asyncio.get_running_loop()
        until_s = loop.time() + self._patience_s
        while True:
            found = await self._groups.find()
            try:
                return found, decide(self._query, self._batch, await self.join(found), self._first)
            except GroupsMissingError:
                if loop.time() >= until_s:
                    raise
            await asyncio.sleep(_POLL_MAX_S)

    async def join(self, found: list[str]) -> dict[str, Status]:
        """Become the driver at these groups. Return the status of the batch at each. Raise ReplacedError."""
        for _ in range(_JOINS_MAX):
            # Without an epoch a group answers who began last, and refuses nothing.
            question = Driver(0, self.driver.run)
            answers = await self._groups.statuses(found, self._query, self._batch, question)
            self.driver = choose_driver(self._query, self.driver, answers)
            others = [group for group in found if answers[group].driver != self.driver]
            if not others:
                self._begun = set(found)
                return answers
            await asyncio.gather(*(self._groups.begin(group, self._query, self.driver) for group in others))
        raise BatchConflictError(
            f"query {self._query}: other runs begin again and again", hint="two drivers run one query: stop one of them"
        )

    async def commit(self, attempts: Mapping[str, Mapping[str, int]], plan_id: str) -> Plan | None:
        """Make all rows of the batch readable: those of `attempts`, or those of a plan that was made before.

        Return the plan. It is None where a later batch is committed already.
        """
        found, decision = await self._ask()
        if decision.verdict is Verdict.NOTHING:
            return None
        plan = decision.plan
        if plan is None:
            plan = new_plan(plan_id, self.driver.epoch, found, attempts)
        if not decision.is_committed:
            try:
                await self._at_all("prepare", plan)
            except IllegalOperationError as error:
                await self._give_up(plan, error)
                raise
        # Every group has the plan, so that it cannot be taken back from here on.
        await self._at_all("commit", plan)
        await self._readable(plan)
        return plan

    async def abort(self) -> None:
        """Drop the rows that no plan names.

        Where a plan is prepared or committed nothing is touched: another group may still be asked to prepare it, and
        needs its rows.
        """
        found, decision = await self._ask()
        if decision.verdict is not Verdict.WRITE:
            return
        for group in found:
            await self._groups.end(group, self._query, self._batch, "abort", None, self.driver)

    async def _at_all(self, action: str, plan: Plan) -> None:
        """Send an action to every group of the plan.

        Of several errors, that of a replaced driver is raised first, then that of a refused plan, then the others.
        """
        work = [self._at(group, action, plan) for group in sorted(plan.groups)]
        outcomes = await asyncio.gather(*work, return_exceptions=True)
        failed = [outcome for outcome in outcomes if isinstance(outcome, BaseException)]
        for kind in (ReplacedError, IllegalOperationError, BaseException):
            for error in failed:
                if isinstance(error, kind):
                    raise error

    async def begin_at(self, group: str) -> None:
        """Become the driver at a group that was away when the others were told."""
        if group not in self._begun:
            await self._groups.begin(group, self._query, self.driver)
            self._begun.add(group)

    async def _at(self, group: str, action: str, plan: Plan) -> None:
        await self.begin_at(group)
        await self._groups.end(group, self._query, self._batch, action, plan, self.driver)

    async def _give_up(self, plan: Plan, error: IllegalOperationError) -> None:
        """Take back a plan that a group refuses because its rows are gone.

        Nobody has committed such a plan or can, so that the next try writes new rows. Where a group was not reached, or
        this driver was replaced, nothing is known of the plan, and the next try finishes it.
        """
        try:
            await self._at_all("abort", plan)
        except AerobeeError as failed:
            error.add_note(f"the plan could not be taken back everywhere: {failed}")

    async def _readable(self, plan: Plan) -> None:
        """Wait until all rows of the plan are readable at their groups."""
        for group in sorted(plan.groups):
            if plan.groups[group]:
                await self._readable_at(group)

    async def _readable_at(self, group: str) -> None:
        loop = asyncio.get_running_loop()
        pause_s, before, until_s = _POLL_S, -1, loop.time() + self._stall_s
        while True:
            status = await self._groups.status(group, self._query, self._batch, self.driver)
            remaining = status.remaining
            if not remaining:
                self._require_all(group, status.set_aside)
                return
            if remaining != before:
                before, until_s = remaining, loop.time() + self._stall_s
            elif loop.time() > until_s:
                raise RequestTimeoutError(
                    f"batch {self._batch} is committed, but {remaining} of its chunks are still not readable",
                    broker=group,
                    hint="is the broker's disk full? The batch need not be written again",
                )
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, _POLL_MAX_S)

    def _require_all(self, group: str, set_aside: int) -> None:
        """Raise where the broker set rows aside, unless option exactlyOnceFrom says that this is known."""
        if not set_aside:
            return
        said = f"batch {self._batch} of query {self._query} is committed, but {set_aside} of its rows were set aside"
        if self._batch < self._first:
            _log.warning(f"{said}; exactlyOnceFrom says that this is known", broker=group)
            return
        raise BatchConflictError(
            said,
            broker=group,
            hint="the broker's log says which and why (was a topic deleted?); the other rows are readable. Write these "
            f"again by other means, then start the query with exactlyOnceFrom={self._batch + 1}",
        )
