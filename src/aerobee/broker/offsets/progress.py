"""Requests about how far groups have consumed: by group, broker and time; whole tables; cloning.

RocketMQ: AdminBrokerProcessor.
"""

from __future__ import annotations

from dataclasses import dataclass

from aerobee.broker.answers import breath, encoded, when_confirmed, when_read
from aerobee.broker.membership import Clients
from aerobee.broker.offsets.rules import ConsumerOffsets
from aerobee.broker.stats import GROUP_GET_NUMS, BrokerStats
from aerobee.broker.topics import Catalog
from aerobee.model.dialect import Items, dump_slices, dumps
from aerobee.model.names import group_problem
from aerobee.model.queue import MessageQueue
from aerobee.model.topic import TopicConfig
from aerobee.net.channel import Channel
from aerobee.net.server import Answer, Handler
from aerobee.net.turns import Sliced, Slices
from aerobee.protocol.bodies.groups import GroupList
from aerobee.protocol.bodies.offsets import (
    ConsumeStats,
    ConsumeStatsList,
    OffsetWrapper,
    QueryConsumeTimeSpanBody,
    QueueTimeSpan,
)
from aerobee.protocol.bodies.topics import TopicList
from aerobee.protocol.codes import RequestCode, ResponseCode
from aerobee.protocol.command import Command, response
from aerobee.protocol.headers.base import decode_header
from aerobee.protocol.headers.group import (
    GetConsumeStatsInBrokerHeader,
    GetConsumeStatsRequestHeader,
    QueryConsumeTimeSpanRequestHeader,
)
from aerobee.protocol.headers.offset import CloneGroupOffsetRequestHeader
from aerobee.protocol.headers.topic import (
    QueryTopicConsumeByWhoRequestHeader,
    QueryTopicsByConsumerRequestHeader,
)
from aerobee.runtime.seams import Clock
from aerobee.store.messagestore import MessageStore
from aerobee.store.metadata.offsets import ConsumerOffsetTable, DelayOffsetTable
from aerobee.store.metadata.plain import MessageRequestModeTable
from aerobee.store.sent import hidden_below
from aerobee.store.steps import Steps
from aerobee.telemetry.stdlog import get_log

_log = get_log("broker.admin")


@dataclass(frozen=True, slots=True)
class OffsetTables:
    """The files that tell how far consumers, delays and modes of groups have come."""

    offsets: ConsumerOffsetTable
    delays: DelayOffsetTable
    modes: MessageRequestModeTable


class ProgressAdmin:
    """Requests about consume offsets."""

    def __init__(
        self,
        broker_name: str,
        address: str,
        store: MessageStore,
        catalog: Catalog,
        clients: Clients,
        offsets: ConsumerOffsets,
        stats: BrokerStats,
        tables: OffsetTables,
        clock: Clock,
    ) -> None:
        self._broker_name = broker_name
        self._address = address
        self._store = store
        self._catalog = catalog
        self._clients = clients
        self._offsets = offsets
        self._stats = stats
        self._tables = tables
        self._clock = clock

    def handlers(self) -> dict[int, Handler]:
        return {
            RequestCode.GET_CONSUME_STATS: self.consume_stats,
            RequestCode.GET_BROKER_CONSUME_STATS: self.broker_consume_stats,
            RequestCode.QUERY_CONSUME_TIME_SPAN: self.time_span,
            RequestCode.GET_ALL_CONSUMER_OFFSET: self.all_offsets,
            RequestCode.GET_ALL_DELAY_OFFSET: self.all_delay_offsets,
            RequestCode.GET_ALL_MESSAGE_REQUEST_MODE: self.all_request_modes,
            RequestCode.CLONE_GROUP_OFFSET: self.clone,
            RequestCode.QUERY_TOPIC_CONSUME_BY_WHO: self.groups_of_topic,
            RequestCode.QUERY_TOPICS_BY_CONSUMER: self.topics_of_group,
        }

    # -- progress

    def consume_stats(self, channel: Channel, command: Command) -> Command | None:
        header = decode_header(GetConsumeStatsRequestHeader, command)
        group = header.consumer_group
        asked = list(dict.fromkeys(topic for topic in (header.topic_list or "").split(";") if topic))
        if not asked:
            topic = (header.topic or "").strip()
            asked = [topic] if topic else self._offsets.topics_of(group)
            asked = [topic for topic in asked if self._is_subscribed(group, topic)]

        def all_topics() -> Steps[ConsumeStats]:
            table: dict[MessageQueue, OffsetWrapper] = {}
            tps = 0.0
            for number, topic in enumerate(asked):
                yield from breath(number)
                config = self._catalog.find(topic)
                if config is not None:
                    table.update((yield from self._progress(group, config, config.read_queue_nums, pulled=True)))
                    tps += self._tps(group, topic)
            return ConsumeStats(table, tps)

        when_read(self._store, channel, command, all_topics(), lambda stats: encoded(command, stats))
        return None

    def broker_consume_stats(self, channel: Channel, command: Command) -> Command | None:
        header = decode_header(GetConsumeStatsInBrokerHeader, command)

        def all_groups() -> Steps[ConsumeStatsList]:
            found: list[dict[str, tuple[ConsumeStats, ...]]] = []
            behind = in_flight = 0
            topics = self._offsets.topics_by_group()
            for number, group in enumerate(sorted(self._catalog.group_table.groups)):
                yield from breath(number)
                stats: list[ConsumeStats] = []
                for topic in sorted(topics.get(group, ())):
                    config = self._catalog.find(topic)
                    if config is None or (header.is_order and not config.order):
                        continue
                    if not self._is_subscribed(group, topic):
                        continue
                    table = yield from self._progress(group, config, config.write_queue_nums, pulled=False)
                    stats.append(ConsumeStats(table, self._tps(group, topic)))
                    behind += stats[-1].diff_total
                    # RocketMQ: computeInflightTotalDiff. Pulled offsets are not asked for here: 0 as in Apache.
                    in_flight += sum(one.pull_offset - one.consumer_offset for one in table.values())
                found.append({group: tuple(stats)})
            return ConsumeStatsList(tuple(found), self._address, behind, in_flight)

        when_read(self._store, channel, command, all_groups(), lambda stats: encoded(command, stats))
        return None

    def _is_subscribed(self, group: str, topic: str) -> bool:
        """Tell whether the group subscribes to the topic. A group without members keeps all that it has offsets of."""
        living = self._clients.group(group)
        if living is None or not living.subscriptions:
            return True
        return self._clients.subscription(group, topic) is not None

    def _tps(self, group: str, topic: str) -> float:
        return self._stats.tps(GROUP_GET_NUMS, f"{topic}@{group}")

    def _progress(
        self, group: str, config: TopicConfig, queues: int, *, pulled: bool
    ) -> Steps[dict[MessageQueue, OffsetWrapper]]:
        topic, name = config.topic_name, config.topic_name.encode()
        table: dict[MessageQueue, OffsetWrapper] = {}
        for queue_id in range(queues):
            # What is hidden counts for no lag: nobody can consume it.
            hidden = hidden_below(self._store, name, queue_id)
            committed = max(hidden, self._offsets.query(group, topic, queue_id))
            at = max(committed, self._offsets.pulled(group, topic, queue_id)) if pulled else 0
            stored = 0
            if committed > 0:
                stored = max(0, (yield from self._store.store_time(name, queue_id, committed - 1)))
            broker_offset = max(0, self._store.max_offset(name, queue_id))
            queue = MessageQueue(topic, self._broker_name, queue_id)
            table[queue] = OffsetWrapper(broker_offset, committed, at, stored)
            yield from breath(queue_id)
        return table

    # -- who consumes what

    def groups_of_topic(self, channel: Channel, command: Command) -> Sliced:
        header = decode_header(QueryTopicConsumeByWhoRequestHeader, command)
        groups = {*self._clients.groups_of_topic(header.topic), *self._offsets.groups_of(header.topic)}
        return encoded(command, GroupList(tuple(sorted(groups))))

    def topics_of_group(self, channel: Channel, command: Command) -> Sliced:
        header = decode_header(QueryTopicsByConsumerRequestHeader, command)
        topics = tuple(sorted(self._offsets.topics_of(header.group)))
        return encoded(command, TopicList(topics, self._address))

    # -- by time

    def time_span(self, channel: Channel, command: Command) -> Command | None:
        header = decode_header(QueryConsumeTimeSpanRequestHeader, command)
        config = self._catalog.find(header.topic)
        if config is None:
            remark = f"topic[{header.topic}] not exist"
            return response(command, ResponseCode.TOPIC_NOT_EXIST, remark=remark)

        def spans() -> Steps[QueryConsumeTimeSpanBody]:
            found = []
            for queue_id in range(config.write_queue_nums):
                found.append((yield from self._span(header.group, header.topic, queue_id)))
                yield from breath(queue_id)
            return QueryConsumeTimeSpanBody(tuple(found))

        when_read(self._store, channel, command, spans(), lambda body: encoded(command, body))
        return None

    def _span(self, group: str, topic: str, queue_id: int) -> Steps[QueueTimeSpan]:
        store, name = self._store, topic.encode()
        committed, end = self._offsets.query(group, topic, queue_id), store.max_offset(name, queue_id)
        first_ms = yield from store.earliest_time(name, queue_id)
        last_ms = yield from store.store_time(name, queue_id, end - 1)
        consumed_ms = first_ms
        if committed > 0:
            consumed_ms = yield from store.store_time(name, queue_id, committed - 1)
        delay_ms = 0
        if committed < end:
            next_ms = yield from store.store_time(name, queue_id, max(0, committed))
            # A message that expired before it was consumed tells nothing of the delay.
            delay_ms = self._clock.now_ms() - next_ms if next_ms >= 0 else 0
        queue = MessageQueue(topic, self._broker_name, queue_id)
        return QueueTimeSpan(queue, first_ms, last_ms, consumed_ms, delay_ms)

    # -- whole tables

    def all_offsets(self, channel: Channel, command: Command) -> Sliced:
        """Show all offsets. Commits continue while the answer is written, so each offset is that of its own moment."""
        table = self._offsets.table

        def slices() -> Slices:
            entries = ((key, dict(table[key])) for key in list(table) if key in table)
            version = self._tables.offsets.version
            body = yield from dump_slices({"dataVersion": version.to_json(), "offsetTable": Items(entries)})
            return response(command, body=body)

        return Sliced(slices())

    def all_delay_offsets(self, channel: Channel, command: Command) -> Command:
        """Show the progress of the last save, which a crash keeps. RocketMQ: ScheduleMessageService.encode."""
        delays = self._tables.delays
        table = {"dataVersion": delays.version.to_json(), "offsetTable": dict(delays.table)}
        return response(command, body=dumps(table))

    def all_request_modes(self, channel: Channel, command: Command) -> Sliced:
        def slices() -> Slices:
            return response(command, body=(yield from dump_slices(self._tables.modes.encode())))

        return Sliced(slices())

    def clone(self, channel: Channel, command: Command) -> Answer:
        """Clone each topic. Apache clones the topic of the header, once for each topic."""
        header = decode_header(CloneGroupOffsetRequestHeader, command)
        problem = group_problem(header.dest_group)
        if problem is not None:
            return response(command, ResponseCode.INVALID_PARAMETER, remark=problem)
        topic = (header.topic or "").strip()
        for one in [topic] if topic else self._offsets.topics_of(header.src_group):
            known = self._catalog.find(one) is not None
            if known and (header.offline or self._is_subscribed(header.src_group, one)):
                self._offsets.clone(header.src_group, header.dest_group, one)
        _log.info("offsets cloned", source=header.src_group, target=header.dest_group, peer=channel.remote_address)
        return when_confirmed(self._catalog, channel, command, response(command))
