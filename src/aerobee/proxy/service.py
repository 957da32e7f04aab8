"""The calls of apache.rocketmq.v2.MessagingService: which there are, who makes them, and how they end."""

from __future__ import annotations

import asyncio
import ipaddress
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from itertools import chain, islice
from typing import Any, Final, TypeVar

from aerobee.errors import AerobeeError, RemoteProtocolError
from aerobee.net.grpcserver import GrpcSink
from aerobee.protocol import grpc
from aerobee.protocol.grpc import GrpcCall
from aerobee.protocol.v2 import calls
from aerobee.protocol.v2.calls import (
    PbNotifyClientTerminationRequest,
    PbNotifyClientTerminationResponse,
    PbTelemetryCommand,
)
from aerobee.protocol.v2.enums import Code
from aerobee.protocol.v2.fields import decode_request, encode
from aerobee.protocol.v2.values import PbStatus
from aerobee.proxy import pulling, receiving, renewing, routing, sending, telemetry
from aerobee.proxy.backend import Backend
from aerobee.proxy.clients import GrpcClient, GrpcClients, one_less
from aerobee.proxy.lookups import SILENT
from aerobee.proxy.renewal import Renewals
from aerobee.proxy.rights import GrpcDoor
from aerobee.proxy.short import ShortWays
from aerobee.proxy.status import OK, RefusedCallError, refusal_of
from aerobee.runtime.bases import Clock
from aerobee.telemetry.stdlog import RateLimitedLog, get_log

PATH: Final = b"/apache.rocketmq.v2.MessagingService/"
_IN_FLIGHT_MAX: Final = 50_000
# So many calls of a connection are few.
_CALLS_FEW: Final = 64
_CLIENT_ID_MAX: Final = 1024
_SWEEP_S: Final = 2.0
_LANGUAGE_MAX: Final = 32
# Commands of a telemetry stream that wait for those before them. A client sends a few in minutes.
_COMMANDS_MAX: Final = 64
_COMMANDS_BYTES_MAX: Final = 1 << 20
# A client that names a thousand topics with a filter each needs less.
_SETTINGS_BYTES_MAX: Final = 256 << 10
_ASK_S: Final = 3.0
_ACKING_MAX: Final = 16
# So long a stop tells brokers that clients are gone.
STOP_S: Final = 2.0
# So many entries of a long answer are made in one turn.
_PART: Final = 128

T = TypeVar("T")
_log = get_log("grpc")


class Caller:
    """Who makes a call, and on what."""

    def __init__(self, service: MessagingService, sink: GrpcSink, call: GrpcCall, user: str) -> None:
        # None: nothing is remembered of this client.
        self.known = service.clients.seen(_client_id(call), sink.peer, user)
        self.backend: Backend = service.backend
        self.acks = service.acks
        self.log = service.junk
        self._service = service
        self._sink = sink
        self._call = call
        self._user = user
        self._began_s = service.now_s()

    @property
    def client(self) -> GrpcClient:
        """Return the client, which is remembered from now on: a call that needs none must not fill the memory."""
        if self.known is None:
            self.known = self._service.remember(self._sink, self._call, self._user)
        return self.known

    @property
    def is_gone(self) -> bool:
        """Whether the client does not wait any more."""
        return self._call.is_answered or self._sink.channel.closed

    def now_ms(self) -> int:
        """Return the wall time."""
        return self._service.clock.now_ms()

    def left_ms(self) -> int:
        """Return how long the client still waits, 0 where it does not say."""
        if not self._call.timeout_s:
            return 0
        left_s = self._call.timeout_s - (self._service.now_s() - self._began_s)
        return max((left_s * 1000).__floor__(), 1)

    def timeout_s(self) -> float:
        """Return how long a broker has for an answer."""
        return min(self._call.timeout_s, 30.0) if self._call.timeout_s else _ASK_S

    async def in_parts(self, entries: Iterator[T], answer_of: Callable[[PbStatus | None, list[T]], object]) -> bytes:
        """Return an answer with many entries as bytes. A long one is made in parts, one part of one call in each turn
        of the loop. Whoever reads protobuf merges the parts of a message."""
        parts = [encode(answer_of(OK, list(islice(entries, _PART))))]
        ahead = next(entries, None)
        if ahead is None:
            return parts[0]
        entries = chain((ahead,), entries)
        async with self._service.parts:
            while part := list(islice(entries, _PART)):
                await asyncio.sleep(0)
                parts.append(encode(answer_of(None, part)))
        return b"".join(parts)

    def send(self, message: object) -> None:
        """Send one message of a stream."""
        self._sink.send(self._call, encode(message))

    def send_all(self, messages: list[bytes]) -> None:
        """Send encoded messages of a stream."""
        self._sink.send_all(self._call, messages)

    def end(self) -> None:
        """End a stream."""
        self._sink.end(self._call)

    def unless_delivered(self, work: Callable[[], Coroutine[None, None, None]]) -> None:
        """Do some work if the client goes before it has read all of the stream."""
        self._call.state = _Undelivered(work)


class _Undelivered:
    """What to do if a client goes away from what was sent to it."""

    def __init__(self, work: Callable[[], Coroutine[None, None, None]]) -> None:
        self.work = work


class _TelemetryStream:
    """A telemetry stream: whose it is, and the commands that wait."""

    def __init__(self) -> None:
        self.client: GrpcClient | None = None
        self.tell: Callable[[PbTelemetryCommand], None] | None = None
        self.waiting: deque[bytes] = deque()
        # Bytes of those that wait.
        self.size = 0
        self.is_working = False


Method = Callable[[Caller, Any], Awaitable[object]]


class MessagingService:
    """The service. One object serves all connections."""

    def __init__(self, backend: Backend, clock: Clock, nonce: Callable[[], str], door: GrpcDoor | None = None) -> None:
        """`door` checks who makes a call; None: everybody may."""
        self.backend = backend
        self._door = door
        self.clock = clock
        self.clients = GrpcClients(backend, self.now_s)
        pushes = telemetry.Pushes(nonce, clock.now_ms)
        self.clients.on_push = pushes.on_push
        self.renewals = Renewals(clock.now_ms)
        self.clients.on_gone = self._gone
        backend.lookups.on_hung.append(self._hung)
        # Where calls are signed the long way looks at each.
        self._short = ShortWays(backend, self.clients, self.renewals, clock)
        self.short_methods: dict[bytes, Callable[[GrpcSink, GrpcCall, bytes], bool]] = (
            {PATH + b"SendMessage": self._short.send, PATH + b"AckMessage": self._short.ack} if door is None else {}
        )
        self._tasks: dict[GrpcCall, asyncio.Task[None]] = {}
        # How many of them came from each address, and by each connection.
        self._held_from: Counter[str] = Counter()
        self._held_by: Counter[int] = Counter()
        self._others: set[asyncio.Task[None]] = set()
        # Held by the calls that acknowledge many messages, while they ask for some.
        self.acks = asyncio.Semaphore(_ACKING_MAX)
        # Held by the one call whose long answer is being made.
        self.parts = asyncio.Lock()
        # The brokers at which messages are being renewed.
        self._renewing: set[str] = set()
        self._is_stopping = False
        self.junk = RateLimitedLog(_log, clock)
        self._sweeper: asyncio.TimerHandle | None = None
        # Request class, answer class (None: the method sends a stream), method.
        self._methods: dict[bytes, tuple[type, type | None, Method]] = self._table()

    def now_s(self) -> float:
        """Return the time that only moves on."""
        return self.clock.monotonic()

    def _table(self) -> dict[bytes, tuple[type, type | None, Method]]:
        renewals = self.renewals

        async def receive(caller: Caller, request: calls.PbReceiveMessageRequest) -> None:
            await receiving.receive_message(caller, request, renewals)

        async def ack(caller: Caller, request: calls.PbAckMessageRequest) -> object:
            return await receiving.ack_message(caller, request, renewals)

        async def change(caller: Caller, request: calls.PbChangeInvisibleDurationRequest) -> object:
            return await receiving.change_invisible(caller, request, renewals)

        async def forward(caller: Caller, request: calls.PbForwardMessageToDeadLetterQueueRequest) -> object:
            return await receiving.forward_dead_letter(caller, request, renewals)

        c = calls
        return {
            b"QueryRoute": (c.PbQueryRouteRequest, c.PbQueryRouteResponse, routing.query_route),
            b"Heartbeat": (c.PbHeartbeatRequest, c.PbHeartbeatResponse, routing.heartbeat),
            b"SendMessage": (c.PbSendMessageRequest, c.PbSendMessageResponse, sending.send_message),
            b"QueryAssignment": (c.PbQueryAssignmentRequest, c.PbQueryAssignmentResponse, routing.query_assignment),
            b"ReceiveMessage": (c.PbReceiveMessageRequest, None, receive),
            b"AckMessage": (c.PbAckMessageRequest, c.PbAckMessageResponse, ack),
            b"ForwardMessageToDeadLetterQueue": (
                c.PbForwardMessageToDeadLetterQueueRequest, c.PbForwardMessageToDeadLetterQueueResponse, forward,
            ),
            b"PullMessage": (c.PbPullMessageRequest, None, pulling.pull_message),
            b"UpdateOffset": (c.PbUpdateOffsetRequest, c.PbUpdateOffsetResponse, pulling.update_offset),
            b"GetOffset": (c.PbGetOffsetRequest, c.PbGetOffsetResponse, pulling.get_offset),
            b"QueryOffset": (c.PbQueryOffsetRequest, c.PbQueryOffsetResponse, pulling.query_offset),
            b"EndTransaction": (c.PbEndTransactionRequest, c.PbEndTransactionResponse, sending.end_transaction),
            b"NotifyClientTermination": (
                c.PbNotifyClientTerminationRequest, c.PbNotifyClientTerminationResponse, self._terminate,
            ),
            b"ChangeInvisibleDuration": (
                c.PbChangeInvisibleDurationRequest, c.PbChangeInvisibleDurationResponse, change,
            ),
            b"RecallMessage": (c.PbRecallMessageRequest, c.PbRecallMessageResponse, sending.recall_message),
            b"SyncLiteSubscription": (
                c.PbSyncLiteSubscriptionRequest, c.PbSyncLiteSubscriptionResponse, routing.sync_lite_subscription,
            ),
            b"Telemetry": (c.PbTelemetryCommand, c.PbTelemetryCommand, _no_method),
        }  # fmt: skip

    # -- what connections call

    def called(self, sink: GrpcSink, call: GrpcCall) -> None:
        """Refuse a method that there is not."""
        name = call.path.removeprefix(PATH)
        if name == call.path or name not in self._methods:
            sink.fail(call, grpc.UNIMPLEMENTED, f"there is no method {call.path.decode('utf-8', 'replace')[:200]}")
        elif self._is_stopping or len(self._tasks) + self._short.in_flight >= _IN_FLIGHT_MAX:
            sink.fail(call, grpc.UNAVAILABLE, "the server is stopping" if self._is_stopping else "too many calls")
        elif name == b"Telemetry":
            call.is_streaming = True
            call.state = _TelemetryStream()
            sink.open(call)

    def message(self, sink: GrpcSink, call: GrpcCall, message: bytes) -> None:
        """Take the one message of a call, or one of a stream."""
        if call.is_streaming:
            stream = call.state
            assert isinstance(stream, _TelemetryStream)
            size = stream.size + len(message)
            if len(stream.waiting) >= _COMMANDS_MAX or (stream.waiting and size > _COMMANDS_BYTES_MAX):
                self._stream_ended(call)
                sink.fail(call, grpc.RESOURCE_EXHAUSTED, "too many commands at once")
                return
            stream.waiting.append(message)
            stream.size = size
            if not stream.is_working:
                stream.is_working = True
                self._begin(self._commands(sink, call, stream))
        elif call.state is None:
            call.state = message
        else:
            sink.fail(call, grpc.INTERNAL, "a call of this method has one message")

    def ended(self, sink: GrpcSink, call: GrpcCall) -> None:
        """Begin the work on a call that is complete."""
        if call.is_streaming:
            self._stream_ended(call)
            sink.end(call)
        elif self._is_stopping:
            sink.fail(call, grpc.UNAVAILABLE, "the server is stopping")
        elif not isinstance(call.state, bytes):
            sink.fail(call, grpc.INTERNAL, "a call of this method has one message")
        else:
            shortly = self.short_methods.get(call.path)
            if shortly is not None and shortly(sink, call, call.state):
                # Nobody needs the bytes while the answer is waited for.
                call.state = None
                return
            address, connection = _network(sink.peer[0]), sink.channel.id
            if self._has_its_share(address, connection):
                sink.fail(call, grpc.UNAVAILABLE, "too many calls of this address wait; end some")
                return
            self._held_from[address] += 1
            self._held_by[connection] += 1
            self._tasks[call] = task = asyncio.get_running_loop().create_task(self._serve(sink, call))

            def done(_: object) -> None:
                self._tasks.pop(call, None)
                one_less(self._held_from, address)
                one_less(self._held_by, connection)

            task.add_done_callback(done)

    def _has_its_share(self, address: str, connection: int) -> bool:
        """Tell whether an address has so many calls that no more of it are taken: as many as still find room. So one
        address gets half of the room, a second one a quarter, and there is always some left. Whoever holds few calls on
        a connection is served also where others of its address hold many."""
        room = _IN_FLIGHT_MAX - len(self._tasks) - self._short.in_flight
        return self._held_from[address] >= room and self._held_by[connection] >= _CALLS_FEW

    def given_up(self, sink: GrpcSink, call: GrpcCall) -> None:
        """Stop the work on a call, unless it holds messages that must be given back."""
        if call.is_streaming:
            self._stream_ended(call)
        if isinstance(call.state, _Undelivered):
            self._begin(call.state.work())
            call.state = None
        task = self._tasks.get(call)
        if task is not None and not call.path.endswith(b"ReceiveMessage"):
            task.cancel()

    def _begin(self, work: Coroutine[None, None, None]) -> None:
        """Do some work that belongs to no call."""
        task = asyncio.get_running_loop().create_task(work)
        self._others.add(task)
        task.add_done_callback(self._others.discard)

    # -- one call

    def remember(self, sink: GrpcSink, call: GrpcCall, user: str) -> GrpcClient:
        """Return the client that makes a call. Raise RefusedCallError where there are too many."""
        language = call.metadata.get(b"x-mq-language", b"")[:_LANGUAGE_MAX].decode("utf-8", "replace")
        client = self.clients.of(_client_id(call), sink.peer, language, user)
        if self._sweeper is None:
            self._sweeper = asyncio.get_running_loop().call_later(_SWEEP_S, self._sweep)
        return client

    def _check(self, sink: GrpcSink, call: GrpcCall, request: object) -> str:
        """Return the user who makes a call, '' where there are no users."""
        if self._door is None:
            return ""
        name = call.path.removeprefix(PATH).decode("latin-1")
        return self._door.check(name, request, call.metadata, sink.peer[0], self.now_s() - call.began_s)

    async def _serve(self, sink: GrpcSink, call: GrpcCall) -> None:
        kind, answer_kind, method = self._methods[call.path.removeprefix(PATH)]
        message, call.state = call.state, None
        assert isinstance(message, bytes)
        try:
            request: Any = decode_request(kind, message)
            del message
        except RemoteProtocolError as error:
            sink.fail(call, grpc.INTERNAL, error.message)
            return
        try:
            user = self._check(sink, call, request)
            caller = Caller(self, sink, call, user)
            answer = await method(caller, request)
            if answer is not None:
                sink.answer(call, answer if isinstance(answer, bytes) else encode(answer))
        except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001 - the edge: failures are answered and logged
            refusal = self._refusal(call, error)
            status = PbStatus(refusal.status, refusal.message)
            if answer_kind is not None:
                sink.answer(call, encode(answer_kind(status=status)))
            else:
                stream = (
                    calls.PbReceiveMessageResponse
                    if kind is calls.PbReceiveMessageRequest
                    else calls.PbPullMessageResponse
                )
                sink.send(call, encode(stream(status=status)))
                sink.end(call)

    def _refusal(self, call: GrpcCall, error: BaseException) -> RefusedCallError:
        if isinstance(error, asyncio.CancelledError):
            # The server stops, or nobody waits for the answer any more.
            return RefusedCallError(Code.MESSAGE_NOT_FOUND, "the server is stopping")
        if not isinstance(error, AerobeeError | TimeoutError):
            name = call.path.removeprefix(PATH).decode("utf-8", "replace")
            self.junk.error(f"failed {name}", "call failed", call=name, exc_info=error)
        return refusal_of(error)

    # -- telemetry

    async def _commands(self, sink: GrpcSink, call: GrpcCall, stream: _TelemetryStream) -> None:
        """Take the commands of a stream one after the other: the last settings are those that count."""
        try:
            while stream.waiting and not call.is_answered:
                message = stream.waiting.popleft()
                stream.size -= len(message)
                await self._telemetry(sink, call, stream, message)
        finally:
            stream.is_working = False

    async def _telemetry(self, sink: GrpcSink, call: GrpcCall, stream: _TelemetryStream, message: bytes) -> None:
        try:
            told = decode_request(PbTelemetryCommand, message)
            user = self._check(sink, call, told)
            if told.settings is None:
                telemetry.answered_by(self.clients.seen(_client_id(call), sink.peer, user), told)
                return
            if len(message) > _SETTINGS_BYTES_MAX:
                words = f"settings have at most {_SETTINGS_BYTES_MAX} bytes, these {len(message)}"
                raise RefusedCallError(Code.BAD_REQUEST, words)
            client = self.remember(sink, call, user)
        except RemoteProtocolError as error:
            sink.fail(call, grpc.INTERNAL, error.message)
            return
        except RefusedCallError as error:
            sink.send(call, encode(PbTelemetryCommand(status=PbStatus(error.status, error.message))))
            return
        if not call.is_answered:
            self._stream_ended(call)
            stream.client = client
            stream.tell = client.tell = lambda command: self._tell(sink, call, command)
        try:
            client.settings_bytes = len(message)
            answer = await telemetry.take_settings(self.backend, client, told.settings)
            sink.send(call, encode(answer))
        except Exception as error:  # noqa: BLE001 - the edge: an unknown failure is answered and logged
            refusal = self._refusal(call, error)
            self._stream_ended(call)
            is_theirs = 40_000 <= refusal.status < 50_000
            words = f"{refusal.status.value} {refusal.message}"
            sink.fail(call, grpc.INVALID_ARGUMENT if is_theirs else grpc.INTERNAL, words)

    @staticmethod
    def _tell(sink: GrpcSink, call: GrpcCall, command: PbTelemetryCommand) -> None:
        if not sink.channel.closed:
            sink.send(call, encode(command))

    def _stream_ended(self, call: GrpcCall) -> None:
        stream = call.state
        # A client may have opened another stream before it ended this one.
        if isinstance(stream, _TelemetryStream) and stream.client is not None and stream.client.tell is stream.tell:
            self.clients.stream_ended(stream.client)

    async def _terminate(
        self, caller: Caller, request: PbNotifyClientTerminationRequest
    ) -> PbNotifyClientTerminationResponse:
        if caller.known is not None:
            self.clients.forget(caller.known)
        if caller.known is None or caller.known.settings is None:
            raise RefusedCallError(Code.UNRECOGNIZED_CLIENT_TYPE, "this client has told no settings")
        return PbNotifyClientTerminationResponse(OK)

    def _hung(self, address: str) -> None:
        """End what waits for a broker that hangs, so that clients can turn to others."""
        for client in self.clients.all():
            client.remoting.give_up(address, SILENT)

    def _gone(self, client: GrpcClient) -> None:
        async def leave() -> None:
            try:
                # A client whose front stops goes on handling its messages, and acknowledges them at the next one.
                if not self._is_stopping:
                    await renewing.give_back(self.backend, self.renewals, client)
            finally:
                await client.leave()

        self._begin(leave())

    # -- time

    def _sweep(self) -> None:
        self._sweeper = None
        self.clients.expired()
        for broker in self.renewals.brokers_due():
            if broker not in self._renewing:
                self._renewing.add(broker)
                self._begin(self._renew_at(broker))
        if len(self.clients) and not self._is_stopping:
            self._sweeper = asyncio.get_running_loop().call_later(_SWEEP_S, self._sweep)

    async def _renew_at(self, broker: str) -> None:
        try:
            await renewing.renew_at(self.backend, self.renewals, broker)
        finally:
            self._renewing.discard(broker)

    async def stop(self) -> None:
        """Take no further call, end those that wait, and tell the brokers that the clients are gone."""
        self._is_stopping = True
        if self._sweeper is not None:
            self._sweeper.cancel()
        for task in list(self._tasks.values()):
            task.cancel()
        clients = self.clients.all()
        for client in clients:
            self.clients.forget(client)
        tasks = (*self._tasks.values(), *self._others)
        late = (await asyncio.wait(tasks, timeout=STOP_S))[1] if tasks else ()
        if late:
            _log.info("stopped before all brokers were told that clients are gone", tasks=len(late))
        for task in late:
            task.cancel()
        await asyncio.gather(*(client.remoting.close() for client in clients), *tasks, return_exceptions=True)


def _network(host: str) -> str:
    """Return what counts as one address: of IPv6 the first 64 bits, of which a single machine has all addresses."""
    if ":" not in host:
        return host
    try:
        return ipaddress.IPv6Address(host.partition("%")[0]).packed[:8].hex()
    except ValueError:
        return host


def _client_id(call: GrpcCall) -> str:
    client_id = call.metadata.get(b"x-mq-client-id", b"").decode("utf-8", "replace")
    if not client_id.strip():
        raise RefusedCallError(Code.CLIENT_ID_REQUIRED, "the header x-mq-client-id is missing")
    if len(client_id) > _CLIENT_ID_MAX:
        raise RefusedCallError(Code.BAD_REQUEST, f"a client id has at most {_CLIENT_ID_MAX} characters")
    return client_id


async def _no_method(caller: Caller, request: object) -> object:
    raise RefusedCallError(Code.NOT_IMPLEMENTED, "this method is a stream")
