"""Asks the brokers in the background, so that pages with lists ask nobody: one request a broker for what is cheap, and
topics and groups in turn, at a bounded rate.

There is one collector for each user of the cluster who is logged in, because rights decide what each one sees.
"""

from __future__ import annotations

import asyncio
import functools
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Final, TypeVar

from aerobee.admin.cluster import BrokerStatus, runtime_info, status_of, unreached
from aerobee.admin.connection import AdminConnection, KnownBroker, problem_of
from aerobee.admin.groups import GroupSettings, Member, is_system_group, settings_on
from aerobee.admin.topics import summaries
from aerobee.dashboard.series import SERIES_MAX, Series
from aerobee.dashboard.snapshot import GroupNumbers, KnownGroup, Snapshot, TopicNumbers
from aerobee.errors import AerobeeError, TransportError
from aerobee.errors.codes import ConsumerError, NoPermissionError
from aerobee.model.group import SubscriptionGroupConfig
from aerobee.model.names import RETRY_PREFIX
from aerobee.model.topic import TopicConfig
from aerobee.protocol.bodies.base import Body
from aerobee.protocol.bodies.groups import ConsumerConnection, SubscriptionGroupWrapper
from aerobee.protocol.bodies.offsets import ConsumeStats, TopicStatsTable
from aerobee.protocol.bodies.topics import TopicConfigSerializeWrapper
from aerobee.protocol.codes import RequestCode
from aerobee.protocol.headers.base import Header
from aerobee.protocol.headers.group import GetConsumerConnectionListRequestHeader, GetConsumeStatsRequestHeader
from aerobee.protocol.headers.topic import GetTopicStatsInfoRequestHeader
from aerobee.runtime.seams import Clock
from aerobee.runtime.tasks import Tasks
from aerobee.runtime.workers import Workers
from aerobee.telemetry.stdlog import RateLimitedLog, get_log

T = TypeVar("T")
B = TypeVar("B", bound=Body)

STEP_S: Final = 10.0
# The first values come at once, and then soon, so that charts do not begin with a minute of nothing.
_FIRST_STEPS_S: Final = (1.0, 2.0, 3.0, 4.0)
_ANSWER_S: Final = 3.0
# How long a group that does not move keeps its rate at least.
_QUIET_MS: Final = 60_000
# Requests of one step for numbers of topics and groups, and how many run at a time.
_BUDGET: Final = 1_000
_AT_ONCE: Final = 8
_WANTED_MAX: Final = 500

_log = get_log("dashboard.collector")


class Collector:
    """The snapshot and the series of one user. It runs until it is closed."""

    def __init__(
        self,
        connection: AdminConnection,
        clock: Clock,
        workers: Workers,
        step_s: float = STEP_S,
        series_max: int = SERIES_MAX,
    ) -> None:
        self._admin = connection
        self._clock = clock
        self._workers = workers
        self._step_s = step_s
        self._tasks = Tasks(self._failed)
        self._warn = RateLimitedLog(_log, clock)
        self._bodies: dict[tuple[str, int], tuple[bytes, object]] = {}
        # What each broker had when it last told, by its name: it is shown while the broker is silent.
        self._topics: dict[str, tuple[KnownBroker, dict[str, TopicConfig]]] = {}
        self._groups: dict[str, tuple[KnownBroker, dict[str, SubscriptionGroupConfig]]] = {}
        self._turn_topics: deque[str] = deque()
        self._turn_groups: deque[str] = deque()
        # What pages showed last: it is asked for first. In order, the newest at the end.
        self._wanted: dict[tuple[str, str], None] = {}
        # How many changes were made, and how many of them the tables of the snapshot have seen.
        self._changes = self._changes_seen = 0
        self._soon = asyncio.Event()
        self._stepped = asyncio.Event()
        self.snapshot = Snapshot()
        self.series = Series(series_max)

    def start(self) -> None:
        """Begin to ask."""
        self._tasks.start(self._run(), name="collector")

    async def close(self) -> None:
        await self._tasks.close()
        await self._admin.close()

    def _failed(self, name: str, error: BaseException) -> None:
        _log.error("the collector stopped", exc_info=error)

    async def first(self, limit_s: float) -> None:
        """Wait until something is known, at most for this time."""
        if not self._stepped.is_set():
            try:
                async with asyncio.timeout(limit_s):
                    await self._stepped.wait()
            except TimeoutError:
                return

    def renew(self) -> None:
        """Ask everything again soon: something was changed."""
        self._changes += 1
        self._bodies.clear()
        self._soon.set()

    def settings_of(self, group: str) -> tuple[GroupSettings, ...]:
        """Return the settings of a group, nothing where they are not known or may have changed since."""
        known = self.snapshot.groups.get(group)
        return known.settings if known is not None and self._changes == self._changes_seen else ()

    def want(self, kind: str, names: Iterable[str]) -> None:
        """Note what a page shows, so that it is asked for first."""
        for name in names:
            self._wanted.pop((kind, name), None)
            self._wanted[kind, name] = None
        while len(self._wanted) > _WANTED_MAX:
            del self._wanted[next(iter(self._wanted))]

    async def _run(self) -> None:
        steps = iter(_FIRST_STEPS_S)
        while True:
            began_s = self._clock.monotonic()
            try:
                await self.step()
            except AerobeeError as error:
                # The last tables stay: they are shown with their age, and the reason why they are old.
                self.snapshot.problems = (str(error),)
                self._warn.warning("step", "the cluster cannot be asked", reason=error)
            self._stepped.set()
            wait_s = min(next(steps, self._step_s), self._step_s) - (self._clock.monotonic() - began_s)
            self._soon.clear()
            try:
                async with asyncio.timeout(max(0.2, wait_s)):
                    await self._soon.wait()
            except TimeoutError:
                continue

    async def step(self) -> None:
        """Ask everything that is due now."""
        snapshot = self.snapshot
        known = await self._admin.known()
        snapshot.known = tuple(one for one in known if not one.away)
        silent = await self._ask_brokers(snapshot)
        masters = [one for one in snapshot.known if one.broker_id == 0 and one.address not in silent]
        problems = [problem_of(one) for one in known if one.away]
        problems += [f"broker {one.name} at {one.address} is silent: {silent[one.address]}. Sums leave it out."
                     for one in snapshot.known if one.address in silent]  # fmt: skip
        problems += await self._ask_tables(snapshot, masters, {one.name for one in known})
        snapshot.at_ms = self._clock.now_ms()
        snapshot.problems = tuple(dict.fromkeys(problems))
        self._stepped.set()
        await self._ask_numbers(snapshot, masters)
        self.series.add(self._clock.now_ms(), self._values(snapshot))

    # -- brokers

    async def _ask_brokers(self, snapshot: Snapshot) -> dict[str, str]:
        """Ask every broker how it is. Return why some do not answer, by address."""

        async def ask(broker: KnownBroker) -> Mapping[str, str]:
            async with asyncio.timeout(_ANSWER_S):
                return await runtime_info(self._admin, broker.address)

        outcomes = await asyncio.gather(*(ask(one) for one in snapshot.known), return_exceptions=True)
        silent: dict[str, str] = {}
        statuses: list[BrokerStatus] = []
        infos: dict[str, Mapping[str, str]] = {}
        for broker, outcome in zip(snapshot.known, outcomes, strict=True):
            if isinstance(outcome, TransportError | TimeoutError):
                silent[broker.address] = str(outcome) or f"no answer within {_ANSWER_S:g} s"
                statuses.append(unreached(broker, silent[broker.address]))
            elif isinstance(outcome, AerobeeError):
                # It answers, but this user may not see its state.
                statuses.append(unreached(broker, outcome.message))
            elif isinstance(outcome, BaseException):
                raise outcome
            else:
                infos[broker.address] = outcome
                statuses.append(status_of(broker, outcome))
        snapshot.brokers, snapshot.infos, snapshot.silent = tuple(statuses), infos, silent
        return silent

    # -- tables

    async def _ask_tables(self, snapshot: Snapshot, masters: list[KnownBroker], names: set[str]) -> list[str]:
        """Ask for the topics and groups of each broker. Of those that do not answer, the last ones stay."""
        problems: list[str] = []
        changes = self._changes
        told = False
        for broker in masters:
            try:
                topics = await self._table(broker, RequestCode.GET_ALL_TOPIC_CONFIG, _topics_in)
                groups = await self._table(broker, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, _groups_in)
            except (AerobeeError, TimeoutError) as error:
                problems.append(f"broker {broker.name} does not tell its topics and groups: {error or 'no answer'}")
                if isinstance(error, NoPermissionError):
                    self._topics.pop(broker.name, None)
                    self._groups.pop(broker.name, None)
            else:
                told = True
                self._topics[broker.name], self._groups[broker.name] = (broker, topics), (broker, groups)
        if not told and masters:
            return problems
        for gone in self._topics.keys() - names:
            del self._topics[gone], self._groups[gone]
        snapshot.topics = {one.topic: one for one in await self._workers.run(summaries, list(self._topics.values()))}
        snapshot.groups = await self._workers.run(_merged_groups, list(self._groups.values()))
        self._changes_seen = changes
        snapshot.topics_ms = self._clock.now_ms()
        for gone in snapshot.topic_numbers.keys() - snapshot.topics.keys():
            del snapshot.topic_numbers[gone]
        for gone in snapshot.group_numbers.keys() - snapshot.groups.keys():
            del snapshot.group_numbers[gone]
        self.series.keep_only("topic:", {f"topic:{name}" for name in snapshot.topics})
        self.series.keep_only("lag:", {f"lag:{name}" for name in snapshot.groups})
        return problems

    async def _table(self, broker: KnownBroker, code: int, read: Callable[[bytes], T]) -> T:
        """Return a table of a broker. It is read in a thread, and only if it is not the one that was read last."""
        async with asyncio.timeout(_ANSWER_S):
            body = (await self._admin.ask(broker.address, code)).body
        known = self._bodies.get((broker.address, code))
        if known is not None and known[0] == body:
            return known[1]  # type: ignore[return-value]
        table = await self._workers.run(read, body)
        self._bodies[broker.address, code] = body, table
        return table

    # -- numbers

    async def _ask_numbers(self, snapshot: Snapshot, masters: list[KnownBroker]) -> None:
        """Ask for the numbers of topics and groups: of those that pages show, then of the others in turn."""
        left = _BUDGET
        work: deque[Callable[[], Awaitable[None]]] = deque()
        by_name = {one.name: one for one in masters}
        for kind, name in self._due(snapshot):
            if kind == "topic":
                places = [by_name[one] for one in snapshot.topics[name].brokers if one in by_name]
                cost, one = len(places), functools.partial(self._ask_topic, snapshot, name, places)
            else:
                places = [by_name[one] for one in snapshot.groups[name].brokers if one in by_name]
                cost, one = 2 * len(places), functools.partial(self._ask_group, snapshot, name, places)
            left -= max(1, cost)
            work.append(one)
            if left <= 0:
                break

        async def worker() -> None:
            while work:
                await work.popleft()()

        await asyncio.gather(*(worker() for _ in range(_AT_ONCE)))

    def _due(self, snapshot: Snapshot) -> Iterable[tuple[str, str]]:
        tables: dict[str, Mapping[str, object]] = {"topic": snapshot.topics, "group": snapshot.groups}
        first = {key: None for key in reversed(self._wanted) if key[1] in tables[key[0]]}
        yield from first
        turns = {"topic": self._turn_topics, "group": self._turn_groups}
        for kind, turn in turns.items():
            # Those that are new come at the next round; those that are gone are left out here.
            if not turn:
                turn.extend(tables[kind])
        # By turns, so that many topics do not keep groups waiting.
        while any(turns.values()):
            for kind, turn in turns.items():
                if turn:
                    name = turn.popleft()
                    if name in tables[kind] and (kind, name) not in first:
                        yield kind, name

    async def _ask_topic(self, snapshot: Snapshot, topic: str, places: list[KnownBroker]) -> None:
        header = GetTopicStatsInfoRequestHeader(topic=topic)
        before = snapshot.topic_numbers.get(topic)
        numbers = TopicNumbers(self._clock.now_ms(), last_store_ms=0 if before is None else before.last_store_ms)
        for broker in places:
            stats = await self._said(TopicStatsTable, broker, RequestCode.GET_TOPIC_STATS_INFO, header)
            if stats is None:
                return
            numbers.in_s = (numbers.in_s or 0.0) + stats.topic_put_tps
            numbers.messages = (numbers.messages or 0) + sum(
                at.max_offset - at.min_offset for at in stats.offset_table.values()
            )
            last = max((at.last_update_timestamp for at in stats.offset_table.values()), default=0)
            numbers.last_store_ms = max(numbers.last_store_ms, last)
        snapshot.topic_numbers[topic] = numbers

    async def _ask_group(self, snapshot: Snapshot, group: str, places: list[KnownBroker]) -> None:
        now_ms = self._clock.now_ms()
        numbers, topics, clients = GroupNumbers(now_ms), set[str](), dict[str, Member]()
        for broker in places:
            asked = GetConsumeStatsRequestHeader(consumer_group=group, topic=None)
            stats = await self._said(ConsumeStats, broker, RequestCode.GET_CONSUME_STATS, asked)
            if stats is None:
                return
            numbers.tps = (numbers.tps or 0.0) + stats.consume_tps
            for queue, at in stats.offset_table.items():
                if not queue.topic.startswith(RETRY_PREFIX):
                    topics.add(queue.topic)
                    numbers.consumed += at.consumer_offset
                behind = max(0, at.broker_offset - at.consumer_offset)
                numbers.lag = (numbers.lag or 0) + behind
                if behind and at.last_timestamp > 0:
                    numbers.oldest_ms = max(numbers.oldest_ms or 0, now_ms - at.last_timestamp)
            header = GetConsumerConnectionListRequestHeader(consumer_group=group)
            connection = await self._said(ConsumerConnection, broker, RequestCode.GET_CONSUMER_CONNECTION_LIST, header)
            for one in () if connection is None else connection.connection_set:
                clients[one.client_id] = Member(one.client_id, one.client_addr, one.language, one.version)
            if connection is not None:
                numbers.members = len(clients)
                numbers.mode = connection.message_model or numbers.mode
        numbers.clients = tuple(clients.values())
        numbers.topics = tuple(sorted(topics))
        snapshot.group_numbers[group] = moved(numbers, snapshot.group_numbers.get(group))

    async def _said(self, kind: type[B], broker: KnownBroker, code: int, header: Header) -> B | None:
        """Return what a broker says, None where it says nothing that can be read or refuses. Of a group without a
        member it says so, which is an empty answer."""
        try:
            async with asyncio.timeout(_ANSWER_S):
                return kind.decode((await self._admin.ask(broker.address, code, header)).body)
        except ConsumerError:
            return kind()
        except (AerobeeError, TimeoutError):
            return None

    # -- series

    def _values(self, snapshot: Snapshot) -> dict[str, float]:
        values: dict[str, float] = {}
        totals = {"cluster:in": 0.0, "cluster:out": 0.0}
        for one in snapshot.brokers:
            if one.problem is None:
                name = f"{one.broker}:{one.broker_id}"
                values[f"in:{name}"], values[f"out:{name}"] = one.in_tps, one.out_tps
                values[f"disk:{name}"] = one.disk_used_ratio * 100
                if one.broker_id == 0:
                    totals["cluster:in"] += one.in_tps
                    totals["cluster:out"] += one.out_tps
        values |= totals
        for topic, numbers in snapshot.topic_numbers.items():
            if numbers.in_s is not None:
                values[f"topic:{topic}"] = numbers.in_s
        for group, progress in snapshot.group_numbers.items():
            if progress.lag is not None:
                values[f"lag:{group}"] = progress.lag
        return values


def moved(now: GroupNumbers, before: GroupNumbers | None) -> GroupNumbers:
    """Add how far a group has come since it was asked before.

    A query of Spark moves once in a batch. Between two batches it keeps its rate, until it is overdue.
    """
    if before is None or now.asked_ms <= before.asked_ms:
        return now
    grown = now.consumed - before.consumed
    if grown:
        # What was quiet for long has begun again since it was asked before.
        now.step_ms = now.asked_ms - (before.moved_ms if before.rows_s and before.moved_ms else before.asked_ms)
        now.rows_s, now.moved_ms = max(0.0, grown * 1000 / now.step_ms), now.asked_ms
        return now
    now.moved_ms, now.step_ms = before.moved_ms, before.step_ms
    is_due = now.asked_ms - before.moved_ms > max(_QUIET_MS, 3 * before.step_ms)
    now.rows_s = 0.0 if is_due else before.rows_s or 0.0
    return now


def _topics_in(body: bytes) -> dict[str, TopicConfig]:
    return TopicConfigSerializeWrapper.decode(body).topic_config_table


def _groups_in(body: bytes) -> dict[str, SubscriptionGroupConfig]:
    return SubscriptionGroupWrapper.decode(body).subscription_group_table


def _merged_groups(tables: list[tuple[KnownBroker, dict[str, SubscriptionGroupConfig]]]) -> dict[str, KnownGroup]:
    held: dict[str, list[tuple[str, SubscriptionGroupConfig]]] = {}
    for broker, table in tables:
        for name, config in table.items():
            held.setdefault(name, []).append((broker.name, config))
    return {
        name: KnownGroup(
            name,
            is_system_group(name),
            tuple(broker for broker, _ in held[name]),
            all(config.consume_enable for _, config in held[name]),
            tuple(settings_on(broker, config) for broker, config in held[name]),
        )
        for name in sorted(held)
    }
