"""RECALL_MESSAGE: cancels a timed message by its handle, with another message of the same slot.

RocketMQ: RecallMessageProcessor.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from aerobee.broker.answers import answer_later
from aerobee.broker.config import BrokerConfig
from aerobee.broker.delay.timers.handles import RecallHandle, decode_handle
from aerobee.broker.delay.timers.placing import Placing
from aerobee.broker.log import (
    STORED,
    Candidate,
    Puts,
    SendSettings,
    encode_stored,
    message_refusal,
    name_refusal,
)
from aerobee.broker.refusal import Refusal
from aerobee.broker.topics import Catalog
from aerobee.hot.log.javahash import tags_code
from aerobee.hot.log.record import Draft
from aerobee.model.numbers import int_or
from aerobee.model.sysproperties import (
    BORN_TIMESTAMP,
    MSG_REGION,
    PRODUCER_GROUP,
    TAGS,
    TIMER_DEL_UNIQKEY,
    TIMER_DELIVER_MS,
    UNIQ_KEY,
)
from aerobee.net.channel import Channel
from aerobee.net.server import Handler
from aerobee.protocol.codes import RequestCode, ResponseCode
from aerobee.protocol.command import Command, response
from aerobee.protocol.headers.base import decode_header
from aerobee.protocol.headers.send import RecallMessageRequestHeader, RecallMessageResponseHeader
from aerobee.runtime.seams import Clock
from aerobee.store.config import StoreConfig

_TAG: Final = "_RECALL_TAG_"
_BODY: Final = b"0"


class RecallHandler:
    """The handler of RECALL_MESSAGE. It is off by default, as in Apache (`recallMessageEnable`)."""

    def __init__(
        self,
        catalog: Catalog,
        puts: Puts,
        placing: Placing,
        settings: SendSettings,
        broker_name: str,
        config: Callable[[], BrokerConfig],
        store_config: Callable[[], StoreConfig],
        clock: Clock,
    ) -> None:
        self._catalog = catalog
        self._puts = puts
        self._placing = placing
        self._settings = settings
        self._broker_name = broker_name
        self._config = config
        self._store_config = store_config
        self._clock = clock

    def handlers(self) -> dict[int, Handler]:
        return {RequestCode.RECALL_MESSAGE: self.recall}

    def recall(self, channel: Channel, command: Command) -> Command | None:
        header = decode_header(RecallMessageRequestHeader, command)
        ext = {MSG_REGION: self._settings.region}
        handle = self._checked(header)
        if isinstance(handle, Refusal):
            return response(command, handle.code, remark=handle.remark, ext=ext)
        draft = self._draft(channel, header, handle)
        if isinstance(draft, Refusal):
            return response(command, ResponseCode.SYSTEM_ERROR, remark="recall failed, execute error", ext=ext)

        def done(code: int, remark: str) -> None:
            if code in STORED:
                told = RecallMessageResponseHeader(msg_id=handle.unique_id)
                answer_later(channel, response(command, header=told, ext=ext), command)
            else:
                remark = "recall failed, execute error"
                answer = response(command, ResponseCode.SYSTEM_ERROR, remark=remark, ext=ext)
                answer_later(channel, answer, command)

        self._puts.put([draft], done)
        return None

    def _checked(self, header: RecallMessageRequestHeader) -> RecallHandle | Refusal:
        config = self._config()
        if not config.recall_message_enable:
            remark = "recall failed, operation is forbidden: the broker runs with recallMessageEnable=false"
            return Refusal(ResponseCode.NO_PERMISSION, remark)
        if not self._settings.writable and not config.allow_recall_when_not_writable:
            return Refusal(ResponseCode.SERVICE_NOT_AVAILABLE, "recall failed, broker service not available")
        if self._catalog.find(header.topic) is None:
            return Refusal(ResponseCode.TOPIC_NOT_EXIST, f"recall failed, the topic[{header.topic}] not exist")
        handle = decode_handle(header.recall_handle)
        if handle is None:
            return Refusal(ResponseCode.ILLEGAL_OPERATION, "recall handle is invalid")
        if handle.topic != header.topic:
            return Refusal(ResponseCode.ILLEGAL_OPERATION, "recall failed, topic not match")
        if handle.broker_name != self._broker_name:
            return Refusal(ResponseCode.ILLEGAL_OPERATION, "recall failed, broker service not available")
        left_ms = int_or(handle.timestamp, -1) - self._clock.now_ms()
        if not 0 < left_ms < self._store_config().timer_max_delay_s * 1000:
            return Refusal(ResponseCode.ILLEGAL_OPERATION, "recall failed, timestamp invalid")
        return handle

    def _draft(self, channel: Channel, header: RecallMessageRequestHeader, handle: RecallHandle) -> Draft | Refusal:
        now_ms = self._clock.now_ms()
        properties = {
            TAGS: _TAG,
            TIMER_DEL_UNIQKEY: handle.unique_id,
            UNIQ_KEY: handle.unique_id,
            TIMER_DELIVER_MS: handle.timestamp,
            BORN_TIMESTAMP: str(now_ms),
            PRODUCER_GROUP: header.producer_group or "",
        }
        message = Candidate(0, len(_BODY), properties)
        refusal = name_refusal(handle.topic) or message_refusal(message, self._settings.body_size_max)
        if refusal is not None:
            return refusal
        placed = self._placing(handle.topic, 0, properties)
        if isinstance(placed, Refusal):
            return placed
        return Draft(
            placed[0].encode(),
            placed[1],
            0,
            0,
            now_ms,
            channel.remote_host,
            self._settings.store_host,
            0,
            0,
            _BODY,
            encode_stored(properties),
            tags_code(_TAG),
            "",
            handle.unique_id,
        )
