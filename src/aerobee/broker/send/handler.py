"""SEND_MESSAGE, its V2 and SEND_BATCH_MESSAGE: from a frame to a draft.

An ordinary message (tags, keys, user properties) takes the short way: one scan of its header, one of its properties,
one draft. What the broker must act upon (delays, transactions, retries, batches) takes the long way through a dict of
properties, and so does every message that a rule of sendrules.py might refuse. RocketMQ: SendMessageProcessor.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

from librt.strings import BytesWriter

from aerobee.broker.flowcontrol import FlowControl, Work
from aerobee.broker.log import (
    BATCH_COUNT_MAX,
    SHORT_PROPERTIES_MAX,
    SPECIAL_FLAGS,
    Candidate,
    Done,
    Puts,
    SendSettings,
    batch_refusal,
    key_refusal,
    message_refusal,
    name_refusal,
    row_refusal,
    topic_refusal,
)
from aerobee.broker.refusal import Refusal
from aerobee.broker.send.dedup import Dedup, Queue, Sent, named
from aerobee.errors import AerobeeError, ProtocolError
from aerobee.hot.log.batch import decode_batch
from aerobee.hot.log.javahash import java_hash_utf8
from aerobee.hot.log.layout import MULTI_TAGS
from aerobee.hot.log.properties import decode_properties, encode_properties
from aerobee.hot.log.record import Draft
from aerobee.hot.wire.frame import Frame, text_of
from aerobee.hot.wire.send import NO_WAIT, SLOW, SendAnswerForm, SendFields, scan_send_properties
from aerobee.model.ids import offset_message_id
from aerobee.model.names import is_retry_topic
from aerobee.model.producermark import ORDER_MARK, PRODUCER_MARK, ProducerMark, parse_mark, parse_order
from aerobee.model.sysproperties import CLUSTER, CRC32, KEYS, POP_CK, TAGS, UNIQ_KEY, WAIT
from aerobee.model.topic import MULTI_TAG, TopicConfig
from aerobee.net.channel import Channel
from aerobee.protocol.codes import ResponseCode
from aerobee.protocol.command import Command, encode_command
from aerobee.protocol.sending import decode_send, send_answer_form
from aerobee.runtime.seams import Clock, Entropy

_SEP: Final = b"\x02"
_KNOWN_MAX: Final = 20_000


class Topics(Protocol):
    """The topics that a send may name."""

    def find(self, topic: str) -> TopicConfig | None: ...
    def check_send(self, topic: str) -> Refusal | None: ...
    def for_send(self, fields: SendFields) -> TopicConfig | Refusal: ...


# Takes a message with properties that the broker acts upon, and returns what to store, or why not.
Special = Callable[[Channel, SendFields, TopicConfig, dict[str, str], bytes, int], "PreparedSend | Refusal"]


@dataclass(frozen=True, slots=True)
class PreparedSend:
    """A message ready for the log, perhaps under another topic than it was sent to."""

    draft: Draft
    wait: bool = True
    # The queue that the sender is told: its own choice, also where the message is put away elsewhere. -1: the draft's.
    queue_id: int = -1
    # The handle by which the sender of a timed message can recall it.
    recall_handle: str = ""


class SendAnswers:
    """Answers of stored sends, as SendMessageProcessor.handlePutMessageResult writes them."""

    def __init__(self, settings: SendSettings) -> None:
        self._settings = settings
        self._form = send_answer_form(settings.store_host, settings.region, settings.trace_on)

    def _form_now(self) -> SendAnswerForm:
        settings, form = self._settings, self._form
        if form.trace_on != settings.trace_on:
            form = self._form = send_answer_form(settings.store_host, settings.region, settings.trace_on)
        return form

    def stored_all(
        self, channels: list[Channel | None], opaques: list[int], codecs: list[int], drafts: list[Draft]
    ) -> None:
        """Answer many sends: those of one connection, which come together, in one write."""
        form = self._form_now()
        out = BytesWriter()
        current: Channel | None = None
        for i in range(len(drafts)):
            channel = channels[i]
            if channel is None:
                continue
            if channel is not current:
                if current is not None:
                    current.write_now(out.getvalue())
                    out = BytesWriter()
                current = channel
            draft = drafts[i]
            form.write(
                out,
                codecs[i],
                opaques[i],
                draft.queue_id,
                draft.queue_offset,
                draft.physical_offset,
                draft.uniq_key,
            )
        if current is not None:
            current.write_now(out.getvalue())

    def stored(self, channel: Channel, opaque: int, codec: int, draft: Draft, code: int, queue_id: int = -1) -> None:
        if queue_id < 0:
            queue_id = draft.queue_id
        if code != 0 or queue_id != draft.queue_id:
            message_id = offset_message_id(self._settings.store_host, draft.physical_offset)
            channel.send(self._stored_unsafely(opaque, codec, draft, code, message_id, queue_id))
            return
        out = BytesWriter()
        self._form_now().write(out, codec, opaque, queue_id, draft.queue_offset, draft.physical_offset, draft.uniq_key)
        channel.write_now(out.getvalue())

    def stored_timed(self, channel: Channel, opaque: int, codec: int, prepared: PreparedSend, code: int) -> None:
        """Answer as `stored`, with the recall handle."""
        draft = prepared.draft
        message_id = offset_message_id(self._settings.store_host, draft.physical_offset)
        answer = self._stored_unsafely(opaque, codec, draft, code, message_id, prepared.queue_id)
        answer.ext["recallHandle"] = prepared.recall_handle
        channel.send(answer)

    def _stored_unsafely(
        self, opaque: int, codec: int, draft: Draft, code: int, message_id: str, queue_id: int
    ) -> Command:
        ext = {
            "msgId": message_id,
            "queueId": str(queue_id),
            "queueOffset": str(draft.queue_offset),
            "transactionId": draft.uniq_key,
            "MSG_REGION": self._settings.region,
            "TRACE_ON": "true" if self._settings.trace_on else "false",
        }
        return Command(code, opaque, 1, ext, codec=codec)

    def refused(self, channel: Channel, opaque: int, codec: int, code: int, remark: str) -> None:
        ext = {"MSG_REGION": self._settings.region, "TRACE_ON": "true" if self._settings.trace_on else "false"}
        channel.write(encode_command(Command(code, opaque, 1, ext, remark=remark, codec=codec)))


class _Known:
    """What the short way needs of a topic, made once for its settings."""

    def __init__(self, config: TopicConfig) -> None:
        self.config = config
        self.topic: bytes = config.topic_name.encode()
        self.queues: int = config.write_queue_nums
        self.sys_flag: int = MULTI_TAGS if config.topic_filter_type == MULTI_TAG else 0
        # Whether the rules pass any message for a queue of it that is written.
        self.plain: bool = (
            name_refusal(config.topic_name) is None
            and topic_refusal(config, 0) is None
            and key_refusal(config, "") is None
            and not config.topic_name.startswith("%")
        )


class SendHandler:
    """The handler of sends, which turns frames into drafts."""

    def __init__(
        self,
        settings: SendSettings,
        topics: Topics,
        puts: Puts,
        answers: SendAnswers,
        special: Special,
        flow: FlowControl,
        clock: Clock,
        entropy: Entropy,
        unique_id: Callable[[], str],
    ) -> None:
        # Filled from the log before the first send (`learn_marks`).
        self.dedup = Dedup()
        self._settings = settings
        self._topics = topics
        self._puts = puts
        self._answers = answers
        self._special = special
        self._flow = flow
        self._clock = clock
        self._entropy = entropy
        self._unique_id = unique_id
        self._known: dict[str, _Known] = {}
        self._store_host: bytes = settings.store_host
        # The read for whose first send flow control was asked: its other sends came at the same time.
        self._asked: bytes = b""
        # Limits below which every rule passes; attributes, because compiled code looks up names of other modules.
        self._special_flags: int = SPECIAL_FLAGS
        self._short_properties_max: int = SHORT_PROPERTIES_MAX
        self._cluster_pair = CLUSTER.encode() + b"\x01" + settings.cluster.encode() + b"\x02"

    def on_frame(self, channel: Channel, frame: Frame) -> None:
        """Serve a send as it came: a fast handler of net.Server."""
        answered = None if frame.flag & 2 else channel
        if frame.buf is not self._asked:
            busy = self._flow.busy(Work.SEND, channel.last_read_s)
            if busy is not None:
                self._refuse(answered, frame, Refusal(ResponseCode.SYSTEM_BUSY, busy))
                return
            self._asked = frame.buf
        try:
            fields = decode_send(frame)
        except ProtocolError as error:
            code = error.code if error.code is not None else ResponseCode.SYSTEM_ERROR
            self._refuse(answered, frame, Refusal(code, error.message))
            return
        known = self._find(fields.topic)
        queue_id = fields.queue_id
        if (
            known is None
            or queue_id >= known.queues
            or queue_id < 0
            or fields.batch
            or not known.plain
            or fields.sys_flag & self._special_flags
            or len(fields.properties) > self._short_properties_max
        ):
            self._long_way(channel, answered, frame, fields)
            return
        kind, tags, keys, unique = scan_send_properties(fields.properties)
        if kind == SLOW or not unique or not self._fits(frame):
            self._long_way(channel, answered, frame, fields)
            return
        properties = fields.properties
        if properties[-1] != 2:
            properties += _SEP
        properties += self._cluster_pair
        draft = Draft(
            known.topic,
            queue_id,
            fields.flag,
            fields.sys_flag | known.sys_flag,
            fields.born_timestamp,
            channel.remote_host,
            self._store_host,
            fields.reconsume_times,
            0,
            frame.body(),
            properties,
            java_hash_utf8(tags, 0, len(tags)) if tags else 0,
            text_of(keys) if keys else "",
            text_of(unique),
        )
        # The scan has seen both, so neither the log nor the index looks for them again.
        draft.sealed = properties
        draft.tags = tags
        if kind == NO_WAIT:
            self._put(answered, frame, PreparedSend(draft, wait=False))
        elif frame.header_pos == 8 and frame.end == len(frame.buf):
            self._puts.send_alone(answered, frame.opaque, frame.codec, draft, channel.last_read_s)
        else:
            self._puts.send(answered, frame.opaque, frame.codec, draft)

    def _find(self, topic: str) -> _Known | None:
        config = self._topics.find(topic)
        if config is None:
            return None
        known = self._known.get(topic)
        if known is None or known.config is not config:
            if len(self._known) >= _KNOWN_MAX:
                self._known.clear()
            known = self._known[topic] = _Known(config)
        return known

    def _fits(self, frame: Frame) -> bool:
        settings = self._settings
        return settings.writable and 0 < frame.end - frame.body_pos <= settings.body_size_max

    # -- the long way

    def _long_way(self, channel: Channel, answered: Channel | None, frame: Frame, fields: SendFields) -> None:
        if fields.batch:
            self._batch(channel, answered, frame, fields)
            return
        properties = decode_properties(fields.properties)
        config = self._allowed(fields, properties, frame.end - frame.body_pos)
        if isinstance(config, Refusal):
            self._refuse(answered, frame, config)
            return
        queue_id = self._queue_of(fields, config)
        properties.pop(POP_CK, None)
        properties.pop(CRC32, None)
        if not properties.get(UNIQ_KEY):
            properties[UNIQ_KEY] = self._unique_id()
        properties[CLUSTER] = self._settings.cluster
        # A consumer that sends a message for retry itself copies its properties, each time.
        mark = None if is_retry_topic(fields.topic) else parse_mark(properties.get(PRODUCER_MARK))
        after = None
        if mark is not None:
            if self._is_repeat(answered, frame, fields, properties[UNIQ_KEY], mark):
                return
            after = parse_order(properties.get(ORDER_MARK))
            refusal = None if after is None else self._turn_refusal(mark, (fields.topic, queue_id), after)
            if refusal is not None:
                self._refuse(answered, frame, refusal)
                return
        try:
            prepared = self._special(channel, fields, config, properties, frame.body(), queue_id)
        except AerobeeError as error:
            prepared = Refusal(error.code or ResponseCode.MESSAGE_ILLEGAL, error.message)
        if isinstance(prepared, Refusal):
            self._refuse(answered, frame, prepared)
        elif mark is None:
            self._put(answered, frame, prepared)
        else:
            name = named(fields.topic, properties[UNIQ_KEY])
            self._put_marked(answered, frame, prepared, mark, name, None if after is None else (fields.topic, queue_id))

    def _allowed(self, fields: SendFields, properties: dict[str, str], body_size: int) -> TopicConfig | Refusal:
        """Return the topic of a single message, made where the rules allow that, or why the message is not taken."""
        message = Candidate(
            fields.sys_flag, body_size, properties, fields.reconsume_times, block_size=len(fields.properties)
        )
        refusal = self._topics.check_send(fields.topic) or message_refusal(message, self._settings.body_size_max)
        if refusal is not None:
            return refusal
        config = self._topics.for_send(fields)
        if isinstance(config, Refusal):
            return config
        return key_refusal(config, properties.get(KEYS, "")) or config

    def _queue_of(self, fields: SendFields, config: TopicConfig) -> int:
        return fields.queue_id if fields.queue_id >= 0 else self._entropy.below(config.write_queue_nums)

    def _put(self, answered: Channel | None, frame: Frame, prepared: PreparedSend) -> None:
        done = self._answering(answered, frame, prepared)
        self._puts.put([prepared.draft], done, wait=prepared.wait, may_be_late=True)

    def _answering(self, answered: Channel | None, frame: Frame, prepared: PreparedSend) -> Done:
        opaque, codec, draft, answers = frame.opaque, frame.codec, prepared.draft, self._answers

        def done(code: int, remark: str) -> None:
            if answered is None:
                return
            if remark:
                answers.refused(answered, opaque, codec, code, remark)
            elif prepared.recall_handle:
                answers.stored_timed(answered, opaque, codec, prepared, code)
            else:
                answers.stored(answered, opaque, codec, draft, code, prepared.queue_id)

        return done

    # -- idempotent producers

    def _turn_refusal(self, mark: ProducerMark, queue: Queue, after: int) -> Refusal | None:
        """Return why a message that keeps the order of its queue cannot be stored now, or None."""
        number, dedup = mark.sequence, self.dedup
        if dedup.is_overtaken(mark, queue):
            remark = f"message {number} of its producer comes too late: a later one is stored in its queue"
            return Refusal(ResponseCode.MESSAGE_ILLEGAL, remark)
        if dedup.is_early(mark, queue, after):
            remark = (
                f"message {number} of its producer comes before message {after}, which is not stored; send it again"
            )
            return Refusal(ResponseCode.SYSTEM_ERROR, remark)
        return None

    def _put_marked(
        self,
        answered: Channel | None,
        frame: Frame,
        prepared: PreparedSend,
        mark: ProducerMark,
        name: str,
        queue: Queue | None,
    ) -> None:
        """Store as `_put`, and remember the message under its mark. `queue` is given where its order counts."""
        dedup, draft, answer = self.dedup, prepared.draft, self._answering(answered, frame, prepared)
        sent = dedup.begin(mark, name, self._clock.monotonic())
        turn = None if queue is None else dedup.take_turn(mark, queue)

        def done(code: int, remark: str) -> None:
            if turn is not None:
                if remark:
                    dedup.turn_refused(turn)
                else:
                    dedup.turn_stored(turn)
            if remark:
                waiting = dedup.refused(mark, name, sent)
            else:
                sent.physical_offset, sent.size, sent.queue_offset = (
                    draft.physical_offset, draft.size, draft.queue_offset
                )  # fmt: skip
                sent.queue_id = prepared.queue_id if prepared.queue_id >= 0 else draft.queue_id
                sent.recall_handle = prepared.recall_handle
                waiting = dedup.stored(sent)
            for outcome in (answer, *waiting):
                outcome(code, remark)

        self._puts.put([draft], done, wait=prepared.wait, may_be_late=True)

    def _is_repeat(
        self, answered: Channel | None, frame: Frame, fields: SendFields, unique: str, mark: ProducerMark
    ) -> bool:
        """Tell whether a message was sent before. Such a message is answered as the first was, and not stored."""
        sent = self.dedup.find(mark, named(fields.topic, unique))
        if sent is None:
            if not self.dedup.is_too_old(mark):
                return False
            remark = f"message {mark.sequence} of its producer is too far behind to tell whether it was stored"
            self._refuse(answered, frame, Refusal(ResponseCode.MESSAGE_ILLEGAL, remark))
            return True

        def outcome(code: int, remark: str) -> None:
            self._answering(answered, frame, _as_stored(sent, fields.topic, unique))(code, remark)

        if sent.waiting is None:
            self._puts.when_safe(sent.physical_offset + sent.size, outcome, may_be_late=True)
        else:
            sent.waiting.append(outcome)
        return True

    def _batch(self, channel: Channel, answered: Channel | None, frame: Frame, fields: SendFields) -> None:
        """Store each message of a batch as a record; the answer names all ids. RocketMQ: sendBatchMessage."""
        drafts = self._batch_drafts(channel, frame, fields)
        if isinstance(drafts, Refusal):
            self._refuse(answered, frame, drafts)
            return
        config = self._topics.for_send(fields)
        if isinstance(config, Refusal):
            self._refuse(answered, frame, config)
            return
        no_key = key_refusal(config, "")
        if no_key is not None and not all(draft.keys.strip() for draft in drafts):
            self._refuse(answered, frame, no_key)
            return
        queue_id = self._queue_of(fields, config)
        sys_flag = fields.sys_flag | (MULTI_TAGS if config.topic_filter_type == MULTI_TAG else 0)
        for draft in drafts:
            draft.queue_id, draft.sys_flag = queue_id, sys_flag
        opaque, codec, answers, store_host = frame.opaque, frame.codec, self._answers, self._settings.store_host

        def done(code: int, remark: str) -> None:
            if answered is None:
                return
            if remark:
                answers.refused(answered, opaque, codec, code, remark)
                return
            first = drafts[0]
            ids = ",".join(offset_message_id(store_host, draft.physical_offset) for draft in drafts)
            ext = {
                "msgId": ids,
                "queueId": str(queue_id),
                "queueOffset": str(first.queue_offset),
                "transactionId": decode_properties(fields.properties).get(UNIQ_KEY, ""),
                "MSG_REGION": self._settings.region,
                "TRACE_ON": "true" if self._settings.trace_on else "false",
            }
            answered.send(Command(code, opaque, 1, ext, codec=codec))

        self._puts.put(drafts, done, may_be_late=True)

    def _batch_drafts(self, channel: Channel, frame: Frame, fields: SendFields) -> list[Draft] | Refusal:
        """Return the messages of a batch, still without flags and a queue, or why it is not taken: all or nothing."""
        body_size_max = self._settings.body_size_max
        # No rule asks the properties of the batch itself: it is not stored.
        whole = Candidate(fields.sys_flag, frame.end - frame.body_pos, {}, block_size=len(fields.properties))
        refusal = self._topics.check_send(fields.topic) or message_refusal(whole, body_size_max)
        if refusal is not None:
            return refusal
        try:
            parts = decode_batch(frame.body(), BATCH_COUNT_MAX)
        except AerobeeError as error:
            return Refusal(ResponseCode.MESSAGE_ILLEGAL, error.message)
        refusal = batch_refusal(fields.topic, len(parts), body_size_max)
        if refusal is not None:
            return refusal
        drafts: list[Draft] = []
        for part in parts:
            draft = self._batch_draft(channel, fields, part)
            if isinstance(draft, Refusal):
                return draft
            drafts.append(draft)
        return drafts

    def _batch_draft(self, channel: Channel, fields: SendFields, part: tuple[int, bytes, bytes]) -> Draft | Refusal:
        flag, body, block = part
        kind, tags, keys, unique = scan_send_properties(block)
        if kind == SLOW or not unique or not body or len(block) > self._short_properties_max:
            refusal = row_refusal(block, len(body), self._settings.body_size_max)
            if refusal is not None:
                return refusal
            properties = decode_properties(block)
            properties.pop(POP_CK, None)
            properties.pop(CRC32, None)
            if not properties.get(UNIQ_KEY):
                properties[UNIQ_KEY] = self._unique_id()
            properties[CLUSTER] = self._settings.cluster
            block = encode_properties(properties)
            tags, keys = properties.get(TAGS, "").encode(), properties.get(KEYS, "").encode()
            unique = properties[UNIQ_KEY].encode()
        else:
            block = (block if block[-1] == 2 else block + _SEP) + self._cluster_pair
        draft = Draft(
            fields.topic.encode(),
            0,
            flag,
            0,
            fields.born_timestamp,
            channel.remote_host,
            self._settings.store_host,
            fields.reconsume_times,
            0,
            body,
            block,
            java_hash_utf8(tags, 0, len(tags)) if tags else 0,
            keys.decode("utf-8", "replace"),
            unique.decode("utf-8", "replace"),
        )
        draft.sealed = block
        draft.tags = tags
        return draft

    def _refuse(self, channel: Channel | None, frame: Frame, refusal: Refusal) -> None:
        if channel is not None:
            self._answers.refused(channel, frame.opaque, frame.codec, refusal.code, refusal.remark)


def _as_stored(sent: Sent, topic: str, unique: str) -> PreparedSend:
    """Return as much of a message stored before as its answer needs."""
    draft = Draft(topic.encode(), sent.queue_id, 0, 0, 0, b"", b"", 0, 0, b"", b"", 0, "", unique)
    draft.physical_offset, draft.size, draft.queue_offset = sent.physical_offset, sent.size, sent.queue_offset
    return PreparedSend(draft, queue_id=sent.queue_id, recall_handle=sent.recall_handle)


def wants_wait(properties: dict[str, str]) -> bool:
    """Tell whether the sender waits until the message is safe. RocketMQ: Message.isWaitStoreMsgOK."""
    return properties.get(WAIT, "true").lower() == "true"
