"""What the table of rights asks of a broker: which topics and groups exist, and of which topic a message is."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from aerobee.broker.batches import Batches
from aerobee.broker.delay import decode_handle
from aerobee.broker.state import BrokerState
from aerobee.config.properties import decode_text, parse_properties
from aerobee.errors import AerobeeError, StoreError
from aerobee.hot.log.properties import decode_properties
from aerobee.hot.log.record import decode_record
from aerobee.model.dialect import loads_object
from aerobee.model.names import HALF_TOPIC, SCHEDULE_TOPIC, TIMER_TOPIC
from aerobee.model.sysproperties import REAL_TOPIC
from aerobee.protocol.codes import RequestCode
from aerobee.protocol.command import Command
from aerobee.store.sent import sent_at

# Where messages wait that belong to another topic.
_WAITING: Final = frozenset((HALF_TOPIC, SCHEDULE_TOPIC, TIMER_TOPIC))
_LISTED_MAX: Final = 50
_R: Final = RequestCode


class BrokerWorld:
    """The eyes of the guard in one broker. `settings` returns every setting as it is shown, secrets masked."""

    def __init__(
        self, cluster: str, state: BrokerState, batches: Batches, settings: Callable[[], Mapping[str, str]]
    ) -> None:
        self.cluster = cluster
        self._state = state
        self._batches = batches
        self._settings = settings

    def has_topic(self, name: str) -> bool:
        """Tell whether there is a topic of this name."""
        return self._state.catalog.find(name) is not None

    def has_group(self, name: str) -> bool:
        """Tell whether there is a group of this name. It is not made by asking."""
        return self._state.catalog.group_table.get(name) is not None

    def topic_at(self, physical_offset: int, told: Callable[[str | None], None]) -> None:
        """Tell the topic of the message at this offset; for one that waits, the topic that it waits for."""
        store = self._state.store

        def read(record: bytes | StoreError | None) -> None:
            told(_topic_of(record) if isinstance(record, bytes) else None)

        store.run(sent_at(store, physical_offset), read)

    def recalled_topic(self, handle: str) -> str | None:
        """Return the topic in a recall handle."""
        found = decode_handle(handle)
        return None if found is None else found.topic

    def batch_topics(self, query: str) -> Sequence[str]:
        """Return the topics of the rows that are held for a query."""
        return self._batches.topics_of(query)

    # -- for the audit log

    def described(self, command: Command) -> object:
        """Return what a request is about, as it is now."""
        try:
            return self._described(command)
        except (AerobeeError, ValueError):
            return None

    def _described(self, command: Command) -> object:
        ext, code = command.ext, command.code
        topics = _topics_of(command)
        if topics:
            found = {name: self._state.catalog.find(name) for name in topics[:_LISTED_MAX]}
            return {name: None if config is None else config.to_json() for name, config in found.items()}
        groups = _groups_of(command)
        if groups:
            return self._groups(groups)
        if code == _R.UPDATE_BROKER_CONFIG:
            now = self._settings()
            return {key: now[key] for key in parse_properties(decode_text(command.body)) if key in now}
        if code in (_R.INVOKE_BROKER_TO_RESET_OFFSET, _R.CLONE_GROUP_OFFSET):
            return self._offsets(ext.get("group", ext.get("destGroup", "")), ext.get("topic", ""))
        if code == _R.UPDATE_AND_GET_GROUP_FORBIDDEN:
            group = ext.get("group", "")
            return {group: dict(self._state.catalog.group_table.forbidden.get(group, {}))}
        return None

    def _groups(self, names: Sequence[str]) -> dict[str, Any]:
        found = {name: self._state.catalog.group_table.get(name) for name in names[:_LISTED_MAX]}
        return {name: None if config is None else config.to_json() for name, config in found.items()}

    def _offsets(self, group: str, topic: str) -> dict[str, int]:
        queues = self._state.catalog.find(topic)
        if queues is None:
            return {}
        offsets = self._state.offsets
        count = min(queues.read_queue_nums, _LISTED_MAX)
        return {str(one): offsets.query(group, topic, one) for one in range(count)}


def _topics_of(command: Command) -> list[str]:
    if command.code in (_R.UPDATE_AND_CREATE_TOPIC, _R.DELETE_TOPIC_IN_BROKER):
        return [command.ext.get("topic", "")]
    if command.code == _R.UPDATE_AND_CREATE_TOPIC_LIST:
        return _names(command, "topicConfigList", "topicName")
    return []


def _groups_of(command: Command) -> list[str]:
    if command.code == _R.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP:
        return [str(loads_object(command.body).get("groupName", ""))]
    if command.code == _R.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST:
        return _names(command, "groupConfigList", "groupName")
    if command.code == _R.DELETE_SUBSCRIPTIONGROUP:
        return [command.ext.get("groupName", "")]
    return []


def _names(command: Command, member: str, name: str) -> list[str]:
    entries = loads_object(command.body).get(member)
    if not isinstance(entries, list):
        return []
    return [str(one.get(name, "")) for one in entries if isinstance(one, dict)]


def _topic_of(data: bytes) -> str:
    record = decode_record(data, 0)
    topic = record.topic.decode("utf-8", "replace")
    if topic in _WAITING:
        return decode_properties(record.properties).get(REAL_TOPIC, topic)
    return topic
