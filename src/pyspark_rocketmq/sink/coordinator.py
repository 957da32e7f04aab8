"""Commits one batch on every broker group, or finishes what an earlier try began (docs/decisions/0004).

A driver of requests: what to do is `decision.decide`'s. Every request may be repeated: whoever is cut off is
followed by one who asks first and goes on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Final, Protocol

from aerobee.errors import AerobeeError, RequestTimeoutError
from pyspark_rocketmq.sink.decision import Decision, Plan, Status, Verdict, decide, new_plan

_POLL_S: Final = 0.005
_POLL_MAX_S: Final = 0.2


class Groups(Protocol):
    """The broker groups, as `groups.BrokerGroups` asks them."""

    async def find(self) -> list[str]: ...
    async def status(self, group: str, query: str, batch: int) -> Status: ...
    async def statuses(self, groups: Iterable[str], query: str, batch: int) -> dict[str, Status]: ...
    async def end(self, group: str, query: str, batch: int, action: str, plan: Plan | None) -> None: ...


class Coordinator:
    """One batch of one query."""

    def __init__(self, groups: Groups, query: str, batch: int, first: int = 0, stall_s: float = 60.0) -> None:
        """`stall_s`: how long a broker may make no progress with a commit."""
        self._groups = groups
        self._query = query
        self._batch = batch
        self._first = first
        self._stall_s = stall_s

    async def decision(self) -> Decision:
        """What the groups that can be reached say together."""
        return (await self._ask())[1]

    async def _ask(self) -> tuple[list[str], Decision]:
        found = await self._groups.find()
        answers = await self._groups.statuses(found, self._query, self._batch)
        return found, decide(self._query, self._batch, answers, self._first)

    async def commit(self, attempts: Mapping[str, Mapping[str, int]], plan_id: str) -> None:
        """All rows of the batch readable when this returns: those of `attempts`, or of a plan made before."""
        found, decision = await self._ask()
        if decision.verdict is Verdict.NOTHING:
            return
        plan = decision.plan if decision.plan is not None else new_plan(plan_id, found, attempts)
        if not decision.is_committed:
            try:
                await self._at_all("prepare", plan)
            except AerobeeError as error:
                await self._give_up(plan, error)
                raise
        # Every group has the plan: from here on there is no way back.
        await self._at_all("commit", plan)
        await self._readable(plan)

    async def abort(self) -> None:
        """Rows that no plan names are dropped. Where one is prepared or committed nothing is touched: another group may
        still be asked to prepare it, and needs its rows."""
        found, decision = await self._ask()
        if decision.verdict is not Verdict.WRITE:
            return
        for group in found:
            await self._groups.end(group, self._query, self._batch, "abort", None)

    async def _at_all(self, action: str, plan: Plan) -> None:
        """At every group of the plan; a refusal counts before a group that was not reached."""
        work = [self._groups.end(group, self._query, self._batch, action, plan) for group in sorted(plan.groups)]
        outcomes = await asyncio.gather(*work, return_exceptions=True)
        failed = [outcome for outcome in outcomes if isinstance(outcome, BaseException)]
        failed.sort(key=lambda error: isinstance(error, AerobeeError) and error.retriable)
        if failed:
            raise failed[0]

    async def _give_up(self, plan: Plan, error: AerobeeError) -> None:
        """Where a group refuses the plan (its rows are gone), nobody can commit it: it is taken back, and the next try
        writes new rows. Where one was not reached nothing is known, and the next try finishes this plan."""
        if error.retriable:
            return
        try:
            await self._at_all("abort", plan)
        except AerobeeError as failed:
            error.add_note(f"the plan could not be taken back everywhere: {failed}")

    async def _readable(self, plan: Plan) -> None:
        """Until the copies of every row are stored."""
        for group in sorted(plan.groups):
            if plan.groups[group]:
                await self._readable_at(group)

    async def _readable_at(self, group: str) -> None:
        loop = asyncio.get_running_loop()
        pause_s, before, until_s = _POLL_S, -1, loop.time() + self._stall_s
        while True:
            remaining = (await self._groups.status(group, self._query, self._batch)).remaining
            if not remaining:
                return
            if remaining != before:
                before, until_s = remaining, loop.time() + self._stall_s
            elif loop.time() > until_s:
                raise RequestTimeoutError(
                    f"batch {self._batch} is committed, and {remaining} of its chunks are still not readable",
                    broker=group,
                    hint="is the broker's disk full? The batch need not be written again",
                )
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, _POLL_MAX_S)
