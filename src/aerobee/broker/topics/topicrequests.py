"""Requests about topics: create, change, delete, list, show, statistics.

RocketMQ: AdminBrokerProcessor.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Protocol

from aerobee.broker.answers import breath, encoded, refused, when_confirmed, when_read, when_saved
from aerobee.broker.config import BrokerConfig
from aerobee.broker.log import Puts
from aerobee.broker.refusal import Refusal
from aerobee.broker.stats import TOPIC_PUT_NUMS, BrokerStats
from aerobee.broker.topics.attributes import parse_attributes
from aerobee.broker.topics.catalog import Catalog
from aerobee.errors import InvalidArgumentError
from aerobee.model.dataversion import DataVersion
from aerobee.model.dialect import DialectError, dumps, loads_object
from aerobee.model.names import SYSTEM_TOPICS, is_system_topic, pop_retry_topic
from aerobee.model.queue import MessageQueue
from aerobee.model.topic import TopicConfig
from aerobee.net.channel import Channel
from aerobee.net.server import Handler
from aerobee.net.turns import Sliced, Slices
from aerobee.protocol.bodies.offsets import TopicOffset, TopicStatsTable
from aerobee.protocol.bodies.topics import (
    CreateTopicListRequestBody,
    TopicConfigAndMappingSerializeWrapper,
    TopicList,
)
from aerobee.protocol.codes import RequestCode, ResponseCode
from aerobee.protocol.command import Command, response
from aerobee.protocol.headers.base import decode_header
from aerobee.protocol.headers.topic import (
    CreateTopicRequestHeader,
    DeleteTopicRequestHeader,
    GetAllTopicConfigRequestHeader,
    GetAllTopicConfigResponseHeader,
    GetTopicConfigRequestHeader,
    GetTopicStatsInfoRequestHeader,
)
from aerobee.store.messagestore import MessageStore
from aerobee.store.metadata.offsets import ConsumerOffsetTable
from aerobee.store.steps import Steps
from aerobee.telemetry.stdlog import get_log

# RocketMQ: BrokerConfig.splitMetadataSize. A page of a table, where the caller reads it by pages.
PAGE_SIZE_MAX = 2000
_LMQ_PREFIX = "%LMQ%"
_CLEANED_AT_ONCE = 50

_log = get_log("broker.admin")


class TopicOffsets(Protocol):
    """What the deletion of a topic needs of the consume offsets."""

    def groups_of(self, topic: str) -> list[str]: ...
    def remove_topic(self, topic: str) -> list[str]: ...


class TopicAdmin:
    """Requests about topics."""

    def __init__(
        self,
        config: Callable[[], BrokerConfig],
        store: MessageStore,
        catalog: Catalog,
        puts: Puts,
        stats: BrokerStats,
        offsets: TopicOffsets,
        offset_table: ConsumerOffsetTable,
        delete: Callable[[list[str]], None],
    ) -> None:
        """`delete` deletes topics with everything that the log holds of them."""
        self._delete_records = delete
        self._config = config
        self._store = store
        self._catalog = catalog
        self._puts = puts
        self._stats = stats
        self._offsets = offsets
        self._offset_table = offset_table

    def handlers(self) -> dict[int, Handler]:
        return {
            RequestCode.UPDATE_AND_CREATE_TOPIC: self.create,
            RequestCode.UPDATE_AND_CREATE_TOPIC_LIST: self.create_list,
            RequestCode.DELETE_TOPIC_IN_BROKER: self.delete,
            RequestCode.GET_ALL_TOPIC_CONFIG: self.get_all,
            RequestCode.GET_TOPIC_CONFIG: self.get,
            RequestCode.GET_TOPIC_STATS_INFO: self.stats,
            RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER: self.system_topics,
            RequestCode.CLEAN_UNUSED_TOPIC: self.clean_unused,
        }

    # -- change

    def create(self, channel: Channel, command: Command) -> Command | Sliced:
        header = decode_header(CreateTopicRequestHeader, command)
        try:
            changes = parse_attributes(header.attributes)
        except InvalidArgumentError as error:
            return response(command, ResponseCode.SYSTEM_ERROR, remark=error.message)
        wanted = TopicConfig(
            header.topic, header.read_queue_nums, header.write_queue_nums, header.perm,
            header.topic_filter_type, header.topic_sys_flag or 0, header.order, changes,
        )  # fmt: skip
        return Sliced(self._put(channel, command, [wanted]), whole=True)

    def create_list(self, channel: Channel, command: Command) -> Sliced:
        """Create all of them or none. Apache stops silently at the first that is as it was."""

        def slices() -> Slices:
            try:
                body = yield from CreateTopicListRequestBody.decode_slices(command.body)
            except DialectError as error:
                return response(command, ResponseCode.INVALID_PARAMETER, remark=str(error))
            return (yield from self._put(channel, command, body.topic_config_list))

        return Sliced(slices(), whole=True)

    def _put(self, channel: Channel, command: Command, wanted: Sequence[TopicConfig]) -> Slices:
        made: list[TopicConfig] = []
        for one in wanted:
            current = self._catalog.find(one.topic_name)
            change = self._catalog.topic_rules.change(one, current)
            if isinstance(change, Refusal):
                return refused(command, change)
            made.append(change)
            yield
        room = self._catalog.topic_rules.topics_max - len(self._catalog.topic_table.topics)
        if sum(self._catalog.find(one.topic_name) is None for one in made) > room:
            remark = f"{len(made)} topics are too many: there may be {self._catalog.topic_rules.topics_max} (topicsMax)"
            return response(command, ResponseCode.SYSTEM_ERROR, remark=remark)
        for config in made:
            if self._catalog.put_topic(config):
                _log.info("a topic was made or changed", topic=config.topic_name, peer=channel.remote_address)
            yield
        # Whoever is answered may ask for the route at once: Apache's proxy does when it starts, and ends where there is
        # none. RocketMQ: AdminBrokerProcessor.updateAndCreateTopic registers before it answers.
        when_saved(self._catalog, channel, command, then=self._catalog.when_registered)
        return None

    def delete(self, channel: Channel, command: Command) -> Command | None:
        header = decode_header(DeleteTopicRequestHeader, command)
        refusal = self._catalog.topic_rules.check_delete(header.topic)
        if refusal is not None:
            return refused(command, refusal)
        topics = [header.topic]
        if self._config().clear_retry_topic_when_delete_topic:
            retries = (
                pop_retry_topic(header.topic, group, version)
                for group in self._offsets.groups_of(header.topic)
                for version in (2, 1)
            )
            topics += [topic for topic in retries if self._catalog.find(topic) is not None]
        self._delete(topics)
        for topic in topics:
            _log.info("a topic was deleted", topic=topic, peer=channel.remote_address)
        when_saved(self._catalog, channel, command, also=self._offset_table)
        return None

    def _delete(self, topics: list[str]) -> None:
        """Delete topics. The messages go first: where that fails, all is as it was. A crash before the answer may leave
        a topic without its messages, never messages without their topic. RocketMQ: deleteTopicInBroker."""
        # Sends that were taken before this request belong to the topic that is deleted.
        self._puts.flush()
        known = self._store.queues.topics()
        found = [topic for topic in topics if self._catalog.find(topic) is not None or topic.encode() in known]
        if found:
            self._delete_records(found)
        for topic in topics:
            self._catalog.delete_topic(topic)
            self._offsets.remove_topic(topic)
            self._stats.forget_topic(topic)

    def clean_unused(self, channel: Channel, command: Command) -> Sliced:
        return Sliced(self._clean_unused(channel, command), whole=True)

    def _clean_unused(self, channel: Channel, command: Command) -> Slices:
        """Delete queues of topics that no table knows. RocketMQ: DefaultMessageStore.cleanUnusedTopic."""
        names = sorted(self._store.queues.topics())
        for at in range(0, len(names), _CLEANED_AT_ONCE):
            # Looked at again in each slice: a send may have made the topic meanwhile.
            decoded = [name.decode() for name in names[at : at + _CLEANED_AT_ONCE]]
            unused = [name for name in decoded if not self._is_kept(name)]
            if unused:
                self._delete_records(unused)
            for name in unused:
                _log.info("queues of an unknown topic were deleted", topic=name, peer=channel.remote_address)
            yield
        confirmed = when_confirmed(self._catalog, channel, command, response(command))
        return confirmed if isinstance(confirmed, Command) else None

    def _is_kept(self, topic: str) -> bool:
        return self._catalog.find(topic) is not None or is_system_topic(topic) or topic.startswith(_LMQ_PREFIX)

    # -- look

    def get(self, channel: Channel, command: Command) -> Command:
        header = decode_header(GetTopicConfigRequestHeader, command)
        config = self._catalog.find(header.topic)
        if config is None:
            remark = f"No topic in this broker. topic: {header.topic}"
            return response(command, ResponseCode.TOPIC_NOT_EXIST, remark=remark)
        return response(command, body=dumps(config.to_json()))

    def get_all(self, channel: Channel, command: Command) -> Sliced:
        """Show the whole table, or a page of it by name. RocketMQ: getAllTopicConfig, subTopicConfigTable."""
        header = decode_header(GetAllTopicConfigRequestHeader, command)
        table = self._catalog.topic_table
        topics = dict(table.topics)
        if not (header.topic_seq is None and header.data_version is None and header.max_topic_num is None):
            names = page(topics, header.topic_seq, header.max_topic_num, header.data_version, table.version)
            topics = {name: topics[name] for name in names}
        body = TopicConfigAndMappingSerializeWrapper(topics, table.version)
        return encoded(command, body, GetAllTopicConfigResponseHeader(total_topic_num=len(table.topics)))

    def system_topics(self, channel: Channel, command: Command) -> Command:
        """List the system topics, the broker's own among them. RocketMQ: TopicValidator.getSystemTopicSet."""
        own = (config.topic_name for config in self._catalog.topic_rules.system_topics())
        return response(command, body=TopicList(tuple(sorted({*SYSTEM_TOPICS, *own}))).encode())

    def stats(self, channel: Channel, command: Command) -> Command | None:
        header = decode_header(GetTopicStatsInfoRequestHeader, command)
        config = self._catalog.find(header.topic)
        if config is None:
            remark = f"topic[{header.topic}] not exist"
            return response(command, ResponseCode.TOPIC_NOT_EXIST, remark=remark)
        tps = self._stats.tps(TOPIC_PUT_NUMS, header.topic)
        when_read(
            self._store, channel, command, self._topic_stats(config),
            lambda table: encoded(command, replace(table, topic_put_tps=tps)),
        )  # fmt: skip
        return None

    def _topic_stats(self, config: TopicConfig) -> Steps[TopicStatsTable]:
        name = config.topic_name.encode()
        table: dict[MessageQueue, TopicOffset] = {}
        for queue_id in range(max(config.write_queue_nums, config.read_queue_nums)):
            low, high = self._store.min_offset(name, queue_id), self._store.max_offset(name, queue_id)
            stored = (yield from self._store.store_time(name, queue_id, high - 1)) if high > 0 else 0
            queue = MessageQueue(config.topic_name, self._config().broker_name, queue_id)
            table[queue] = TopicOffset(max(0, low), max(0, high), stored)
            yield from breath(queue_id)
        return TopicStatsTable(table)


def page(
    names: Iterable[str],
    first: int | None,
    count: int | None,
    seen_version: str | None,
    version: DataVersion,
) -> list[str]:
    """Return the names of one page. A table that changed since the last page is read from its start again.

    A page that would leave one name for the next one holds that name too: Apache's slave stops asking when one name is
    missing, and deletes it then. RocketMQ: BrokerOuterAPI.getAllTopicConfig.
    """
    begin = max(0, first or 0)
    if begin and _version_of(seen_version) != version:
        begin = 0
    size = PAGE_SIZE_MAX if count is None else max(0, min(count, PAGE_SIZE_MAX))
    ordered = sorted(names)
    return ordered[begin:] if size and begin + size == len(ordered) - 1 else ordered[begin : begin + size]


def _version_of(text: str | None) -> DataVersion | None:
    try:
        return DataVersion.from_json(loads_object(text.encode())) if text and text.strip() else None
    except DialectError:
        return None
