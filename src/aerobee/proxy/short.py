"""The short way of ordinary sends and acknowledgements: from the bytes of a call to a frame for the broker, and back.

A call takes it where nothing has to be waited for before the broker is asked: the route is known and fresh, there is a
connection, and the scanners of `hot/wire/grpcsend` understand all of the request. Any other call takes the long way
(`service`, `sending`, `receiving`), which has every rule. Both ask the broker the same question, so its rules, limits,
quotas and counts are the same. A call costs no task and no future here.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from aerobee.errors import AerobeeError
from aerobee.hot.log.javahash import java_hash
from aerobee.hot.wire.frame import Frame
from aerobee.hot.wire.grpcsend import (
    AckForm,
    GrpcAck,
    GrpcSend,
    SendForm,
    ack_answer,
    queue_offset_of,
    scan_grpc_ack,
    scan_grpc_send,
    send_answer,
)
from aerobee.model.names import pop_retry_topic
from aerobee.model.numbers import int_or
from aerobee.model.sysproperties import RESERVED
from aerobee.net.grpcserver import GrpcSink
from aerobee.protocol.codes import LANGUAGE, LANGUAGE_CODES, VERSION, RequestCode, ResponseCode
from aerobee.protocol.command import decode_command
from aerobee.protocol.grpc import GrpcCall
from aerobee.protocol.v2 import enums
from aerobee.protocol.v2.calls import (
    PbAckMessageResponse,
    PbAckMessageResultEntry,
    PbSendMessageResponse,
    PbSendResultEntry,
)
from aerobee.protocol.v2.enums import Code
from aerobee.protocol.v2.fields import encode
from aerobee.protocol.v2.values import PbResource, PbStatus
from aerobee.proxy.backend import Backend, Route
from aerobee.proxy.clients import GrpcClient, GrpcClients
from aerobee.proxy.delivered import Receipt, parse_handle
from aerobee.proxy.renewal import Renewals
from aerobee.proxy.rules import accepted_types, group_of, topic_of
from aerobee.proxy.sending import jump_hash
from aerobee.proxy.status import OK, RefusedCallError, code_of, refusal_of
from aerobee.runtime.bases import Clock

if TYPE_CHECKING:
    from aerobee.net.link import Link

_KEPT_MAX: Final = 10_000
_ASK_S: Final = 3.0
_ASK_MAX_S: Final = 30.0
_STORED_LATE: Final = (
    ResponseCode.FLUSH_DISK_TIMEOUT, ResponseCode.FLUSH_SLAVE_TIMEOUT, ResponseCode.SLAVE_NOT_AVAILABLE
)  # fmt: skip


class _Topic:
    """What the short way needs of a topic, for as long as its route is fresh."""

    def __init__(self, name: str, route: Route) -> None:
        self.name: str = name
        self.route: Route = route
        self.until_s: float = 0.0
        # Until when the types below hold: they are asked for by sends only.
        self.typed_until_s: float = 0.0
        self.takes_normal: bool = False
        self.takes_fifo: bool = False
        # By broker and queue.
        self.forms: dict[tuple[str, int], SendForm] = {}

    def form(self, broker: str, queue_id: int) -> SendForm:
        """Return the frames of one queue."""
        found = self.forms.get((broker, queue_id))
        if found is None:
            found = self.forms[(broker, queue_id)] = SendForm(
                self.name.encode(), queue_id, RequestCode.SEND_MESSAGE_V2, LANGUAGE_CODES[LANGUAGE], VERSION
            )
        return found


class _Pending:
    """One call whose broker was asked."""

    def __init__(self, ways: ShortWays, sink: GrpcSink, call: GrpcCall) -> None:
        self.ways: ShortWays = ways
        self.sink: GrpcSink = sink
        self.call: GrpcCall = call

    def refuse(self, refusal: RefusedCallError) -> None:
        """Answer with what is wrong."""
        raise NotImplementedError

    def stored(self, frame: Frame) -> None:
        """Answer what the broker says."""
        raise NotImplementedError

    def answered(self, answer: Frame | AerobeeError) -> None:
        """Take the broker's answer, or the reason why there is none."""
        self.ways.in_flight -= 1
        try:
            if isinstance(answer, Frame):
                self.stored(answer)
            else:
                self.refuse(refusal_of(answer))
        except AerobeeError as error:
            self.refuse(refusal_of(error))


class _PendingSend(_Pending):
    """A send whose message is on its way."""

    def __init__(self, ways: ShortWays, sink: GrpcSink, call: GrpcCall, send: GrpcSend) -> None:
        super().__init__(ways, sink, call)
        self.send: GrpcSend = send

    def stored(self, frame: Frame) -> None:
        if frame.code == 0:
            offset = queue_offset_of(frame)
            if offset >= 0:
                self.sink.answer(self.call, send_answer(self.ways.ok_field, self.send.message_id, offset))
                return
        answer = decode_command(frame)
        if answer.code != 0 and answer.code not in _STORED_LATE:
            raise RefusedCallError(code_of(answer.code), answer.remark or "the broker refused the message")
        late = PbStatus(code_of(answer.code), answer.remark or "stored, and not yet safe")
        status = OK if answer.code == 0 else late
        entry = PbSendResultEntry(
            status, self.send.message_id.decode(), "", int_or(answer.ext.get("queueOffset"), 0),
            answer.ext.get("recallHandle", ""),
        )  # fmt: skip
        self.sink.answer(self.call, encode(PbSendMessageResponse(status, [entry])))

    def refuse(self, refusal: RefusedCallError) -> None:
        status = PbStatus(refusal.status, refusal.message)
        self.sink.answer(self.call, encode(PbSendMessageResponse(status=status)))


class _PendingAck(_Pending):
    """An acknowledgement that is on its way."""

    def __init__(self, ways: ShortWays, sink: GrpcSink, call: GrpcCall, ack: GrpcAck, renewed: Receipt | None) -> None:
        super().__init__(ways, sink, call)
        self.ack: GrpcAck = ack
        # The handle of a message that may be renewed.
        self.renewed: Receipt | None = renewed

    def stored(self, frame: Frame) -> None:
        if frame.code == 0:
            if self.renewed is not None:
                self.ways.renewals.take(self.ack.topic.decode(), self.ack.group.decode(), self.renewed)
            self.sink.answer(self.call, ack_answer(self.ways.ok, self.ack))
            return
        answer = decode_command(frame)
        if answer.code == ResponseCode.MESSAGE_ILLEGAL:
            raise RefusedCallError(Code.INVALID_RECEIPT_HANDLE, answer.remark or "the handle is not valid")
        raise RefusedCallError(code_of(answer.code), answer.remark or "the broker refused the request")

    def refuse(self, refusal: RefusedCallError) -> None:
        status, ack = PbStatus(refusal.status, refusal.message), self.ack
        entry = PbAckMessageResultEntry(ack.message_id.decode(), ack.handle.decode(), status)
        self.sink.answer(self.call, encode(PbAckMessageResponse(status, [entry])))


class ShortWays:
    """The short way of sends and of acknowledgements."""

    def __init__(self, backend: Backend, clients: GrpcClients, renewals: Renewals, clock: Clock) -> None:
        self.ok: bytes = encode(OK)
        self.ok_field: bytes = b"\x0a" + bytes((len(self.ok),)) + self.ok
        # Calls whose broker was asked.
        self.in_flight: int = 0
        self._backend = backend
        self._clients = clients
        self.renewals: Renewals = renewals
        self._clock = clock
        self._loop: asyncio.AbstractEventLoop | None = None
        self._reserved: frozenset[bytes] = frozenset(name.encode() for name in RESERVED)
        self._topics: dict[bytes, _Topic] = {}
        self._acks: dict[tuple[bytes, bytes, int], AckForm] = {}

    def send(self, sink: GrpcSink, call: GrpcCall, message: bytes) -> bool:
        """Take a SendMessageRequest. False: it takes the long way."""
        send = scan_grpc_send(message, self._reserved)
        if send is None:
            return False
        now_s = self._clock.monotonic()
        topic = self._topic(send.topic, now_s, typed=True)
        if topic is None or not (topic.takes_fifo if send.group else topic.takes_normal):
            return False
        client = self._client(sink, call, now_s)
        write = topic.route.write
        if client is None or not write:
            return False
        if send.group:
            queue = write[jump_hash(java_hash(send.group.decode()), len(write))]
            link = client.remoting.peek(topic.route.addresses[queue.broker])
            if link is None:
                return False
        else:
            at = (topic.route.next_queue + 1) % len(write)
            queue = write[at]
            address, lookups = topic.route.addresses[queue.broker], self._backend.lookups
            link = client.remoting.peek(address)
            if link is None or (lookups.late_until and lookups.late_s(address)):
                return False
            topic.route.next_queue = at
        opaque = client.remoting.next_opaque()
        frame = topic.form(queue.broker, queue.queue_id).frame(send, opaque, self._clock.now_ms())
        # The frame has them.
        send.body = send.user = b""
        self._post(link, opaque, frame, call, _PendingSend(self, sink, call, send))
        return True

    def ack(self, sink: GrpcSink, call: GrpcCall, message: bytes) -> bool:
        """Take an AckMessageRequest. False: it takes the long way."""
        ack = scan_grpc_ack(message)
        if ack is None or ack.pop_ms + ack.hidden_ms <= self._clock.now_ms():
            return False
        now_s = self._clock.monotonic()
        topic = self._topic(ack.topic, now_s)
        client = self._client(sink, call, now_s)
        if topic is None or client is None:
            return False
        address = topic.route.addresses.get(ack.broker.decode())
        link = client.remoting.peek(address) if address is not None else None
        form = self._ack_form(ack, topic.name)
        if link is None or form is None:
            return False
        extra = ack.extra
        given: Receipt | None = None
        if len(self.renewals):
            given = parse_handle(ack.handle.decode())
            extra = self.renewals.pause(topic.name, ack.group.decode(), given).extra_info().encode()
        opaque = client.remoting.next_opaque()
        frame = form.frame(extra, ack.queue_id, ack.offset, opaque)
        self._post(link, opaque, frame, call, _PendingAck(self, sink, call, ack, given))
        return True

    def _post(self, link: Link, opaque: int, frame: bytes, call: GrpcCall, pending: _Pending) -> None:
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
        wait_s = min(call.timeout_s, _ASK_MAX_S) if call.timeout_s > 0.0 else _ASK_S
        self.in_flight += 1
        link.post_frame(opaque, frame, self._loop.time() + wait_s, pending.answered)

    def _topic(self, name: bytes, now_s: float, *, typed: bool = False) -> _Topic | None:
        """Return a topic whose route is fresh, with `typed` one whose types are."""
        found = self._topics.get(name)
        if found is not None and now_s < (found.typed_until_s if typed else found.until_s):
            return found
        fresh = self._backend.fresh(name.decode())
        if fresh is None:
            return None
        route, declared, until_s = fresh
        if found is None or found.route is not route:
            try:
                topic = topic_of(PbResource("", name.decode()))
            except RefusedCallError:
                return None
            if len(self._topics) >= _KEPT_MAX:
                self._topics.clear()
            found = self._topics[name] = _Topic(topic, route)
        found.until_s = until_s
        if declared is not None:
            types = accepted_types(declared)
            found.typed_until_s = until_s
            found.takes_normal, found.takes_fifo = enums.NORMAL in types, enums.FIFO in types
        return None if typed and declared is None else found

    def _client(self, sink: GrpcSink, call: GrpcCall, now_s: float) -> GrpcClient | None:
        """Return the client of a call, where it is known. Each of its calls is a sign of life."""
        client_id = call.metadata.get(b"x-mq-client-id", b"")
        client = sink.client
        if not isinstance(client, GrpcClient) or client_id != sink.client_key or client.is_gone:
            client = self._clients.known(client_id.decode("utf-8", "replace"))
            if client is None:
                return None
            sink.client, sink.client_key = client, client_id
        if client.remoting.signs:
            return None
        client.seen_s = now_s
        return client

    def _ack_form(self, ack: GrpcAck, topic: str) -> AckForm | None:
        key = (ack.group, ack.topic, ack.kind)
        form = self._acks.get(key)
        if form is None:
            try:
                group = group_of(PbResource("", ack.group.decode()))
            except RefusedCallError:
                return None
            name = pop_retry_topic(topic, group, ack.kind) if ack.kind else topic
            if len(self._acks) >= _KEPT_MAX:
                self._acks.clear()
            form = self._acks[key] = AckForm(
                ack.group, name.encode(), RequestCode.ACK_MESSAGE, LANGUAGE, VERSION
            )  # fmt: skip
        return form
