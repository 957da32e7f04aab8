"""Requests that only a consumer can answer: they are passed on over its connection, and its answer back.

RocketMQ: AdminBrokerProcessor.callConsumer, consumeMessageDirectly, Broker2Client.getConsumeStatus.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import partial

from aerobee.broker.answers import when_read
from aerobee.broker.membership.clients import Clients
from aerobee.broker.membership.members import RESET_VERSION_MIN, Client
from aerobee.broker.topics import Catalog
from aerobee.errors import InvalidArgumentError, RequestTimeoutError
from aerobee.model.dialect import DialectError
from aerobee.model.ids import decode_offset_message_id
from aerobee.model.queue import MessageQueue
from aerobee.net.channel import Channel
from aerobee.net.server import Handler
from aerobee.net.turns import Sliced, Slices
from aerobee.protocol.bodies.offsets import GetConsumerStatusBody
from aerobee.protocol.codes import FLAG_RESPONSE, RequestCode, ResponseCode
from aerobee.protocol.command import Command, request, response
from aerobee.protocol.headers.base import decode_header
from aerobee.protocol.headers.group import (
    ConsumeMessageDirectlyResultRequestHeader,
    GetConsumerRunningInfoRequestHeader,
)
from aerobee.protocol.headers.offset import GetConsumerStatusRequestHeader
from aerobee.protocol.signing import CREDENTIAL_FIELDS
from aerobee.store.messagestore import MessageStore
from aerobee.store.sent import sent_at

# RocketMQ: MQVersion.Version.V3_1_8_SNAPSHOT.
_RELAY_VERSION_MIN = 62
# RocketMQ: Broker2Client.callClient, getConsumeStatus.
_CALL_TIMEOUT_S = 10.0
_STATUS_TIMEOUT_S = 5.0
# The answers of all members, about 70 bytes a queue. A member beyond it is left out, like one that does not answer.
_STATUS_SIZE_MAX = 8 << 20


class RelayAdmin:
    """Requests passed on to consumers."""

    def __init__(
        self,
        broker_name: str,
        store: MessageStore,
        catalog: Catalog,
        clients: Clients,
        channel: Callable[[int], Channel | None],
        next_opaque: Callable[[], int],
    ) -> None:
        self._broker_name = broker_name
        self._store = store
        self._catalog = catalog
        self._clients = clients
        self._channel = channel
        self._next_opaque = next_opaque

    def handlers(self) -> dict[int, Handler]:
        return {
            RequestCode.GET_CONSUMER_RUNNING_INFO: self.running_info,
            RequestCode.CONSUME_MESSAGE_DIRECTLY: self.consume_directly,
            RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: self.status,
        }

    def running_info(self, channel: Channel, command: Command) -> Command | None:
        header = decode_header(GetConsumerRunningInfoRequestHeader, command)
        return self._call(channel, command, header.consumer_group, header.client_id, command.ext, command.body)

    # -- consume one message now

    def consume_directly(self, channel: Channel, command: Command) -> Command | None:
        header = decode_header(ConsumeMessageDirectlyResultRequestHeader, command)
        try:
            place = decode_offset_message_id(header.msg_id or "")
        except InvalidArgumentError as error:
            return response(command, ResponseCode.SYSTEM_ERROR, remark=error.message)
        ext = self._described(command, header)

        def found(record: bytes | None) -> Command | None:
            if record is None:
                remark = f"no message at offset {place.physical_offset}: it expired or the id is another broker's"
                return response(command, ResponseCode.SYSTEM_ERROR, remark=remark)
            return self._call(channel, command, header.consumer_group, header.client_id or "", ext, record)

        when_read(self._store, channel, command, sent_at(self._store, place.physical_offset), found)
        return None

    def _described(self, command: Command, header: ConsumeMessageDirectlyResultRequestHeader) -> dict[str, str]:
        ext = {**command.ext, "brokerName": self._broker_name}
        topic = self._catalog.find(header.topic) if header.topic else None
        if topic is not None:
            ext["topicSysFlag"] = str(topic.topic_sys_flag)
        group = self._catalog.group(header.consumer_group) if header.consumer_group else None
        if group is not None:
            ext["groupSysFlag"] = str(group.group_sys_flag)
        return ext

    # -- one consumer

    def _call(
        self, channel: Channel, command: Command, group: str, client_id: str, ext: dict[str, str], body: bytes
    ) -> Command | None:
        """Ask one member, and return None, because its answer comes later. Return a refusal if it cannot be asked."""
        client = self._member(group, client_id)
        target = None if client is None else self._channel_of(client.channel)
        if client is None or target is None:
            remark = f"The Consumer <{group}> <{client_id}> not online"
            return response(command, ResponseCode.SYSTEM_ERROR, remark=remark)
        if client.version < _RELAY_VERSION_MIN:
            remark = (
                f"The Consumer <{client_id}> Version <{client.version}> too low to finish, "
                "please upgrade it to V3_1_8_SNAPSHOT"
            )
            return response(command, ResponseCode.SYSTEM_ERROR, remark=remark)

        def answered(outcome: Command | Exception) -> None:
            channel.send(_passed_back(command, outcome, group, client_id))

        passed = {name: value for name, value in ext.items() if name not in CREDENTIAL_FIELDS}
        asked = request(command.code, None, body, opaque=self._next_opaque(), ext=passed)
        target.request(asked, answered, _CALL_TIMEOUT_S)
        return None

    def _member(self, group: str, client_id: str) -> Client | None:
        living = self._clients.group(group)
        members = () if living is None else living.members.values()
        return next((one.client for one in members if one.client.client_id == client_id), None)

    def _channel_of(self, channel: Hashable) -> Channel | None:
        return self._channel(channel) if isinstance(channel, int) else None

    # -- every consumer of a group

    def status(self, channel: Channel, command: Command) -> Command | None:
        """Ask each member where it stands. One that does not answer is left out, as in Apache."""
        header = decode_header(GetConsumerStatusRequestHeader, command)
        living = self._clients.group(header.group)
        if living is None:
            remark = f"No Any Consumer online in the consumer group: [{header.group}]"
            return response(command, ResponseCode.SYSTEM_ERROR, remark=remark)
        wanted = (header.client_addr or "").strip()
        members = [one.client for one in living.members.values()]
        old = next((one for one in members if one.version < RESET_VERSION_MIN), None)
        if old is not None:
            remark = f"the client does not support this feature. version={old.version}"
            return response(command, ResponseCode.SYSTEM_ERROR, remark=remark)
        chosen = [one for one in members if not wanted or one.client_id == wanted]
        _StatusRound(self, channel, command, header).ask(chosen)
        return None

    def ask_status(
        self, client: Client, header: GetConsumerStatusRequestHeader, done: Callable[[Command | Exception], None]
    ) -> None:
        """Send GET_CONSUMER_STATUS_FROM_CLIENT to one member."""
        target = self._channel_of(client.channel)
        if target is None:
            done(InvalidArgumentError(f"{client.client_id} is gone"))
            return
        told = GetConsumerStatusRequestHeader(topic=header.topic, group=header.group)
        code = RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT
        target.request(request(code, told, opaque=self._next_opaque()), done, _STATUS_TIMEOUT_S)


class _StatusRound:
    """Collects the answers of a group's members and answers when the last is in."""

    def __init__(
        self, relay: RelayAdmin, channel: Channel, command: Command, header: GetConsumerStatusRequestHeader
    ) -> None:
        self._relay = relay
        self._channel = channel
        self._command = command
        self._header = header
        self._waiting = 1
        # The answers as they came. They are decoded in slices when all are there.
        self._answers: list[tuple[str, bytes]] = []
        self._size = 0

    def ask(self, clients: list[Client]) -> None:
        for client in clients:
            self._waiting += 1
            self._relay.ask_status(client, self._header, partial(self._got, client))
        self._finish()

    def _got(self, client: Client, outcome: Command | Exception) -> None:
        if isinstance(outcome, Command) and outcome.code == ResponseCode.SUCCESS and outcome.body:
            self._size += len(outcome.body)
            if self._size <= _STATUS_SIZE_MAX:
                self._answers.append((client.client_id, outcome.body))
        self._finish()

    def _finish(self) -> None:
        self._waiting -= 1
        if not self._waiting:
            self._channel.work(self._command, Sliced(self._read()))

    def _read(self) -> Slices:
        table: dict[str, dict[MessageQueue, int]] = {}
        for client_id, answer in self._answers:
            try:
                table[client_id] = (yield from GetConsumerStatusBody.decode_slices(answer)).message_queue_table
            except DialectError:
                pass  # a member whose answer cannot be read is left out
        return response(self._command, body=(yield from GetConsumerStatusBody({}, table).encode_slices()))


def _passed_back(command: Command, outcome: Command | Exception, group: str, client_id: str) -> Command:
    if isinstance(outcome, Command):
        return Command(
            outcome.code, command.opaque, FLAG_RESPONSE, outcome.ext, outcome.body, outcome.remark,
            outcome.language, outcome.version, command.codec,
        )  # fmt: skip
    if isinstance(outcome, RequestTimeoutError):
        remark = f"consumer <{group}> <{client_id}> Timeout: {outcome}"
        return response(command, ResponseCode.CONSUME_MSG_TIMEOUT, remark=remark)
    remark = f"invoke consumer <{group}> <{client_id}> Exception: {outcome}"
    return response(command, ResponseCode.SYSTEM_ERROR, remark=remark)
