"""The sections of a group's state: where each stands in a running broker, and how its entries are written as JSON."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import Any

from aerobee.access.owners import QueryOwners
from aerobee.broker.delay import Scheduler, TimerProgress, TimerService
from aerobee.broker.groupstate.entries import DELAYS, SEPARATOR, TIMERS
from aerobee.broker.offsets import OffsetTables
from aerobee.broker.state import BrokerState
from aerobee.broker.topics import ensure_topic
from aerobee.errors import InvalidArgumentError
from aerobee.model.group import SubscriptionGroupConfig
from aerobee.model.names import STATE_TOPIC
from aerobee.model.numbers import parse_int
from aerobee.model.queue import MessageQueue
from aerobee.model.topic import TopicConfig
from aerobee.store.metadata.table import MetadataTable


@dataclass(frozen=True, slots=True)
class Section:
    """One section. Values are what the broker's own tables hold."""

    name: str
    # Return the table as it is now.
    read: Callable[[], Mapping[str, Any]]
    # Put a value into the table, or None to remove it: while following, and at a start.
    write: Callable[[str, Any], None]
    # Return the JSON of a value. `entries.py` has the way back.
    encode: Callable[[Any], object]
    # Return something that differs after every change; None where only a comparison can tell.
    version: Callable[[], Hashable | None] = lambda: None
    # Return a value that does not change with the table.
    keep: Callable[[Any], Any] = lambda value: value
    # Changes are journalled with the next tick. Others are gathered for a second.
    at_once: bool = False
    # The file of Apache's that holds the section too.
    file: MetadataTable | None = None
    # The section stands in snapshots only, and is not compared.
    in_snapshots: bool = False


class Sections:
    """The sections of one broker, and what is done with some of them when it leads."""

    def __init__(
        self,
        state: BrokerState,
        tables: OffsetTables,
        scheduler: Scheduler,
        timers: TimerService,
        owners: QueryOwners,
    ) -> None:
        self.owners = owners
        self._store = state.store
        self._catalog = catalog = state.catalog
        self._offsets = offsets = state.offsets
        self._modes = modes = tables.modes
        self._filters = filters = state.filters
        self._locks = locks = state.locks
        self._scheduler = scheduler
        self._timers = timers
        self._clock = state.clock
        offset_table = tables.offsets
        topics, groups = catalog.topic_table, catalog.group_table
        self.all = {
            section.name: section
            for section in (
                Section(
                    "topics", lambda: topics.topics, catalog.learn_topic, TopicConfig.to_json,
                    lambda: topics.version, at_once=True, file=topics,
                ),
                Section(
                    "groups", lambda: groups.groups, catalog.learn_group, SubscriptionGroupConfig.to_json,
                    lambda: groups.version, at_once=True, file=groups,
                ),
                Section(
                    "forbidden", self._read_forbidden, catalog.learn_forbidden, dict,
                    lambda: groups.version, at_once=True, file=groups,
                ),
                Section(
                    "modes", lambda: dict(modes.table), self._write_mode, dict,
                    lambda: modes.version, at_once=True, file=modes,
                ),
                Section("locks", self._read_locks, _ignore, list, lambda: locks.version, at_once=True),
                Section(
                    "offsets", lambda: offset_table.table, self._write_offsets, _numbers,
                    keep=dict, file=offset_table,
                ),
                Section("resets", lambda: offsets.resets, self._write_resets, _numbers, keep=dict),
                Section("filters", filters.entries, self._write_filter, list, file=filters.file),
                Section(
                    "owners", lambda: owners.table, owners.learn, _same, lambda: owners.version, at_once=True,
                ),
                Section("progress", self._read_progress, self._write_progress, dict),
                Section("numbers", self._read_numbers, _ignore, _same, in_snapshots=True),
            )
        }  # fmt: skip

    def lead(self, image: Mapping[str, Mapping[str, Any]]) -> None:
        """Take up what only a leader needs: the locks of ordered consumers, and the numbering of empty queues."""
        ensure_topic(self._catalog, STATE_TOPIC, 1)
        now_s = self._clock.monotonic()
        for key, (client_id, lease_ms) in image["locks"].items():
            group, topic, queue_id, broker = key.split(SEPARATOR, 3)
            queue = MessageQueue(topic, broker, parse_int(queue_id))
            # It may have been renewed just before the master died.
            self._locks.restore(group, queue, client_id, lease_ms / 1000, now_s)
        for key, next_offset in image["numbers"].items():
            topic, _, queue_id = key.partition(SEPARATOR)
            found = self._store.queues.find(topic.encode(), parse_int(queue_id))
            if found is None or found.is_empty:
                # No queue can have such a name, so nobody asks for its numbers.
                with contextlib.suppress(InvalidArgumentError):
                    self._store.queues.keep_numbering(topic.encode(), parse_int(queue_id), next_offset)

    # -- tables

    def _read_forbidden(self) -> dict[str, dict[str, int]]:
        return {group: dict(topics) for group, topics in self._catalog.group_table.forbidden.items()}

    def _write_mode(self, topic: str, groups: dict[Any, Any] | None) -> None:
        now_ms = self._clock.now_ms()
        if groups is None:
            self._modes.delete(topic, now_ms)
        else:
            self._modes.put(topic, groups, now_ms)

    def _read_locks(self) -> dict[str, tuple[str, int]]:
        return {
            SEPARATOR.join((group, queue.topic, str(queue.queue_id), queue.broker_name)): (client, round(1000 * life))
            for group, queue, client, life in self._locks.all()
        }

    def _write_offsets(self, key: str, queues: dict[int, int] | None) -> None:
        if queues is None:
            self._offsets.table.pop(key, None)
        else:
            self._offsets.table[key] = dict(queues)

    def _write_resets(self, key: str, queues: dict[int, int] | None) -> None:
        if queues is None:
            self._offsets.resets.pop(key, None)
        else:
            self._offsets.resets[key] = dict(queues)

    def _write_filter(self, key: str, data: tuple[str, str, int, int, int] | None) -> None:
        topic, _, group = key.partition(SEPARATOR)
        self._filters.learn(topic, group, data)

    def _read_progress(self) -> dict[str, dict[str, Any]]:
        found: dict[str, dict[str, Any]] = {DELAYS: {str(k): v for k, v in self._scheduler.progress.items()}}
        timers = self._timers.last_progress
        if timers is not None:
            found[TIMERS] = timers.to_json()
        return found

    def _write_progress(self, key: str, value: dict[str, Any] | None) -> None:
        if value is None:
            return
        if key == DELAYS:
            self._scheduler.learn_progress({parse_int(level): offset for level, offset in value.items()})
        else:
            self._timers.learn_progress(TimerProgress.from_json(value))

    def _read_numbers(self) -> dict[str, int]:
        """Return the next offset of queues all of whose records have expired: a copy of the log does not tell it."""
        log_start = self._store.log_start
        return {
            f"{queue.topic.decode()}{SEPARATOR}{queue.queue_id}": queue.next_offset
            for queue in self._store.queues
            if queue.next_offset and queue.kept_for(log_start) >= queue.next_offset
        }


def _same(value: object) -> object:
    return value


def _ignore(key: str, value: object) -> None:
    """Do nothing: only a leader has a use for it."""


def _numbers(queues: Mapping[int, int]) -> dict[str, int]:
    return {str(queue_id): offset for queue_id, offset in queues.items()}
