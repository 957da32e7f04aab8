"""Filters of consumer groups: compiled once for a subscription, looked up by each pull, kept in `consumerFilter.json`.

A group's filter of a topic comes with its heartbeats; a newer version replaces it, and when the group goes it is kept
for a day, so that a broker started again serves pulls before the first heartbeat. RocketMQ: ConsumerFilterManager,
ExpressionMessageFilter, ExpressionForRetryMessageFilter.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass
from typing import Any, Final

from aerobee.broker.membership.bloom import Bloom
from aerobee.broker.membership.subscriptions import Subscription
from aerobee.errors import InvalidArgumentError
from aerobee.hot.log.properties import decode_properties
from aerobee.model.dialect import DialectError
from aerobee.model.fields import int_of, str_of
from aerobee.model.names import RETRY_PREFIX, group_problem, stored_topic_problem
from aerobee.model.sql92.compiler import CompiledFilter, compile_filter
from aerobee.model.sysproperties import RETRY_TOPIC
from aerobee.runtime.rejected import Rejected
from aerobee.runtime.seams import Clock
from aerobee.store.metadata.plain import ConsumerFilterTable
from aerobee.telemetry.stdlog import get_log

SAVE_INTERVAL_S: Final = 10.0
# Filters that pulls brought are kept compiled, up to so much text. Compiled they are about a hundred times as large.
_CACHED_SIZE_MAX: Final = 128 << 10
# Apache keeps as many as come. A filter outlives its group by a day, so what may come is bounded: beyond these the dead
# go first, and then nothing more is taken.
GROUP_FILTERS_MAX: Final = 1_000
FILTERS_MAX: Final = 2_000
_KEPT_SIZE_MAX: Final = 1 << 20
_OWN_SIZE: Final = 64
_SHOWN_MAX: Final = 200
# A filter found in the file belongs to a group that was last seen no later than this before the start.
_GONE_BEFORE_MS: Final = 30_000
_log = get_log("broker.filters")


@dataclass(slots=True)
class FilterData:
    """What one group wants of one topic. Dead since `dead_time_ms`, unless that is before its birth."""

    topic: str
    group: str
    expression: str
    expression_type: str
    client_version: int
    born_time_ms: int
    compiled: CompiledFilter
    dead_time_ms: int = 0

    @property
    def is_dead(self) -> bool:
        return self.dead_time_ms >= self.born_time_ms

    def to_json(self, bloom: Bloom) -> dict[str, Any]:
        """Return the filter under Apache's names, in Apache's order."""
        return {
            "bloomFilterData": bloom.data_of(self.group, self.topic),
            "bornTime": self.born_time_ms,
            "clientVersion": self.client_version,
            "consumerGroup": self.group,
            "dead": self.is_dead,
            "deadTime": self.dead_time_ms,
            "expression": self.expression,
            "expressionType": self.expression_type,
            "topic": self.topic,
        }


class Acceptor:
    """A compiled filter, asked about a record's property block."""

    __slots__ = ("_matches", "cost")

    def __init__(self, compiled: CompiledFilter) -> None:
        self._matches = compiled.matches
        # About how many microseconds one look takes, so that a pull can bound its looks (`store/sieve.py`).
        self.cost = 5 + len(compiled.expression) // 16

    def __call__(self, block: bytes) -> bool:
        return self._matches(decode_properties(block))


class ConsumerFilters:
    """Every filter of a broker. `clean_after_ms` tells for how long a dead one is kept."""

    def __init__(
        self, table: ConsumerFilterTable | None, clock: Clock, clean_after_ms: Callable[[], int] = lambda: 86_400_000
    ) -> None:
        self._table = table
        self._clock = clock
        self._clean_after_ms = clean_after_ms
        self._bloom = Bloom.sized()
        self._topics: dict[str, dict[str, FilterData]] = {}
        self._groups: dict[str, dict[str, FilterData]] = {}
        self._size = 0
        self._count = 0
        self._cache: dict[tuple[str, str], CompiledFilter] = {}
        self._cache_size = 0
        self._saving = False

    # -- what pulls ask

    def get(self, topic: str, group: str) -> FilterData | None:
        return self._topics.get(topic, {}).get(group)

    def compile(self, expression: str, expression_type: str) -> CompiledFilter:
        """Return the compiled filter; raise InvalidArgumentError where it cannot be used. The last ones are remembered,
        because a pull consumer sends its expression with each pull."""
        key = (expression_type, expression)
        found = self._cache.get(key)
        if found is None:
            found = compile_filter(expression, expression_type)
            self._cache[key] = found
            self._cache_size += _OWN_SIZE + len(expression)
            while self._cache_size > _CACHED_SIZE_MAX:
                oldest = next(iter(self._cache))
                del self._cache[oldest]
                self._cache_size -= _OWN_SIZE + len(oldest[1])
        return found

    def acceptor(
        self, subscription: Subscription, group: str, *, carried: bool, support_retry: bool
    ) -> Callable[[bytes], bool] | None:
        """Return what decides about a record by its property block; None where its tags decide.

        `carried`: the pull brought its subscription along, else the group's registered filter counts.
        """
        if subscription.by_tags or subscription.class_filter_mode:
            return None
        if support_retry and subscription.topic.startswith(RETRY_PREFIX):
            return self._of_retries(group)
        if carried:
            compiled = self.compile(subscription.expression, subscription.expression_type)
        else:
            data = self.get(subscription.topic, group)
            if data is None:
                return None
            compiled = data.compiled
        return Acceptor(compiled)

    def _of_retries(self, group: str) -> Callable[[bytes], bool]:
        """Return what looks at a retried message with the filter of the topic that it came from."""

        def accept(block: bytes) -> bool:
            properties = decode_properties(block)
            data = self.get(properties.get(RETRY_TOPIC, ""), group)
            return data is None or data.compiled.matches(properties)

        return accept

    # -- what heartbeats bring

    def register(self, group: str, subscriptions: Iterable[Subscription]) -> None:
        """Take the filters of a full heartbeat, and end those of topics that it no longer names."""
        for _ in self.register_slices(group, subscriptions):
            pass

    def register_slices(self, group: str, subscriptions: Iterable[Subscription]) -> Generator[None, None, None]:
        """Do as `register`, with a slice for each filter."""
        named = set()
        for subscription in subscriptions:
            named.add(subscription.topic)
            if not subscription.by_tags:
                self._register(group, subscription)
                yield
        now_ms = self._clock.now_ms()
        for data in self._of_group(group):
            if data.topic not in named and not data.is_dead:
                data.dead_time_ms = now_ms

    def unregister(self, group: str) -> None:
        """Let the filters of a group die: its last member left."""
        now_ms = self._clock.now_ms()
        for data in self._of_group(group):
            if not data.is_dead:
                data.dead_time_ms = now_ms

    def _register(self, group: str, new: Subscription) -> None:
        """Take the filter of one subscription. RocketMQ: FilterDataMapByTopic.register."""
        old = self.get(new.topic, group)
        if old is not None and new.version <= old.client_version:
            if new.version == old.client_version:
                old.dead_time_ms = 0
            return
        if old is not None and (old.expression, old.expression_type) == (new.expression, new.expression_type):
            old.client_version = new.version
            old.dead_time_ms = 0
            return
        try:
            compiled = self._usable(group, new)
        except InvalidArgumentError as error:
            # The client's pulls are told that there is no filter.
            _log.warning("a filter was refused", group=group, topic=new.topic[:_SHOWN_MAX], reason=error.message)
            self._remove(new.topic, group)
            return
        if compiled.ignored:
            _log.warning("the text behind a filter is ignored", group=group, topic=new.topic, text=compiled.ignored)
        self._put(
            FilterData(
                new.topic, group, new.expression, new.expression_type, new.version, self._clock.now_ms(), compiled
            )
        )

    def _usable(self, group: str, new: Subscription) -> CompiledFilter:
        """Return the filter; raise InvalidArgumentError where it could not be saved and read back, or not be used."""
        problem = stored_topic_problem(new.topic) or group_problem(group) or self._room_problem(group, new)
        if problem is not None:
            raise InvalidArgumentError(problem)
        return self.compile(new.expression, new.expression_type)

    def _room_problem(self, group: str, new: Subscription) -> str | None:
        topics = self._groups.get(group, {})
        if new.topic not in topics and len(topics) >= GROUP_FILTERS_MAX:
            return f"the group has {GROUP_FILTERS_MAX} filters already"
        if self._is_full(new):
            dead = [one for groups in self._topics.values() for one in groups.values() if one.is_dead]
            for one in sorted(dead, key=lambda one: one.dead_time_ms):
                self._remove(one.topic, one.group)
        if self._is_full(new):
            return f"this broker keeps {self._count} filters of {self._size} bytes already"
        return None

    def _is_full(self, new: Subscription) -> bool:
        return self._count >= FILTERS_MAX or self._size + len(new.expression) > _KEPT_SIZE_MAX

    def _of_group(self, group: str) -> list[FilterData]:
        return list(self._groups.get(group, {}).values())

    def _put(self, data: FilterData) -> None:
        self._remove(data.topic, data.group)
        self._topics.setdefault(data.topic, {})[data.group] = data
        self._groups.setdefault(data.group, {})[data.topic] = data
        self._size += _OWN_SIZE + len(data.expression)
        self._count += 1

    def _remove(self, topic: str, group: str) -> None:
        groups = self._topics.get(topic)
        data = None if groups is None else groups.pop(group, None)
        if groups is None or data is None:
            return
        self._size -= _OWN_SIZE + len(data.expression)
        self._count -= 1
        if not groups:
            del self._topics[topic]
        topics = self._groups[group]
        del topics[topic]
        if not topics:
            del self._groups[group]

    # -- what the group's journal tells

    @property
    def file(self) -> ConsumerFilterTable | None:
        """The table in which filters are saved."""
        return self._table

    def entries(self) -> dict[str, tuple[str, str, int, int, int]]:
        """Return every filter by `topic@group`: expression, its type, the client's version, birth and death."""
        return {
            f"{data.topic}@{data.group}": (
                data.expression, data.expression_type, data.client_version, data.born_time_ms, data.dead_time_ms,
            )
            for groups in self._topics.values()
            for data in groups.values()
        }  # fmt: skip

    def learn(self, topic: str, group: str, data: tuple[str, str, int, int, int] | None) -> None:
        """Take a filter as the group's master has it; raise InvalidArgumentError where it cannot be used."""
        if data is None:
            self._remove(topic, group)
            return
        expression, kind, version, born_ms, dead_ms = data
        compiled = self.compile(expression, kind)
        self._put(FilterData(topic, group, expression, kind, version, born_ms, compiled, dead_ms))

    # -- the file

    @property
    def rejected(self) -> int:
        """How many saved filters could not be used, and lie beside the file."""
        return 0 if self._table is None else self._table.rejected

    def load(self) -> None:
        """Load the saved filters. Every group counts as gone until it is heard of. Set aside what cannot be used."""
        now_ms = self._clock.now_ms()
        if self._table is None or not self._table.load(now_ms):
            return
        unusable: list[Rejected] = []
        for topic, one in self._table.table.items():
            saved = one.get("groupFilterData")
            for group, data in (saved if isinstance(saved, dict) else {}).items():
                try:
                    read = self._read(topic, str(group), data, now_ms)
                except (InvalidArgumentError, DialectError) as error:
                    unusable.append(Rejected(f"{topic}/{group}", error.message, data))
                else:
                    self._put(read)
        if unusable:
            self._table.set_aside(unusable, now_ms)
            self.save()

    def _read(self, topic: str, group: str, data: object, now_ms: int) -> FilterData:
        """Return a saved filter; raise InvalidArgumentError or DialectError where it cannot be used."""
        if not isinstance(data, dict):
            raise DialectError("not an object")
        expression, kind = str_of(data, "expression"), str_of(data, "expressionType")
        compiled = self.compile(expression, kind)
        born, dead, version = (int_of(data, name) for name in ("bornTime", "deadTime", "clientVersion"))
        if dead == 0:
            dead = max(now_ms - _GONE_BEFORE_MS, born)
        return FilterData(topic, group, expression, kind, version, born, compiled, dead)

    def clean(self) -> None:
        """Forget filters that died long ago. RocketMQ: ConsumerFilterManager.clean."""
        now_ms, limit_ms = self._clock.now_ms(), self._clean_after_ms()
        for groups in list(self._topics.values()):
            for data in list(groups.values()):
                if data.is_dead and now_ms - data.dead_time_ms >= limit_ms:
                    self._remove(data.topic, data.group)

    def tick(self) -> None:
        """Save what changed, off this thread."""
        if self._saving:
            return
        table = self._render()
        if table is None:
            return
        self._saving = True

        def saved(error: Exception | None) -> None:
            self._saving = False
            if error is not None:
                _log.warning("filters were not saved", reason=error)

        table.submit(saved)

    def save(self) -> None:
        """Save what changed, blocking."""
        table = self._render()
        if table is not None:
            table.save()

    def _render(self) -> ConsumerFilterTable | None:
        self.clean()
        if self._table is not None:
            self._table.table = {
                topic: {
                    "groupFilterData": {group: data.to_json(self._bloom) for group, data in groups.items()},
                    "topic": topic,
                }
                for topic, groups in self._topics.items()
            }
        return self._table
