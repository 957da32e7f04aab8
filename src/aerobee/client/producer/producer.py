"""The producer: sends messages, batches, requests and transactions.

    async with Producer("localhost:9876") as producer:
        receipt = await producer.send("orders", b"hi", tags="PAID", keys="42")

It checks the arguments and turns them into requests; `Sender` sends them. RocketMQ: DefaultMQProducer.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from dataclasses import replace
from types import TracebackType
from typing import Final, Self, Unpack

from aerobee.client.core import (
    SEND_HOOKS,
    ClientCore,
    ClientStateError,
    SendContext,
    SendReceipt,
    acquire_core,
    client_config,
    is_not_master,
    release_core,
    shown_defaults,
    split_options,
    takes,
    with_namespace,
    without_namespace,
    wrong_type,
)
from aerobee.client.producer.options import ProducerConfig, ProducerOptions
from aerobee.client.producer.requestreply import await_reply, requests_of
from aerobee.client.producer.selectors import by_hash
from aerobee.client.producer.sender import Sender, SenderConfig
from aerobee.client.producer.sending import Pin
from aerobee.client.producer.sendoptions import (
    BATCH_MEANING,
    SEND_MEANING,
    BatchOptions,
    SendOptions,
    check_batch_options,
    check_send_options,
    is_delayed,
)
from aerobee.client.producer.sendrequest import (
    BATCH_COUNT_MAX,
    COMPRESS_IN_THREAD_BYTES,
    DELAY,
    NORMAL,
    ORDER,
    Body,
    Compression,
    SendRequest,
    batch_body,
    batch_part,
    batch_sizes,
    checked_body,
    joined_keys,
    message_options,
    prepared,
    properties_text,
    require_batch,
)
from aerobee.client.producer.trace import TraceDispatcher, encode_end_transaction, encode_pub
from aerobee.client.producer.transactions import (
    Check,
    Transaction,
    TransactionState,
    check_table_of,
    end_header,
)
from aerobee.errors import AerobeeError, InvalidArgumentError, TransportError
from aerobee.errors.codes import NoPermissionError
from aerobee.hot.log.batch import split_batch
from aerobee.model import sysproperties as names
from aerobee.model.compression import parse_compression
from aerobee.model.message import Message
from aerobee.model.names import TRACE_TOPIC, require_group, require_sendable
from aerobee.model.offsets import QueueOffset
from aerobee.protocol.codes import RequestCode
from aerobee.protocol.headers.send import RecallMessageRequestHeader
from aerobee.protocol.headers.transaction import EndTransactionRequestHeader
from aerobee.runtime.process import environment, fork_count
from aerobee.telemetry.stdlog import get_log

_log = get_log("client.producer")
# Between the tries to end a transaction.
_END_PAUSE_S: Final = 0.2

# RocketMQ's names for how a transaction ended, as traces carry them.
_STATE_NAMES = {
    TransactionState.COMMIT: "COMMIT_MESSAGE",
    TransactionState.ROLLBACK: "ROLLBACK_MESSAGE",
    TransactionState.UNKNOWN: "UNKNOW",
}


class Producer:
    """A producer for the topics of one cluster. Making it touches no loop and no socket; `async with` starts it."""

    @takes(ProducerOptions, shown_defaults(ProducerConfig))
    def __init__(self, namesrv: str | Sequence[str] | None = None, **options: Unpack[ProducerOptions]) -> None:
        own, shared = split_options("Producer", options, ProducerConfig)
        self.config = config = ProducerConfig(**own)
        config.check()
        self.client_config = client_config(namesrv, environment(), **shared)
        self.wire_group = with_namespace(self.client_config.namespace, require_group(config.group))
        self._compression: Compression | None = None
        if config.compression is not None:
            kind = parse_compression(config.compression)
            self._compression = Compression(kind, config.compress_over, config.compress_level)
        # Those of the whole process come first.
        self._hooks = (*SEND_HOOKS, *config.hooks)
        self._core: ClientCore | None = None
        self._sender: Sender | None = None
        self._trace: TraceDispatcher | None = None
        self._closed = False
        # The wire names of topics whose names were checked.
        self._wire_topics: dict[str, str] = {}

    # -- life

    async def start(self) -> Self:
        """Start the producer. Nothing is connected before the first message."""
        if self._closed:
            raise ClientStateError("the producer is closed", hint="make a new one")
        if self._core is None or self._core.fork != fork_count():
            core = await acquire_core(self.client_config)
            self._core = core
            self._sender = Sender(core, self.wire_group, self._sender_config())
            if self.config.trace:
                topic = self.config.trace if isinstance(self.config.trace, str) else TRACE_TOPIC
                self._trace = TraceDispatcher(core, self.config.group, "PRODUCE", topic)
            if self.config.on_check is not None:
                check_table_of(core).by_group[self.wire_group] = Check(self, self.config.on_check)
            core.add_producer(self.wire_group, self)
        return self

    def _sender_config(self) -> SenderConfig:
        config = self.config
        attempt_timeout_s = config.attempt_timeout
        if config.idempotent and attempt_timeout_s is None:
            attempt_timeout_s = config.timeout / 4  # after a lost answer there must be time for another try
        return SenderConfig(
            timeout_s=config.timeout,
            attempt_timeout_s=attempt_timeout_s,
            retries=config.retries,
            retry_not_durable=config.retry_not_durable,
            idempotent=config.idempotent,
            avoid_slow_brokers=config.avoid_slow_brokers,
            max_in_flight=config.max_in_flight,
            max_waiting_bytes=config.max_waiting_bytes,
            default_topic_queue_nums=config.default_topic_queue_nums,
        )

    async def close(self) -> None:
        """Wait for the sends in flight, unregister and close. A second call does nothing."""
        if self._closed:
            return
        self._closed = True
        core, sender = self._core, self._sender
        if core is None or sender is None or core.fork != fork_count():
            return
        try:
            await sender.flush()
            if self._trace is not None:
                await self._trace.close()
        finally:
            sender.close()
            table = check_table_of(core) if self.config.on_check is not None else None
            if table is not None:
                check = table.by_group.pop(self.wire_group, None)
                if check is not None:
                    check.close()
            try:
                await core.remove_producer(self.wire_group, self)
            finally:
                await release_core(core)

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def is_closed(self) -> bool:
        return self._closed

    def topics(self) -> list[str]:
        """Return the topics that were sent to, by their names on the wire. The core keeps their routes fresh."""
        return self._sender.topics() if self._sender is not None else []

    def _running(self) -> Sender:
        sender = self._sender
        if sender is None or self._closed:
            state = "closed" if self._closed else "not started"
            raise ClientStateError(f"the producer is {state}", hint="async with Producer(...) as producer:")
        if sender.core.fork != fork_count():
            raise ClientStateError(
                "the producer was started before a fork, in the parent process",
                hint="start one in each child (aerobee.sync does so by itself)",
            )
        if asyncio.get_running_loop() is not sender.loop:
            raise ClientStateError(
                "the producer belongs to another event loop", hint="make one for each loop, or use aerobee.sync"
            )
        return sender

    # -- sending

    @takes(SendOptions, meaning=SEND_MEANING)
    async def send(self, topic: str | Message, body: Body | None = None, **options: Unpack[SendOptions]) -> SendReceipt:
        """Send a message. Return its receipt once it is stored at the level the broker is set to; anything less raises.

        `topic` may be a Message, whose tags, keys and properties are sent with its body.
        """
        sender = self._running()
        out = self._outgoing("send", topic, body, options)
        if self._trace is None and not self._hooks:
            return await sender.send(out, _pin(options), options.get("timeout"))
        return await self._observed(sender, out, options)

    @takes(SendOptions, meaning=SEND_MEANING)
    def send_nowait(
        self, topic: str | Message, body: Body | None = None, **options: Unpack[SendOptions]
    ) -> asyncio.Future[SendReceipt]:
        """Begin to send. Return a future of what `send` returns or raises. Wrong arguments raise here."""
        sender = self._running()
        out = self._outgoing("send_nowait", topic, body, options)
        if self._trace is None and not self._hooks:
            return sender.post(out, _pin(options), options.get("timeout"))
        return asyncio.ensure_future(self._observed(sender, out, options))

    @takes(SendOptions, meaning=SEND_MEANING)
    async def send_oneway(self, topic: str | Message, body: Body | None = None, **options: Unpack[SendOptions]) -> None:
        """Write a message to the broker's connection. There is no answer and no retry, so it may be lost."""
        sender = self._running()
        out = self._outgoing("send_oneway", topic, body, options)
        await sender.oneway(out, _pin(options), options.get("timeout"))

    @takes(BatchOptions, meaning=BATCH_MEANING)
    async def send_batch(self, messages: Sequence[Message], **options: Unpack[BatchOptions]) -> list[SendReceipt]:
        """Send messages of one topic together, and return one receipt for each.

        A batch that is larger than `max_message_size` or 10,000 messages is split into several requests, which are sent
        one after the other. Each request is stored as a whole or not at all. Where one fails after others were stored,
        the notes of the error say how many messages are stored.
        """
        sender = self._running()
        check_batch_options(options)
        if self.config.idempotent:
            raise InvalidArgumentError("an idempotent producer sends no batches", hint="send_nowait() and flush()")
        require_batch(messages)
        ids = [self._next_id(sender) for _ in messages]
        if not self._hooks:
            return await self._send_batch(sender, messages, ids, options)
        contexts = [
            self._context(sender, replace(one, message_id=own), len(messages))
            for one, own in zip(messages, ids, strict=True)
        ]
        try:
            for context in contexts:
                for hook in self._hooks:
                    hook.before_send(context)
                context.added_text()
            messages = [replace(one.message, properties={**one.added, **one.message.properties}) for one in contexts]
            receipts = await self._send_batch(sender, messages, ids, options)
            for context, receipt in zip(contexts, receipts, strict=True):
                context.receipt = receipt
        except BaseException as error:
            for context in contexts:
                context.error = error
            raise
        else:
            return receipts
        finally:
            for context in contexts:
                self._after_send(context)

    async def _send_batch(
        self, sender: Sender, messages: Sequence[Message], ids: Sequence[str], options: BatchOptions
    ) -> list[SendReceipt]:
        topic = messages[0].topic
        wire, limit = self._wire_topic(topic), self.config.max_message_size
        parts = [batch_part(message, ids[i], limit) for i, message in enumerate(messages)]
        receipts: list[SendReceipt] = []
        for first, end in split_batch(batch_sizes(parts), limit, BATCH_COUNT_MAX):
            body = batch_body(parts[first:end])
            batch_id = self._next_id(sender)
            out = SendRequest(
                wire,
                topic,
                body,
                batch_id,
                properties_text(batch_id, {}, self._tenant()),
                len(body),
                code=RequestCode.SEND_BATCH_MESSAGE,
                message_ids=tuple(ids[first:end]),
            )
            try:
                receipt = await sender.send(out, options.get("queue"), options.get("timeout"))
            except AerobeeError as error:
                if first:
                    error.add_note(f"the first {first} of {len(messages)} messages are stored")
                raise
            receipts += _batch_receipts(receipt, out.message_ids)
        return receipts

    async def flush(self) -> None:
        """Wait until every send that was begun has its answer."""
        await self._running().flush()

    async def cancel(self, receipt: SendReceipt) -> str:
        """Recall a delayed message that was not delivered yet, and return its id. RocketMQ: RECALL_MESSAGE."""
        sender = self._running()
        if not receipt.recall_handle:
            raise InvalidArgumentError(
                f"message {receipt.message_id} cannot be recalled",
                hint="only messages with delay= or deliver_at= can, where the broker has recall on",
            )
        core = sender.core
        wire = self._wire_topic(receipt.topic)
        await sender.resolve(wire)
        address = core.routes.master(receipt.broker) or receipt.broker_address
        header = RecallMessageRequestHeader(
            producer_group=self.wire_group, topic=wire, recall_handle=receipt.recall_handle, bname=receipt.broker
        )
        try:
            answer = await core.ask(address, RequestCode.RECALL_MESSAGE, header, timeout_s=self.config.timeout)
        except NoPermissionError as error:
            error.hint = "Apache's broker recalls only with recallMessageEnable=true"
            raise
        return answer.ext.get("msgId", receipt.message_id)

    @takes(SendOptions, meaning=SEND_MEANING)
    async def request(self, topic: str | Message, body: Body | None = None, **options: Unpack[SendOptions]) -> Message:
        """Send a message and return the reply of a consumer. Raise NoReplyError where none comes in time."""
        sender = self._running()
        check_send_options("request", options)
        timeout_s = options.get("timeout") or self.config.timeout
        requests = requests_of(sender.core)
        correlation, properties, reply = requests.begin(timeout_s)
        try:
            out = self._outgoing("request", topic, body, options, properties)
            # The broker that stores the reply pushes it to clients it knows: every broker of the topic must know us.
            publish = await sender.resolve(out.topic)
            addresses = dict.fromkeys(slot.address for slot in publish.slots)
            with contextlib.suppress(TimeoutError):  # a broker that hangs must not take the time of the others
                async with asyncio.timeout(timeout_s / 3):
                    await asyncio.gather(*(self._known_to(sender.core, address) for address in addresses))
            receipt = sender.post(out, _pin(options), timeout_s)
            return await await_reply(out.user_topic, reply, receipt, timeout_s)
        finally:
            requests.end(correlation)

    @staticmethod
    async def _known_to(core: ClientCore, address: str) -> None:
        try:
            await core.known_to(address)
        except AerobeeError as error:  # the send may still succeed elsewhere
            _log.debug("a broker does not know this client", broker=address, reason=str(error))

    async def _observed(self, sender: Sender, out: SendRequest, options: SendOptions) -> SendReceipt:
        """Send with hooks and trace around it."""
        clock = sender.core.clock
        began_ms = clock.now_ms()
        context = self._context(sender, out.as_message())
        for hook in self._hooks:
            hook.before_send(context)
        if context.added:
            out.properties += context.added_text()
        try:
            context.receipt = await sender.send(out, _pin(options), options.get("timeout"))
            if self._trace is not None and context.receipt.trace_on and out.topic != self._trace.topic:
                cost_ms = clock.now_ms() - began_ms
                self._trace.append(encode_pub(out, context.receipt, self.config.group, began_ms, cost_ms))
            return context.receipt
        except BaseException as error:
            context.error = error
            raise
        finally:
            self._after_send(context)

    def _context(self, sender: Sender, message: Message, batch: int = 0) -> SendContext:
        return SendContext(
            message, self.config.group, client_id=sender.core.client_id, namespace=self.client_config.namespace,
            batch=batch,
        )  # fmt: skip

    def _after_send(self, context: SendContext) -> None:
        for hook in reversed(self._hooks):
            try:
                hook.after_send(context)
            except Exception as error:  # noqa: BLE001 - a hook must not change the outcome
                _log.error("after_send raised", hook=type(hook).__name__, exc_info=error)

    # -- transactions

    @takes(SendOptions, meaning=SEND_MEANING)
    def transaction(self, topic: str, body: Body, **options: Unpack[SendOptions]) -> Transaction:
        """Return a transaction for `async with producer.transaction(...) as tx:`.

        A normal exit commits the message, an exception leaves it to `on_check`, and `tx.rollback()` rolls it back.
        """
        if self.config.on_check is None:
            raise InvalidArgumentError(
                "a transaction needs on_check", hint="Producer(on_check=f): the broker asks it after a crash"
            )
        check_send_options("transaction", options)
        if is_delayed(options):
            raise InvalidArgumentError("a transaction cannot be delayed")
        if "priority" in options:
            raise InvalidArgumentError("a transaction cannot have a priority: the broker ignores it")

        async def send_half() -> SendReceipt:
            sender = self._running()
            system = {names.TRANSACTION_PREPARED: "true", names.PRODUCER_GROUP: self.wire_group}
            out = prepared(self._outgoing("transaction", topic, body, options, system))
            receipt = await self._observed(sender, out, options)
            # A broker that has forgotten this client could not ask it about the half message later.
            await self._known_to(sender.core, receipt.broker_address)
            return receipt

        return Transaction(self, send_half, topic)

    async def end_transaction(
        self, topic: str, receipt: SendReceipt, state: TransactionState, remark: str | None
    ) -> None:
        """Tell the broker how a transaction ended. Where that fails, the broker will ask `on_check` later."""
        sender = self._running()
        core = sender.core
        wire = self._wire_topic(topic)
        header = end_header(self.wire_group, wire, receipt, state)
        if self._trace is not None:
            now_ms = core.clock.now_ms()
            self._trace.append(encode_end_transaction(receipt, self.config.group, _STATE_NAMES[state], False, now_ms))
        try:
            if state is TransactionState.UNKNOWN:  # no broker answers this state
                command = core.request(RequestCode.END_TRANSACTION, header, oneway=True)
                command.remark = remark
                await core.remoting.tell(core.routes.master(receipt.broker) or receipt.broker_address, command)
            else:
                await self._end_at_master(core, wire, receipt, header, remark)
        except (AerobeeError, TimeoutError) as error:
            _log.warning(
                "a broker did not take the end of a transaction and will ask on_check",
                message_id=receipt.message_id,
                state=state.name,
                reason=str(error),
            )

    async def _end_at_master(
        self,
        core: ClientCore,
        wire: str,
        receipt: SendReceipt,
        header: EndTransactionRequestHeader,
        remark: str | None,
    ) -> None:
        """End a transaction at the master of the half message's group. While the group has none, look for the next."""
        until_s = core.clock.monotonic() + self.config.timeout
        while True:
            address = core.routes.master(receipt.broker) or receipt.broker_address
            command = core.request(RequestCode.END_TRANSACTION, header)
            command.remark = remark
            left_s = until_s - core.clock.monotonic()
            try:
                await core.remoting.ask(address, command, max(left_s, _END_PAUSE_S))
                return
            except AerobeeError as error:
                core.doubt_route(wire, error)
                is_elsewhere = isinstance(error, TransportError) or is_not_master(error)
                if not is_elsewhere or until_s - core.clock.monotonic() <= _END_PAUSE_S:
                    raise
            await asyncio.sleep(_END_PAUSE_S)

    async def end_checked(self, address: str, header: EndTransactionRequestHeader, remark: str | None) -> None:
        """Answer a broker's question about a half message. No answer comes back."""
        sender = self._sender
        if sender is None or self._closed:
            return
        command = sender.core.request(RequestCode.END_TRANSACTION, header, oneway=True)
        command.remark = remark
        try:
            await sender.core.remoting.tell(address, command)
        except (AerobeeError, TimeoutError) as error:
            _log.warning(
                "the question of a broker about a transaction could not be answered", broker=address, reason=str(error)
            )

    # -- what messages become

    def user_message(self, message: Message) -> Message:
        """Return a half message with the topic that its user gave."""
        topic = message.system_properties.get(names.REAL_TOPIC, message.topic)
        return replace(message, topic=without_namespace(self.client_config.namespace, topic))

    def _wire_topic(self, topic: str) -> str:
        wire = self._wire_topics.get(topic)
        if wire is None:
            wire = self._wire_topics[topic] = with_namespace(self.client_config.namespace, require_sendable(topic))
        return wire

    @staticmethod
    def _next_id(sender: Sender) -> str:
        return sender.core.unique_ids.next(sender.core.clock.now_ms())

    def _tenant(self) -> dict[str, str] | None:
        namespace = self.client_config.namespace
        return {names.INSTANCE_ID: namespace} if namespace else None

    def _outgoing(
        self,
        call: str,
        topic: str | Message,
        body: Body | None,
        options: SendOptions,
        system: dict[str, str] | None = None,
    ) -> SendRequest:
        if options:
            check_send_options(call, options)
        if isinstance(topic, Message):
            if body is not None:
                raise InvalidArgumentError("a Message has its own body")
            body = topic.body
            options.update({**message_options(topic), **options})
            topic = topic.topic
        if "reorder" in options and not options.get("sharding_key"):
            raise InvalidArgumentError("reorder= says what happens to a sharding key", hint="give sharding_key= too")
        if not isinstance(topic, str):
            raise wrong_type("topic", "a str or a Message", topic)
        if body is None:
            raise InvalidArgumentError(f"{call}(topic, body): the body is missing")
        plain = checked_body(body, self.config.max_message_size)
        sent, sys_flag, pending = plain, 0, None
        if self._compression is not None and self._compression.is_wanted(plain):
            if len(plain) < COMPRESS_IN_THREAD_BYTES:
                sent, sys_flag = self._compression.apply(plain)
            else:
                pending = self._compression
        sender = self._sender
        assert sender is not None
        message_id = self._next_id(sender)
        tenant = self._tenant()
        if tenant is not None:
            system = {**tenant, **(system or {})}
        return SendRequest(
            self._wire_topic(topic),
            topic,
            sent,
            message_id,
            properties_text(message_id, options, system),
            len(plain),
            options.get("tags") or "",
            joined_keys(options.get("keys") or ""),
            options.get("flag") or 0,
            sys_flag,
            kind=DELAY if is_delayed(options) else ORDER if "sharding_key" in options else NORMAL,
            compression=pending,
        )


def _pin(options: SendOptions) -> Pin:
    """Return where the message must go. The caller's own choice counts before the sharding key of a Message."""
    if not options:
        return None
    key = options.get("sharding_key") or None
    chosen = options.get("queue") or options.get("selector")
    if chosen is not None or key is None:
        return chosen
    # Among the queues that are writable now: the key moves to another queue when a broker goes away.
    return by_hash(key) if options.get("reorder") == "allow" else key


def _batch_receipts(receipt: SendReceipt, message_ids: Sequence[str]) -> list[SendReceipt]:
    """Return one receipt for each message of a batch. Offsets follow each other; commas join the ids of the answer.

    A batch that the broker keeps as one record has one id.
    """
    offset_ids = receipt.offset_id.split(",")
    return [
        replace(
            receipt,
            message_id=message_id,
            queue_offset=QueueOffset(receipt.queue_offset + i),
            offset_id=offset_ids[i] if len(offset_ids) == len(message_ids) else offset_ids[0],
        )
        for i, message_id in enumerate(message_ids)
    ]
