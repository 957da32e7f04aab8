"""The running part of a simple consumer: its polls at the brokers, and the leases that it renews."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from aerobee.client.consumer.popmember import PopMember
from aerobee.client.consumer.popping import BATCH_MAX, PopOptions, PoppedMessage, Popper
from aerobee.client.consumer.renewing import LeaseKeeper
from aerobee.client.core import ClientCore
from aerobee.errors import AerobeeError, TransportError
from aerobee.protocol.bodies.heartbeat import SubscriptionData
from aerobee.runtime.tasks import Tasks
from aerobee.telemetry.stdlog import get_log

# How long a broker that refused or did not answer is left alone.
_REST_S: Final = 1.0
# A message is handed out only where so much of its time is left.
_USABLE_S: Final = 0.2

_log = get_log("client.simple")


@dataclass(frozen=True, slots=True)
class _Place:
    """One topic at one broker group."""

    topic: str
    broker: str


class SimpleEngine:
    """The polls and leases of one consumer. It belongs to the loop that it is made on."""

    def __init__(
        self,
        core: ClientCore,
        group: str,
        namespace: str,
        subscriptions: Sequence[SubscriptionData],
        *,
        from_start: bool,
        fifo: bool,
        renew_max_s: float,
    ) -> None:
        self.core = core
        self.popper = Popper(core, group, namespace)
        self.member = PopMember(core, group, "CONSUME_FROM_FIRST_OFFSET" if from_start else "CONSUME_FROM_LAST_OFFSET")
        self.member.subscriptions = {one.topic: one for one in subscriptions}
        self._from_start = from_start
        self._fifo = fifo
        self._tasks = Tasks(failed=self._failed)
        self._polls: dict[_Place, asyncio.Task[list[PoppedMessage]]] = {}
        self._resting: dict[_Place, float] = {}
        # For pops in order: the attempt that has no answer yet.
        self._attempts: dict[_Place, str] = {}
        self._turn = 0
        # Messages that came and were not asked for.
        self._came: deque[PoppedMessage] = deque()
        self.keeper = LeaseKeeper(core, self.popper, self._tasks, renew_max_s)

    def _failed(self, name: str, error: BaseException) -> None:
        _log.error("a task failed", task=name, exc_info=error)

    # -- life

    async def start(self) -> None:
        """Join the group, and learn where its topics are."""
        self.member.join()
        for topic in self.member.subscriptions:
            await self.core.route(topic)
        await self.core.heartbeat()

    async def stop(self) -> None:
        """End the polls, give back what was not handed out, and leave the group."""
        polls, self._polls = list(self._polls.values()), {}
        for poll in polls:
            poll.cancel()
        if polls:
            await asyncio.wait(polls)
        await self._tasks.close()
        for message in self._came:
            if message.lease is not None:
                try:
                    await self.popper.change(message.lease, 0.0, suspend=True)
                except AerobeeError as error:
                    _log.debug("a message was not given back; it comes again in its time", reason=str(error))
        self._came.clear()
        await self.member.leave()

    # -- receiving

    async def receive(self, count: int, invisible_s: float, wait_s: float) -> list[PoppedMessage]:
        """Return messages as soon as there are some, none after the wait. Raise where no broker can be asked."""
        now_s = self.core.clock.monotonic()
        until_s = now_s + wait_s
        found = self._take_came(count)
        problem: AerobeeError | None = None
        while not found:
            left_s = max(0.0, until_s - self.core.clock.monotonic())
            self._begin(PopOptions(
                count=min(count, BATCH_MAX), invisible_s=invisible_s, wait_s=left_s, in_order=self._fifo,
                from_start=self._from_start,
            ), await self._places())  # fmt: skip
            if self._polls:
                await asyncio.wait(self._polls.values(), timeout=left_s + 1.0, return_when=asyncio.FIRST_COMPLETED)
            problem = self._gather() or problem
            found = self._take_came(count)
            left_s = until_s - self.core.clock.monotonic()
            if found or left_s <= 0.01:
                break
            if not self._polls:
                await asyncio.sleep(min(left_s, _REST_S / 4))
        if not found and problem is not None and not self._polls and len(self._resting) >= len(await self._places()):
            raise problem
        return found

    def _take_came(self, count: int) -> list[PoppedMessage]:
        found: list[PoppedMessage] = []
        now_s = self.core.clock.monotonic()
        while self._came and len(found) < count:
            message = self._came.popleft()
            # One whose time is nearly over was not asked for in time: others get it.
            if message.lease is not None and message.lease.until_s - now_s > _USABLE_S:
                found.append(message)
        return found

    async def _places(self) -> list[_Place]:
        places = []
        for topic in self.member.subscriptions:
            route = await self.core.route(topic)
            brokers = dict.fromkeys(route.broker_of(queue) for queue in route.read_queues)
            places += [_Place(topic, broker) for broker in brokers]
        if not places:
            raise TransportError("no broker serves the topics now", hint="is one up? (aerobee cluster)")
        return places

    def _begin(self, options: PopOptions, places: list[_Place]) -> None:
        """Poll every broker that is not polled yet, beginning with another one each time."""
        now_s = self.core.clock.monotonic()
        self._turn += 1
        for number in range(len(places)):
            place = places[(number + self._turn) % len(places)]
            if place in self._polls or self._resting.get(place, 0.0) > now_s:
                continue
            self._polls[place] = asyncio.get_running_loop().create_task(
                self._poll(place, options), name=f"pop {place.topic} {place.broker}"
            )

    async def _poll(self, place: _Place, options: PopOptions) -> list[PoppedMessage]:
        if self._fifo:
            # The same attempt gets the same messages where an answer was lost.
            attempt = self._attempts.setdefault(place, self.core.unique_ids.next(self.core.clock.now_ms()))
            options = PopOptions(
                count=options.count, invisible_s=options.invisible_s, wait_s=options.wait_s, in_order=True,
                attempt_id=attempt, from_start=options.from_start,
            )  # fmt: skip
        found = await self.popper.pop(place.broker, -1, self.member.subscriptions[place.topic], options)
        self._attempts.pop(place, None)
        return found

    def _gather(self) -> AerobeeError | None:
        """Take up what polls brought; return the error of one that failed."""
        problem: AerobeeError | None = None
        now_s = self.core.clock.monotonic()
        for place, poll in list(self._polls.items()):
            if not poll.done():
                continue
            del self._polls[place]
            self._resting.pop(place, None)
            error = None if poll.cancelled() else poll.exception()
            if isinstance(error, AerobeeError):
                problem = error
                self._resting[place] = now_s + _REST_S
                self.core.doubt_route(place.topic, error)
            elif error is not None:
                raise error
            elif not poll.cancelled():
                self._came.extend(poll.result())
        return problem
