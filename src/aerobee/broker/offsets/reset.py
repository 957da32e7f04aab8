"""The request that resets a group's offsets: on the broker, or by telling its members.

RocketMQ: AdminBrokerProcessor.resetOffset, resetOffsetInner, Broker2Client.resetOffset.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from aerobee.broker.answers import breath, encoded, when_confirmed, when_read
from aerobee.broker.config import BrokerConfig
from aerobee.broker.membership import RESET_VERSION_MIN, Clients
from aerobee.broker.offsets.rules import ConsumerOffsets
from aerobee.broker.topics import Catalog
from aerobee.model.queue import MessageQueue
from aerobee.model.topic import TopicConfig
from aerobee.net.channel import Channel
from aerobee.net.server import Answer, Handler
from aerobee.protocol.bodies.offsets import MessageQueueForC, ResetOffsetBody, ResetOffsetBodyForC
from aerobee.protocol.codes import RequestCode, ResponseCode
from aerobee.protocol.command import Command, request, response
from aerobee.protocol.headers.base import decode_header
from aerobee.protocol.headers.offset import ResetOffsetRequestHeader
from aerobee.store.messagestore import MessageStore
from aerobee.store.metadata.table import MetadataTable
from aerobee.store.steps import Steps
from aerobee.telemetry.stdlog import get_log

# Queues that a log line names.
_QUEUES_TOLD_MAX = 64

_log = get_log("broker.admin")


class ResetAdmin:
    """INVOKE_BROKER_TO_RESET_OFFSET."""

    def __init__(
        self,
        config: Callable[[], BrokerConfig],
        store: MessageStore,
        catalog: Catalog,
        clients: Clients,
        offsets: ConsumerOffsets,
        channel: Callable[[int], Channel | None],
        next_opaque: Callable[[], int],
        offset_table: MetadataTable,
    ) -> None:
        self._config = config
        self._store = store
        self._catalog = catalog
        self._clients = clients
        self._offsets = offsets
        self._offset_table = offset_table
        self._channel = channel
        self._next_opaque = next_opaque

    def handlers(self) -> dict[int, Handler]:
        return {RequestCode.INVOKE_BROKER_TO_RESET_OFFSET: self.reset}

    def reset(self, channel: Channel, command: Command) -> Answer:
        header = decode_header(ResetOffsetRequestHeader, command)
        config = self._catalog.find(header.topic)
        if self._config().use_server_side_reset_offset:
            return self._reset_here(channel, command, header, config)
        return self._reset_clients(channel, command, header, config)

    # -- on the broker

    def _reset_here(
        self, channel: Channel, command: Command, header: ResetOffsetRequestHeader, config: TopicConfig | None
    ) -> Answer:
        if config is None:
            remark = f"Topic {header.topic} does not exist"
            return response(command, ResponseCode.TOPIC_NOT_EXIST, remark=remark)
        if self._catalog.group_table.get(header.group) is None:
            remark = f"Group {header.group} does not exist"
            return response(command, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, remark=remark)
        queue_id, offset = header.queue_id, header.offset
        if queue_id >= max(config.read_queue_nums, config.write_queue_nums):
            remark = f"queueId[{queue_id}] is illegal, topic[{header.topic}] has no such queue"
            return response(command, ResponseCode.INVALID_PARAMETER, remark=remark)
        if queue_id >= 0 and offset is not None and offset != -1:
            name = header.topic.encode()
            low, high = self._store.min_offset(name, queue_id), self._store.max_offset(name, queue_id)
            if not low <= offset <= high + 1:
                remark = f"Target offset {offset} not in consume queue range [{low}-{high}]"
                return response(command, ResponseCode.SYSTEM_ERROR, remark=remark)
            return self._assigned(channel, command, header, {queue_id: offset})
        queues = [queue_id] if queue_id >= 0 else range(config.read_queue_nums)
        when_read(
            self._store, channel, command, self._offsets_at(header.topic, queues, header.timestamp),
            lambda found: self._assigned(channel, command, header, found),
        )  # fmt: skip
        return None

    def _offsets_at(self, topic: str, queues: Iterable[int], timestamp: int) -> Steps[dict[int, int]]:
        """Find the offset of each queue at a time; a negative time means the end."""
        name = topic.encode()
        found = {}
        for queue_id in queues:
            if timestamp < 0:
                found[queue_id] = self._store.max_offset(name, queue_id)
            else:
                found[queue_id] = yield from self._store.offset_by_time(name, queue_id, timestamp)
            yield from breath(queue_id)
        return found

    def _assigned(
        self, channel: Channel, command: Command, header: ResetOffsetRequestHeader, found: dict[int, int]
    ) -> Answer:
        if not found:
            return response(command, ResponseCode.SYSTEM_ERROR, remark="No queues to reset.")
        for queue_id, offset in found.items():
            self._offsets.reset(header.group, header.topic, queue_id, offset)
        told = found if len(found) <= _QUEUES_TOLD_MAX else f"{len(found)} queues"
        _log.info("offsets reset", group=header.group, topic=header.topic, queues=told, peer=channel.remote_address)
        answer = encoded(command, ResetOffsetBody(self._by_queue(header.topic, found)))
        # After a restart, groups that pop would find the old position in the file and skip to it.
        return when_confirmed(self._catalog, channel, command, answer, also=self._offset_table)

    def _by_queue(self, topic: str, found: dict[int, int]) -> dict[MessageQueue, int]:
        return {MessageQueue(topic, self._config().broker_name, queue_id): offset for queue_id, offset in found.items()}

    # -- by the clients

    def _reset_clients(
        self, channel: Channel, command: Command, header: ResetOffsetRequestHeader, config: TopicConfig | None
    ) -> Command | None:
        if config is None:
            remark = f"[reset-offset] reset offset failed, no topic in this broker. topic={header.topic}"
            return response(command, ResponseCode.TOPIC_NOT_EXIST, remark=remark)
        queues = range(config.write_queue_nums)
        committed = {one: self._offsets.query(header.group, header.topic, one) for one in queues}
        if -1 in committed.values():
            remark = f"THe consumer group <{header.group}> not exist"
            return response(command, ResponseCode.SYSTEM_ERROR, remark=remark)

        def told(found: dict[int, int]) -> Command:
            if not header.is_force:
                # A reset that is not forced only goes back.
                found = {one: min(offset, committed[one]) for one, offset in found.items()}
            return self._tell(channel, command, header, found)

        when_read(self._store, channel, command, self._offsets_at(header.topic, queues, header.timestamp), told)
        return None

    def _tell(
        self, channel: Channel, command: Command, header: ResetOffsetRequestHeader, found: dict[int, int]
    ) -> Command:
        group = self._clients.group(header.group)
        if group is None:
            remark = (
                "Consumer not online, so can not reset offset, "
                f"Group: {header.group} Topic: {header.topic} Timestamp: {header.timestamp}"
            )
            return response(command, ResponseCode.CONSUMER_NOT_ONLINE, remark=remark)
        members = [member.client for member in group.members.values()]
        old = next((one for one in members if one.version < RESET_VERSION_MIN), None)
        if old is not None:
            remark = f"the client does not support this feature. version={old.version}"
            return response(command, ResponseCode.SYSTEM_ERROR, remark=remark)
        offsets = self._by_queue(header.topic, found)
        body = ResetOffsetBody(offsets).encode()
        sent = _for_cpp(offsets) if command.language == "CPP" else body
        told = ResetOffsetRequestHeader(topic=header.topic, group=header.group, timestamp=header.timestamp)
        for member in members:
            target = self._channel(member.channel) if isinstance(member.channel, int) else None
            if target is not None:
                opaque = self._next_opaque()
                target.send(request(RequestCode.RESET_CONSUMER_CLIENT_OFFSET, told, sent, opaque=opaque, oneway=True))
        _log.info("members told to reset", group=header.group, topic=header.topic, peer=channel.remote_address)
        return response(command, body=body)


def _for_cpp(offsets: dict[MessageQueue, int]) -> bytes:
    rows = (MessageQueueForC(one.topic, one.broker_name, one.queue_id, at) for one, at in offsets.items())
    return ResetOffsetBodyForC(tuple(rows)).encode()
