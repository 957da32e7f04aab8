"""SEND_REPLY_MESSAGE and its V2: the answer to a request message, pushed to the client that asked.

The replier is answered when the asker has taken the reply, or when it is known that it cannot. The reply is also stored
in the log where `storeReplyMessageEnable` says so. RocketMQ: ReplyMessageProcessor.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, cast

from aerobee.broker.answers import answer_later
from aerobee.broker.config import BrokerConfig
from aerobee.broker.log import STORED, Candidate, Puts, SendSettings, encode_stored, message_refusal
from aerobee.broker.membership import Clients
from aerobee.broker.refusal import Refusal
from aerobee.broker.topics import Catalog
from aerobee.hot.log.host import decode_host
from aerobee.hot.log.properties import decode_properties, set_property
from aerobee.hot.log.record import Draft
from aerobee.hot.wire.send import SendFields
from aerobee.model.ids import offset_message_id
from aerobee.model.sysproperties import (
    KEYS,
    MSG_REGION,
    PUSH_REPLY_TIME,
    REPLY_TO_CLIENT,
    TRACE_SWITCH,
    UNIQ_KEY,
)
from aerobee.model.topic import TopicConfig
from aerobee.net.channel import Channel
from aerobee.net.server import Handler
from aerobee.protocol.codes import RequestCode, ResponseCode
from aerobee.protocol.command import Command, request, response
from aerobee.protocol.headers.send import ReplyMessageRequestHeader, SendMessageResponseHeader
from aerobee.protocol.sending import send_fields
from aerobee.runtime.seams import Clock, Entropy
from aerobee.telemetry.stdlog import RateLimitedLog, get_log

# RocketMQ: Broker2Client.callClient.
_PUSH_TIMEOUT_S: Final = 10.0


class ReplyHandler:
    """The handler that brings replies to those who asked. `channel` finds the open channel of a connection id."""

    def __init__(
        self,
        catalog: Catalog,
        clients: Clients,
        puts: Puts,
        settings: SendSettings,
        config: Callable[[], BrokerConfig],
        channel: Callable[[int], Channel | None],
        clock: Clock,
        entropy: Entropy,
    ) -> None:
        self._catalog = catalog
        self._clients = clients
        self._puts = puts
        self._settings = settings
        self._config = config
        self._channel = channel
        self._clock = clock
        self._entropy = entropy
        self._warn = RateLimitedLog(get_log("broker.reply"), clock)
        self._opaque = 0

    def handlers(self) -> dict[int, Handler]:
        return {
            RequestCode.SEND_REPLY_MESSAGE: self.reply,
            RequestCode.SEND_REPLY_MESSAGE_V2: self.reply,
        }

    def reply(self, channel: Channel, command: Command) -> Command | None:
        fields = send_fields(command)
        properties = decode_properties(fields.properties)
        topic = self._allowed(fields, properties, len(command.body))
        if isinstance(topic, Refusal):
            return response(command, topic.code, remark=topic.remark, ext=self._ext())
        queue_id = fields.queue_id
        if queue_id < 0:
            queue_id = self._entropy.below(max(1, topic.write_queue_nums))
        asker_id = properties.get(REPLY_TO_CLIENT)
        if asker_id is None:
            problem = f"reply message properties[{REPLY_TO_CLIENT}] is null"
            self._pushed(channel, command, fields, queue_id, problem)
            return None
        asker = self._find(asker_id)
        if asker is None:
            problem = f"push reply message fail, channel of <{asker_id}> not found."
            self._pushed(channel, command, fields, queue_id, problem)
            return None

        def answered(answer: Command | Exception) -> None:
            ok = isinstance(answer, Command) and answer.code == ResponseCode.SUCCESS
            problem = "" if ok else f"push reply message to {asker_id}fail."
            self._pushed(channel, command, fields, queue_id, problem)

        asker.request(self._push(channel, fields, command.body), answered, _PUSH_TIMEOUT_S)
        return None

    def _allowed(self, fields: SendFields, properties: dict[str, str], body_size: int) -> TopicConfig | Refusal:
        """Return the topic of a reply, or why it is not taken. Unlike a send, a reply may be empty."""
        message = Candidate(
            fields.sys_flag, max(1, body_size), properties, fields.reconsume_times, block_size=len(fields.properties)
        )
        refusal = self._catalog.check_send(fields.topic) or message_refusal(message, self._settings.body_size_max)
        return refusal or self._catalog.for_send(fields)

    def _find(self, client_id: str) -> Channel | None:
        key = self._clients.producer_by_id(client_id)
        return None if key is None else self._channel(cast(int, key))

    def _push(self, channel: Channel, fields: SendFields, body: bytes) -> Command:
        now_ms = self._clock.now_ms()
        properties = set_property(fields.properties, PUSH_REPLY_TIME.encode(), str(now_ms).encode())
        header = ReplyMessageRequestHeader(
            producer_group=fields.producer_group,
            topic=fields.topic,
            default_topic=fields.default_topic,
            default_topic_queue_nums=fields.default_topic_queue_nums,
            queue_id=fields.queue_id,
            sys_flag=fields.sys_flag,
            born_timestamp=fields.born_timestamp,
            flag=fields.flag,
            properties=properties.decode("utf-8", "replace"),
            reconsume_times=fields.reconsume_times,
            unit_mode=fields.unit_mode,
            born_host=channel.remote_address,
            store_host=decode_host(self._settings.store_host),
            store_timestamp=now_ms,
        )
        self._opaque = (self._opaque + 1) & 0x7FFFFFFF
        return request(RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, header, body, opaque=self._opaque)

    # -- the replier's answer

    def _pushed(self, channel: Channel, command: Command, fields: SendFields, queue_id: int, problem: str) -> None:
        """Store the reply and answer the replier, whether the push went well or not."""
        if problem:
            self._warn.warning("push", problem, topic=fields.topic, peer=channel.remote_address)
        if not self._config().store_reply_message_enable:
            self._answer(channel, command, queue_id, problem, None)
            return
        draft = self._draft(channel, command, fields, queue_id)

        def done(code: int, remark: str) -> None:
            # The asker has its reply, so the replier need not send it again where it could not be stored.
            self._answer(channel, command, queue_id, problem, draft if code in STORED else None)

        self._puts.put([draft], done)

    def _draft(self, channel: Channel, command: Command, fields: SendFields, queue_id: int) -> Draft:
        properties = decode_properties(fields.properties)
        block = encode_stored(properties)
        return Draft(
            fields.topic.encode(),
            queue_id,
            fields.flag,
            fields.sys_flag,
            fields.born_timestamp,
            channel.remote_host,
            self._settings.store_host,
            fields.reconsume_times,
            0,
            command.body,
            block,
            0,
            properties.get(KEYS, ""),
            properties.get(UNIQ_KEY, ""),
        )

    def _answer(self, channel: Channel, command: Command, queue_id: int, problem: str, draft: Draft | None) -> None:
        if problem:
            refused = response(command, ResponseCode.SYSTEM_ERROR, remark=problem, ext=self._ext())
            answer_later(channel, refused, command)
            return
        # Apache's clients cannot read an answer without an id.
        header = SendMessageResponseHeader(msg_id="0", queue_id=queue_id, queue_offset=0)
        if draft is not None:
            header.msg_id = offset_message_id(self._settings.store_host, draft.physical_offset)
            header.queue_offset = draft.queue_offset
        answer_later(channel, response(command, header=header, ext=self._ext()), command)

    def _ext(self) -> dict[str, str]:
        return {
            MSG_REGION: self._settings.region,
            TRACE_SWITCH: "true" if self._settings.trace_on else "false",
        }
