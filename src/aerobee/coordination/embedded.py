"""The embedded coordination store: a small server of the model, with the JSON paths of etcd's gateway.

`aerobee up --replicas` runs it, and so does the simulation. It keeps everything in one file, and answers only when what
it answers is on the disk. It is one process without copies of its own: where machines may be lost, use etcd.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, cast

import msgspec

from aerobee.coordination import gateway
from aerobee.coordination.endpoints import is_loopback
from aerobee.coordination.http import (
    HttpRequest,
    RequestReader,
    encode_answer,
    encode_chunk,
    encode_stream_head,
)
from aerobee.coordination.model import KeyModel
from aerobee.coordination.values import (
    CoordinationRefusedError,
    PutKey,
    ReadKeys,
    RevisionCompactedError,
    Txn,
    TxnOperation,
    TxnResult,
)
from aerobee.errors import ConfigError, RemoteProtocolError, StoreError
from aerobee.runtime.seams import Clock, Disk, Entropy, Listener, Net
from aerobee.runtime.tasks import Tasks
from aerobee.store.statefile import StateFile
from aerobee.telemetry.stdlog import RateLimitedLog, get_log

# What the server says it is. It follows the model of this release of etcd.
VERSION: Final = "3.6.16+aerobee"
# As in etcd: leases that are over end within this time.
_TICK_S: Final = 0.5
# A tick that is later than this tells that the process was stopped for a while.
_LATE_S: Final = 1.0

_log = get_log("coordination.embedded")


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddedLimits:
    """How much clients may use."""

    connections_max: int = 1000
    body_bytes_max: int = 512 * 1024
    # Events that wait for a client that does not read.
    unread_bytes_max: int = 4 * 1024 * 1024
    # A request must be complete within this time.
    request_s: float = 10.0


class EmbeddedCoordination:
    """A coordination store in this process. `start` opens it, `address` is where it listens."""

    def __init__(
        self,
        net: Net,
        disk: Disk,
        path: str,
        clock: Clock,
        entropy: Entropy,
        *,
        limits: EmbeddedLimits | None = None,
    ) -> None:
        self._net = net
        self._file = StateFile(disk, path)
        self._clock = clock
        self._entropy = entropy
        self.limits = limits or EmbeddedLimits()
        self.warn = RateLimitedLog(_log, clock)
        self._tasks = Tasks(self._task_failed)
        self._listener: Listener | None = None
        self._connections: dict[_Connection, None] = {}
        self.model = KeyModel()
        # Changes are numbered. An answer waits until the newest change that it could show is on the disk.
        self._changes = 0
        self._saved = 0
        self._held: list[tuple[int, Callable[[], None]]] = []
        # The newest revision on the disk. Watches see nothing beyond it.
        self._durable_revision = 0
        self.failure: OSError | StoreError | None = None

    @property
    def address(self) -> str:
        """Return host:port."""
        assert self._listener is not None
        return f"{self._listener.host}:{self._listener.port}"

    async def start(self, host: str = "127.0.0.1", port: int = 0, *, insecure: bool = False) -> None:
        """Load the file and listen. Raise ConfigError for a host beyond loopback, unless `insecure` allows it: there is
        no authentication. Raise StoreError if the file cannot be used."""
        if not insecure and not is_loopback(host):
            raise ConfigError(
                [f"the embedded coordination store has no authentication, so it does not listen on {host} (use etcd)"]
            )
        now = self._clock.monotonic()
        loaded = self._file.load(lambda content: KeyModel.load(content, now))
        if loaded is None:
            # The id tells one store from another, so that a client can notice an exchange.
            loaded = KeyModel(cluster=int.from_bytes(self._entropy.token(7)) + 1)
            self._file.save(loaded.save())
        self.model = loaded
        self._durable_revision = loaded.revision
        self._listener = await self._net.listen(host, port, lambda: _Connection(self))
        self._tasks.start(self._tick(), name="leases of the coordination store")

    async def stop(self) -> None:
        """Stop listening and close every connection."""
        await self._tasks.close()
        if self._listener is not None:
            self._listener.close()
        for connection in list(self._connections):
            connection.abort()
        if self._listener is not None:
            await self._listener.wait_closed()

    # --- what connections ask

    def admit(self, connection: _Connection) -> bool:
        """Return whether there is room for another connection."""
        if self.failure is not None or len(self._connections) >= self.limits.connections_max:
            self.warn.warning("room", "a connection is refused", connections=len(self._connections))
            return False
        self._connections[connection] = None
        return True

    def forget(self, connection: _Connection) -> None:
        """Take a connection off the list."""
        self._connections.pop(connection, None)

    def monotonic(self) -> float:
        return self._clock.monotonic()

    def handle(self, request: HttpRequest, answered: Callable[[int, bytes], None]) -> None:
        """Carry out a request and answer when everything that the answer could show is on the disk."""
        handler = _HANDLERS.get(request.path)
        status, body = 200, b""
        try:
            if request.method != "POST" or handler is None:
                raise CoordinationRefusedError(f"{request.path} is not served here", code=gateway.UNIMPLEMENTED)
            before = self.model.revision, self.model.leases()
            try:
                body = msgspec.json.encode(handler(self, request.body))
            finally:
                if before != (self.model.revision, self.model.leases()):
                    self._save()
        except CoordinationRefusedError as error:
            body = gateway.failure_answer(error)
            status = gateway.http_status(gateway.INTERNAL if error.code is None else error.code)
        if request.path in _AT_ONCE:
            answered(status, body)
        else:
            self._when_saved(lambda: answered(status, body))

    def events(self, wanted: ReadKeys, start_revision: int) -> tuple[int, bytes]:
        """Return what a watch is told now and the revision with which it goes on. There may be nothing to tell."""
        if start_revision > self._durable_revision:
            return start_revision, b""
        batch = self.model.since(wanted, start_revision, self._durable_revision)
        if not batch.events:
            return batch.revision + 1, b""
        result = {"header": self._header(batch.revision), "events": [gateway.event_fields(one) for one in batch.events]}
        return batch.revision + 1, msgspec.json.encode({"result": result}) + b"\n"

    def watch_created(self) -> bytes:
        """Return the first message of a watch."""
        return msgspec.json.encode({"result": {"header": self._header(), "created": True}}) + b"\n"

    def watch_cancelled(self) -> bytes:
        """Return the last message of a watch whose revisions are forgotten."""
        result = {
            "header": self._header(),
            "canceled": True,
            "compact_revision": str(self.model.compacted),
            "cancel_reason": "etcdserver: mvcc: required revision has been compacted",
        }
        return msgspec.json.encode({"result": result}) + b"\n"

    # --- saving

    def _save(self) -> None:
        self._changes += 1
        number, revision = self._changes, self.model.revision

        def saved(error: OSError | StoreError | None) -> None:
            if error is not None:
                self._fail(error)
            elif number > self._saved:
                self._saved, self._durable_revision = number, revision
                self._release()

        self._file.submit(self.model.save(), saved)

    def _when_saved(self, answer: Callable[[], None]) -> None:
        if self._saved == self._changes:
            answer()
        else:
            self._held.append((self._changes, answer))

    def _release(self) -> None:
        ready = [answer for number, answer in self._held if number <= self._saved]
        self._held = [one for one in self._held if one[0] > self._saved]
        for answer in ready:
            answer()
        for connection in list(self._connections):
            connection.push()

    def _fail(self, error: OSError | StoreError) -> None:
        """Answer nobody any more: what was asked may not be on the disk."""
        if self.failure is None:
            self.failure = error
            _log.error(
                "the coordination store cannot save and stops answering; mend the disk and restart", reason=error
            )
        for connection in list(self._connections):
            connection.abort()

    async def _tick(self) -> None:
        last = self._clock.monotonic()
        while True:
            await asyncio.sleep(_TICK_S)
            now = self._clock.monotonic()
            if now - last > _TICK_S + _LATE_S:
                self.model.prolong(now - last)
            last = now
            if self.model.expire(now):
                self._save()
            for connection in list(self._connections):
                connection.tick(now)

    def _task_failed(self, name: str, error: BaseException) -> None:
        _log.error("a task failed", task=name, exc_info=error)

    # --- handlers

    def _header(self, revision: int | None = None) -> dict[str, object]:
        return gateway.header_fields(self.model.cluster, self.model.revision if revision is None else revision)

    def _range(self, body: bytes) -> dict[str, object]:
        keys = self.model.read(gateway.read_form(gateway.RangeForm, body).wanted())
        return gateway.range_fields(self._header(), keys)

    def _txn(self, body: bytes) -> dict[str, object]:
        txn = gateway.read_form(gateway.TxnForm, body).txn()
        result = self.model.txn(txn)
        operations = txn.success if result.succeeded else txn.failure
        responses = self._responses(operations, result)
        return {"header": self._header(), "succeeded": result.succeeded, "responses": responses}

    def _responses(self, operations: tuple[TxnOperation, ...], result: TxnResult) -> list[dict[str, object]]:
        header, reads = self._header(), iter(result.reads)
        responses: list[dict[str, object]] = []
        for operation in operations:
            if isinstance(operation, ReadKeys):
                responses.append({"response_range": gateway.range_fields(header, next(reads))})
            else:
                name = "response_put" if isinstance(operation, PutKey) else "response_delete_range"
                responses.append({name: {"header": header}})
        return responses

    def _put(self, body: bytes) -> dict[str, object]:
        self.model.txn(Txn(success=(gateway.read_form(gateway.PutForm, body).operation(),)))
        return {"header": self._header()}

    def _compaction(self, body: bytes) -> dict[str, object]:
        self.model.compact(gateway.read_form(gateway.CompactionForm, body).revision)
        return {"header": self._header()}

    def _grant(self, body: bytes) -> dict[str, object]:
        form = gateway.read_form(gateway.LeaseForm, body)
        lease, ttl_s = self.model.grant(form.TTL, self._clock.monotonic(), form.ID)
        return {"header": self._header(), "ID": str(lease), "TTL": str(ttl_s)}

    def _keep_alive(self, body: bytes) -> dict[str, object]:
        lease = gateway.read_form(gateway.LeaseForm, body).ID
        ttl_s = self.model.keep_alive(lease, self._clock.monotonic())
        kept = {"TTL": str(ttl_s)} if ttl_s else {}
        return {"result": {"header": self._header(), "ID": str(lease), **kept}}

    def _revoke(self, body: bytes) -> dict[str, object]:
        self.model.revoke(gateway.read_form(gateway.LeaseForm, body).ID)
        return {"header": self._header()}

    def _status(self, body: bytes) -> dict[str, object]:
        gateway.read_form(gateway.NothingForm, body)
        return {"header": self._header(), "version": VERSION}


_HANDLERS: Final[dict[str, Callable[[EmbeddedCoordination, bytes], dict[str, object]]]] = {
    gateway.RANGE: EmbeddedCoordination._range,
    gateway.TXN: EmbeddedCoordination._txn,
    gateway.PUT: EmbeddedCoordination._put,
    gateway.COMPACTION: EmbeddedCoordination._compaction,
    gateway.GRANT: EmbeddedCoordination._grant,
    gateway.KEEP_ALIVE: EmbeddedCoordination._keep_alive,
    gateway.REVOKE: EmbeddedCoordination._revoke,
    gateway.STATUS: EmbeddedCoordination._status,
}
# These answers show nothing that a crash could take back, and a slow disk must not end a lease.
_AT_ONCE: Final = (gateway.KEEP_ALIVE, gateway.STATUS)


class _Connection(asyncio.Protocol):
    """One client. Its requests are answered one after the other. With a watch it serves nothing else."""

    def __init__(self, server: EmbeddedCoordination) -> None:
        self._server = server
        self._reader = RequestReader(server.limits.body_bytes_max)
        self._transport: asyncio.Transport
        self._is_busy = False
        self._begun_at: float | None = None
        # The range that is watched and the revision with which it goes on.
        self._watched: ReadKeys | None = None
        self._revision = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        if not self._server.admit(self):
            self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._server.forget(self)

    def data_received(self, data: bytes) -> None:
        try:
            self._reader.receive(data)
            self._work()
        except RemoteProtocolError as error:
            self._refuse(str(error))

    def abort(self) -> None:
        self._server.forget(self)
        self._transport.abort()

    def tick(self, now: float) -> None:
        """Close a connection whose request does not get complete."""
        if self._begun_at is not None and now - self._begun_at > self._server.limits.request_s:
            self._refuse("a request was begun and not finished")

    def push(self) -> None:
        """Tell a watch what is new."""
        if self._watched is None or self._transport.is_closing():
            return
        try:
            self._revision, message = self._server.events(self._watched, self._revision)
        except RevisionCompactedError:
            self._transport.write(encode_chunk(self._server.watch_cancelled()))
            self._transport.close()
            return
        if message:
            self._transport.write(encode_chunk(message))
            if self._transport.get_write_buffer_size() > self._server.limits.unread_bytes_max:
                self._refuse("a watch does not read its events")

    def _work(self) -> None:
        while not self._is_busy and not self._transport.is_closing():
            if self._watched is not None:
                if self._reader.has_begun:
                    raise RemoteProtocolError("a connection with a watch carries no other request")
                return
            request = self._reader.next()
            self._begun_at = self._server.monotonic() if request is None and self._reader.has_begun else None
            if request is None:
                return
            if request.path == gateway.WATCH:
                self._watch(request)
            else:
                self._is_busy = True
                self._server.handle(request, self._answered)

    def _answered(self, status: int, body: bytes) -> None:
        self._is_busy = False
        if self._transport.is_closing():
            return
        self._transport.write(encode_answer(status, body))
        if self._transport.get_write_buffer_size() > self._server.limits.unread_bytes_max:
            self._refuse("a client does not read its answers")
        elif self._reader.has_begun:
            asyncio.get_running_loop().call_soon(self.data_received, b"")

    def _watch(self, request: HttpRequest) -> None:
        try:
            form = gateway.read_form(gateway.WatchForm, request.body).create_request
        except CoordinationRefusedError as error:
            self._answered(400, gateway.failure_answer(error))
            return
        self._watched = ReadKeys(key=form.key, end=form.range_end)
        self._revision = form.start_revision or self._server.model.revision + 1
        self._transport.write(encode_stream_head() + encode_chunk(self._server.watch_created()))
        self.push()

    def _refuse(self, reason: str) -> None:
        self._server.warn.warning("refused", "a connection is closed", reason=reason)
        self.abort()
