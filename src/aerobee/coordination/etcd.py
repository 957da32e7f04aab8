"""A small client of etcd's JSON gateway over the network seam (decision 0009).

Every request ends within a second. Leases are kept alive over a connection of their own, so that a slow transaction
cannot end them. An endpoint that fails is left for the next one. A transaction is sent once: when its answer is lost,
nobody knows whether it was carried out, and the error says so.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, NoReturn, cast

from aerobee.coordination import gateway
from aerobee.coordination.endpoints import EtcdEndpoint, EtcdSettings
from aerobee.coordination.http import AnswerReader, HttpPart, encode_request
from aerobee.coordination.values import (
    CoordinationDeniedError,
    CoordinationRefusedError,
    KeyValue,
    ReadKeys,
    RevisionCompactedError,
    Txn,
    TxnResult,
    WatchBatch,
    WatchSink,
)
from aerobee.errors import CoordinationError, RemoteProtocolError
from aerobee.model.numbers import parse_int
from aerobee.runtime.seams import Clock, Net
from aerobee.runtime.tls import tls_failure
from aerobee.telemetry.stdlog import RateLimitedLog, get_log

REQUEST_S: Final = 1.0
_CONNECT_S: Final = 0.5
# etcd hashes the password slowly on purpose, so a token may take longer than a request. It is asked for before one.
_AUTHENTICATE_S: Final = 5.0
# Before this release an old leader could revoke leases that were alive (etcd issue 15247).
VERSION_MIN: Final = (3, 5, 13)
_ANSWER_BYTES_MAX: Final = 8 * 1024 * 1024
_IDLE_MAX: Final = 4

_log = get_log("coordination.etcd")


class EtcdClient:
    """A coordination store behind etcd's JSON gateway."""

    def __init__(self, settings: EtcdSettings, net: Net, clock: Clock) -> None:
        self._settings = settings
        self._net = net
        self._warn = RateLimitedLog(_log, clock)
        # Idle connections for requests, and those for leases.
        self._idle: dict[bool, list[_Connection]] = {False: [], True: []}
        self._open: dict[_Connection, None] = {}
        # The endpoint that is asked first. It moves on when it fails.
        self._first = 0
        self._checked: set[EtcdEndpoint] = set()
        self._token = ""

    # --- KeyStore

    async def read(self, wanted: ReadKeys) -> tuple[int, tuple[KeyValue, ...]]:
        return gateway.read_range(await self._ask(gateway.RANGE, gateway.range_request(wanted), is_repeatable=True))

    async def txn(self, txn: Txn) -> TxnResult:
        return gateway.read_txn(await self._ask(gateway.TXN, gateway.txn_request(txn)))

    async def grant(self, ttl_s: int) -> tuple[int, int]:
        # A lease whose answer was lost ends by itself.
        return gateway.read_grant(await self._ask(gateway.GRANT, gateway.grant_request(ttl_s), is_repeatable=True))

    async def keep_alive(self, lease: int) -> int:
        request = gateway.lease_request(lease)
        return gateway.read_kept(await self._ask(gateway.KEEP_ALIVE, request, is_repeatable=True, is_lease=True))

    async def revoke(self, lease: int) -> None:
        await self._ask(gateway.REVOKE, gateway.lease_request(lease))

    async def watch(self, wanted: ReadKeys, start_revision: int, sink: WatchSink) -> NoReturn:
        connection: _Connection | None = None
        stream = _WatchStream(sink)
        request = gateway.watch_request(wanted, start_revision)
        try:
            await self._authenticate()
            async with asyncio.timeout(REQUEST_S):
                connection = await self._connect()
                connection.begin(gateway.WATCH, request, self._token, stream.receive)
                await asyncio.wait((stream.created, connection.lost), return_when=asyncio.FIRST_COMPLETED)
            await asyncio.wait((stream.ended, connection.lost), return_when=asyncio.FIRST_COMPLETED)
            await (stream.ended if stream.ended.done() else connection.lost)
        except TimeoutError:
            self._fail_over()
            raise CoordinationError(f"the coordination store opened no watch within {REQUEST_S:g} s") from None
        except (CoordinationError, CoordinationDeniedError):
            self._fail_over()
            self._token = ""
            raise
        finally:
            if connection is not None:
                connection.close()
        raise CoordinationError("the coordination store ended a watch")

    async def close(self) -> None:
        for connection in list(self._open):
            connection.close()

    # --- inside

    async def _ask(self, path: str, request: bytes, *, is_repeatable: bool = False, is_lease: bool = False) -> bytes:
        try:
            return await self._ask_timed(path, request, is_lease=is_lease)
        except _AskAgainError:
            pass
        except _UnreachableError:
            raise
        except CoordinationError:
            if not is_repeatable:
                raise
        return await self._ask_timed(path, request, is_lease=is_lease)

    async def _ask_timed(self, path: str, request: bytes, *, is_lease: bool) -> bytes:
        await self._authenticate()
        try:
            async with asyncio.timeout(REQUEST_S):
                return await self._ask_once(path, request, is_lease=is_lease)
        except TimeoutError:
            self._fail_over()
            raise _UnreachableError(f"the coordination store did not answer within {REQUEST_S:g} s") from None

    async def _ask_once(self, path: str, request: bytes, *, is_lease: bool) -> bytes:
        idle = self._idle[is_lease]
        connection = idle.pop() if idle else await self._connect()
        token = self._token
        try:
            status, body = await connection.exchange(path, request, token)
        except BaseException as error:
            connection.close()
            if isinstance(error, CoordinationError):
                self._fail_over()
            raise
        if len(idle) < _IDLE_MAX and not connection.lost.done():
            idle.append(connection)
        else:
            connection.close()
        if status == 200:
            return body
        failure = self._failure(status, body, token)
        if isinstance(failure, CoordinationError):
            self._fail_over()
        raise failure

    def _failure(self, status: int, body: bytes, token: str) -> CoordinationError | CoordinationRefusedError:
        failure = gateway.read_failure(status, body)
        if failure.code == gateway.UNAUTHENTICATED and token:
            # The token has expired. Nothing was carried out.
            self._token = ""
            return _AskAgainError(failure.message, code=failure.code)
        return failure

    def _fail_over(self) -> None:
        """Ask the next endpoint first from now on, over new connections."""
        self._first = (self._first + 1) % len(self._settings.endpoints)
        if len(self._settings.endpoints) > 1:
            for idle in self._idle.values():
                for connection in idle:
                    connection.close()
                idle.clear()

    async def _connect(self, *, is_checked: bool = True) -> _Connection:
        """Open a connection to the first endpoint that takes one and that is new enough. Raise CoordinationError if
        there is none."""
        reasons: list[str] = []
        for _ in self._settings.endpoints:
            endpoint = self._settings.endpoints[self._first]
            try:
                async with asyncio.timeout(_CONNECT_S):
                    connection = await self._connect_to(endpoint)
            except TimeoutError:
                reasons.append(f"{endpoint}: no connection within {_CONNECT_S:g} s")
            except OSError as error:
                reasons.append(f"{endpoint}: {_reason(error, endpoint)}")
            else:
                try:
                    if is_checked and endpoint not in self._checked:
                        await self._check(connection)
                    return connection
                except CoordinationError as error:
                    connection.close()
                    reasons.append(str(error))
                except BaseException:
                    connection.close()
                    raise
            self._fail_over()
        raise _UnreachableError(f"the coordination store cannot be reached: {'; '.join(reasons)}")

    async def _connect_to(self, endpoint: EtcdEndpoint) -> _Connection:
        tls = self._settings.tls if endpoint.is_tls else None
        _, connection = await self._net.connect(
            endpoint.host, endpoint.port, lambda: _Connection(endpoint, self._closed), tls=tls
        )
        self._open[connection] = None
        return connection

    def _closed(self, connection: _Connection) -> None:
        self._open.pop(connection, None)
        for idle in self._idle.values():
            if connection in idle:
                idle.remove(connection)

    async def _check(self, connection: _Connection) -> None:
        """Raise CoordinationError for a server that is too old to be trusted with leases."""
        endpoint = connection.endpoint
        token = self._token
        status, body = await connection.exchange(gateway.STATUS, b"{}", token)
        if status != 200:
            raise self._failure(status, body, token)
        version, alarms = gateway.read_status(body)
        if _version(version) < VERSION_MIN:
            least = ".".join(str(number) for number in VERSION_MIN)
            raise CoordinationError(
                f"{endpoint} is etcd {version!r}, and {least} is the oldest release that can be used",
                retriable=False,
                hint="Older ones may end leases that are alive. Upgrade etcd.",
            )
        for alarm in alarms:
            self._warn.warning(f"{endpoint} {alarm}", "the coordination store has an alarm", at=endpoint, alarm=alarm)
        self._checked.add(endpoint)

    async def _authenticate(self) -> None:
        """Get a token for the credentials, unless there are none or the last token still holds."""
        if not self._settings.user or self._token:
            return
        request = gateway.authenticate_request(self._settings.user, self._settings.password)
        connection: _Connection | None = None
        try:
            async with asyncio.timeout(_AUTHENTICATE_S):
                connection = await self._connect(is_checked=False)
                status, body = await connection.exchange(gateway.AUTHENTICATE, request, "")
        except TimeoutError:
            self._fail_over()
            raise CoordinationError(f"etcd did not check the password within {_AUTHENTICATE_S:g} s") from None
        finally:
            if connection is not None:
                connection.close()
        if status != 200:
            raise gateway.read_failure(status, body)
        self._token = gateway.read_token(body)


class _UnreachableError(CoordinationError):
    """No endpoint takes a connection, or a second has passed: a second try would take too long."""


class _AskAgainError(CoordinationDeniedError):
    """The request was refused for a reason that is gone."""


class _Connection(asyncio.Protocol):
    """One connection to one endpoint. It carries one request at a time."""

    def __init__(self, endpoint: EtcdEndpoint, closed: Callable[[_Connection], None]) -> None:
        self.endpoint = endpoint
        self._closed = closed
        self._reader = AnswerReader(_ANSWER_BYTES_MAX)
        self._transport: asyncio.Transport
        self._take: Callable[[HttpPart], None] | None = None
        # Fails when the connection ends.
        self.lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._end("the connection was closed" if exc is None else str(exc))

    def data_received(self, data: bytes) -> None:
        try:
            for part in self._reader.receive(data):
                if self._take is None:
                    raise RemoteProtocolError("an answer came that nobody asked for")
                self._take(part)
        except (RemoteProtocolError, CoordinationError) as error:
            self._end(str(error))

    def close(self) -> None:
        self._end("the connection was closed here")

    def begin(self, path: str, request: bytes, token: str, take: Callable[[HttpPart], None]) -> None:
        """Send a request. Its answer is given to `take` in parts."""
        self._take = take
        host = f"{self.endpoint.host}:{self.endpoint.port}"
        self._transport.write(encode_request(path, host, request, token))

    async def exchange(self, path: str, request: bytes, token: str) -> tuple[int, bytes]:
        """Send a request and return the status and the body of its answer. Raise CoordinationError if none comes."""
        answered: asyncio.Future[tuple[int, bytes]] = asyncio.get_running_loop().create_future()
        pieces: list[bytes] = []

        def take(part: HttpPart) -> None:
            pieces.append(part.data)
            if part.is_last:
                self._take = None
                answered.set_result((part.status, b"".join(pieces)))

        self.begin(path, request, token, take)
        await asyncio.wait((answered, self.lost), return_when=asyncio.FIRST_COMPLETED)
        if not answered.done():
            await self.lost
        return await answered

    def _end(self, reason: str) -> None:
        if not self.lost.done():
            error = CoordinationError(f"{self.endpoint} gave no answer: {reason}")
            self.lost.set_exception(error)
            self.lost.exception()  # nobody need ask
            self._closed(self)
            self._transport.abort()


class _WatchStream:
    """The messages of a watch: JSON texts, one on a line."""

    def __init__(self, sink: WatchSink) -> None:
        self._sink = sink
        self._buffer = bytearray()
        loop = asyncio.get_running_loop()
        self.created: asyncio.Future[None] = loop.create_future()
        # Fails when the watch ends.
        self.ended: asyncio.Future[None] = loop.create_future()

    def receive(self, part: HttpPart) -> None:
        """Take a part of the answer. Raise CoordinationError for one that makes no sense."""
        self._buffer += part.data
        if part.status != 200:
            if part.is_last:
                self._end(gateway.read_failure(part.status, bytes(self._buffer)))
            return
        if len(self._buffer) > _ANSWER_BYTES_MAX:
            raise CoordinationError("a message of a watch is too large")
        *lines, rest = bytes(self._buffer).split(b"\n")
        self._buffer = bytearray(rest)
        for line in lines:
            if line.strip() and not self.ended.done():
                self._message(line)
        if part.is_last:
            self._end(CoordinationError("the coordination store ended a watch"))

    def _message(self, line: bytes) -> None:
        try:
            answer = gateway.read_watch(line)
        except CoordinationRefusedError as error:
            self._end(error)
            return
        if answer.canceled:
            reason = answer.cancel_reason or "the watch was cancelled"
            compacted = answer.compact_revision > 0
            self._end(RevisionCompactedError(reason) if compacted else CoordinationError(reason))
            return
        if answer.created and not self.created.done():
            self.created.set_result(None)
        events = answer.key_events()
        if events:
            # The header may be ahead of the events while a watch catches up.
            self._sink(WatchBatch(revision=max(event.key.mod_revision for event in events), events=events))

    def _end(self, error: CoordinationError | CoordinationRefusedError) -> None:
        if not self.ended.done():
            self.ended.set_exception(error)
            self.ended.exception()  # nobody need ask
        if not self.created.done():
            self.created.set_result(None)


def _version(text: str) -> tuple[int, ...]:
    """Return the three numbers of a version. Raise CoordinationError if there are none."""
    numbers = text.partition("-")[0].partition("+")[0].split(".")
    try:
        return tuple(parse_int(number, 0, 10**6) for number in numbers)
    except ValueError:
        raise CoordinationError(f"the coordination store says no version but {text[:40]!r}", retriable=False) from None


def _reason(error: OSError, endpoint: EtcdEndpoint) -> str:
    failure = tls_failure(error) if endpoint.is_tls else None
    return str(error) if failure is None else f"{failure[0]}. {failure[1]}"
