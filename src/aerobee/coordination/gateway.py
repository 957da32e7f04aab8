"""The JSON of etcd's gateway: requests and answers, both as a client and as a server see them.

Bytes are base64. Numbers of 64 bits are written as texts and read as texts or numbers. A field that is absent is zero.
etcd: api/etcdserverpb/rpc.proto, whose names these are.
"""

from __future__ import annotations

from typing import Final, TypeVar

import msgspec

from aerobee.coordination.values import (
    CompareRelation,
    CompareTarget,
    CoordinationDeniedError,
    CoordinationFullError,
    CoordinationRefusedError,
    DeleteKeys,
    KeyCompare,
    KeyEvent,
    KeyValue,
    LeaseMissingError,
    PutKey,
    ReadKeys,
    RevisionCompactedError,
    Txn,
    TxnOperation,
    TxnResult,
)
from aerobee.errors import CoordinationError

RANGE: Final = "/v3/kv/range"
TXN: Final = "/v3/kv/txn"
PUT: Final = "/v3/kv/put"
COMPACTION: Final = "/v3/kv/compaction"
GRANT: Final = "/v3/lease/grant"
KEEP_ALIVE: Final = "/v3/lease/keepalive"
REVOKE: Final = "/v3/lease/revoke"
WATCH: Final = "/v3/watch"
AUTHENTICATE: Final = "/v3/auth/authenticate"
STATUS: Final = "/v3/maintenance/status"

# Numbers of gRPC for reasons, and the HTTP status that the gateway gives them.
_INVALID_ARGUMENT: Final = 3
_NOT_FOUND: Final = 5
_PERMISSION_DENIED: Final = 7
_RESOURCE_EXHAUSTED: Final = 8
_OUT_OF_RANGE: Final = 11
UNIMPLEMENTED: Final = 12
INTERNAL: Final = 13
UNAVAILABLE: Final = 14
UNAUTHENTICATED: Final = 16
_STATUS: Final = {3: 400, 5: 404, 7: 401, 8: 429, 9: 400, 11: 400, 12: 404, 13: 500, 14: 503, 16: 401}
# After these reasons nobody knows whether the request was carried out: a leader may have gone while it was.
_UNKNOWN_AFTER: Final = frozenset((1, 2, 4, 10, 13, 14, 15))


class _Header(msgspec.Struct, frozen=True):
    cluster_id: int = 0
    revision: int = 0


class _Kv(msgspec.Struct, frozen=True):
    key: bytes = b""
    value: bytes = b""
    create_revision: int = 0
    mod_revision: int = 0
    version: int = 0
    lease: int = 0


class _RangeAnswer(msgspec.Struct):
    header: _Header = _Header()
    kvs: list[_Kv] = []


class _OperationAnswer(msgspec.Struct):
    response_range: _RangeAnswer | None = None


class _TxnAnswer(msgspec.Struct):
    header: _Header = _Header()
    succeeded: bool = False
    responses: list[_OperationAnswer] = []


class _LeaseAnswer(msgspec.Struct):
    header: _Header = _Header()
    ID: int = 0
    TTL: int = 0


class _KeptAnswer(msgspec.Struct):
    result: _LeaseAnswer


class _Status(msgspec.Struct):
    version: str = ""
    errors: list[str] = []


class _Token(msgspec.Struct):
    token: str = ""


class _Failure(msgspec.Struct):
    code: int = 2
    message: str = ""


class _EventForm(msgspec.Struct):
    kv: _Kv = _Kv()
    type: str = "PUT"


class WatchAnswer(msgspec.Struct):
    """One message of a watch."""

    header: _Header = _Header()
    created: bool = False
    canceled: bool = False
    compact_revision: int = 0
    cancel_reason: str = ""
    events: list[_EventForm] = []

    def key_events(self) -> tuple[KeyEvent, ...]:
        """Return the events as values."""
        return tuple(KeyEvent(key=_key_value(event.kv), is_deletion=event.type == "DELETE") for event in self.events)


class _WatchMessage(msgspec.Struct):
    result: WatchAnswer | None = None
    error: _Failure | None = None


# --- requests as a server reads them: what it does not know is refused


class RangeForm(msgspec.Struct, forbid_unknown_fields=True):
    """A range as it is asked for."""

    key: bytes = b""
    range_end: bytes = b""
    serializable: bool = False

    def wanted(self) -> ReadKeys:
        return ReadKeys(key=self.key, end=self.range_end)


class PutForm(msgspec.Struct, forbid_unknown_fields=True):
    """A put as it is asked for."""

    key: bytes = b""
    value: bytes = b""
    lease: int = 0

    def operation(self) -> PutKey:
        return PutKey(key=self.key, value=self.value, lease=self.lease)


class _DeleteForm(msgspec.Struct, forbid_unknown_fields=True):
    key: bytes = b""
    range_end: bytes = b""


class _OperationForm(msgspec.Struct, forbid_unknown_fields=True):
    request_put: PutForm | None = None
    request_range: RangeForm | None = None
    request_delete_range: _DeleteForm | None = None

    def operation(self) -> TxnOperation:
        if self.request_put is not None:
            return self.request_put.operation()
        if self.request_range is not None:
            return self.request_range.wanted()
        if self.request_delete_range is not None:
            return DeleteKeys(key=self.request_delete_range.key, end=self.request_delete_range.range_end)
        raise CoordinationRefusedError("an operation is empty", code=_INVALID_ARGUMENT)


class _CompareForm(msgspec.Struct, forbid_unknown_fields=True):
    key: bytes = b""
    result: CompareRelation = CompareRelation.EQUAL
    target: CompareTarget = CompareTarget.VERSION
    version: int = 0
    create_revision: int = 0
    mod_revision: int = 0
    value: bytes = b""
    lease: int = 0

    def compare(self) -> KeyCompare:
        operand: int | bytes = getattr(self, _OPERANDS[self.target])
        return KeyCompare(key=self.key, target=self.target, relation=self.result, operand=operand)


class TxnForm(msgspec.Struct, forbid_unknown_fields=True):
    """A transaction as it is asked for."""

    compare: list[_CompareForm] = []
    success: list[_OperationForm] = []
    failure: list[_OperationForm] = []

    def txn(self) -> Txn:
        return Txn(
            compares=tuple(one.compare() for one in self.compare),
            success=tuple(one.operation() for one in self.success),
            failure=tuple(one.operation() for one in self.failure),
        )


class LeaseForm(msgspec.Struct, forbid_unknown_fields=True):
    """A request about a lease."""

    ID: int = 0
    TTL: int = 0


class CompactionForm(msgspec.Struct, forbid_unknown_fields=True):
    """A compaction as it is asked for."""

    revision: int = 0
    physical: bool = False


class _WatchCreateForm(msgspec.Struct, forbid_unknown_fields=True):
    key: bytes = b""
    range_end: bytes = b""
    start_revision: int = 0
    progress_notify: bool = False


class WatchForm(msgspec.Struct, forbid_unknown_fields=True):
    """A watch as it is asked for."""

    create_request: _WatchCreateForm


class NothingForm(msgspec.Struct, forbid_unknown_fields=True):
    """A request without fields."""


_OPERANDS: Final = {
    CompareTarget.VERSION: "version",
    CompareTarget.CREATE: "create_revision",
    CompareTarget.MOD: "mod_revision",
    CompareTarget.VALUE: "value",
    CompareTarget.LEASE: "lease",
}

Form = TypeVar("Form")


def read_form(kind: type[Form], body: bytes) -> Form:
    """Return a request. Raise CoordinationRefusedError for what makes no sense or is not known here."""
    try:
        return msgspec.json.decode(body or b"{}", type=kind, strict=False)
    except (ValueError, RecursionError) as error:
        raise CoordinationRefusedError(f"the request is not understood: {error}", code=_INVALID_ARGUMENT) from None


def _read(kind: type[Form], body: bytes) -> Form:
    """Return an answer. Raise CoordinationError for one that makes no sense."""
    try:
        return msgspec.json.decode(body, type=kind, strict=False)
    except (ValueError, RecursionError) as error:
        raise CoordinationError(f"the coordination store's answer is not understood: {error}") from None


# --- what a client asks


def range_request(wanted: ReadKeys) -> bytes:
    return msgspec.json.encode(_range_fields(wanted))


def txn_request(txn: Txn) -> bytes:
    compares = [
        {
            "key": one.key,
            "result": one.relation,
            "target": one.target,
            _OPERANDS[one.target]: one.operand if isinstance(one.operand, bytes) else str(one.operand),
        }
        for one in txn.compares
    ]
    branches = {
        name: [_operation(one) for one in ops] for name, ops in (("success", txn.success), ("failure", txn.failure))
    }
    return msgspec.json.encode({"compare": compares, **branches})


def grant_request(ttl_s: int) -> bytes:
    return msgspec.json.encode({"TTL": str(ttl_s)})


def lease_request(lease: int) -> bytes:
    return msgspec.json.encode({"ID": str(lease)})


def watch_request(wanted: ReadKeys, start_revision: int) -> bytes:
    form = {"key": wanted.key, "range_end": wanted.end, "start_revision": str(start_revision), "progress_notify": True}
    return msgspec.json.encode({"create_request": form})


def authenticate_request(user: str, password: str) -> bytes:
    return msgspec.json.encode({"name": user, "password": password})


def _range_fields(wanted: ReadKeys) -> dict[str, object]:
    fields: dict[str, object] = {"key": wanted.key}
    if wanted.end:
        fields["range_end"] = wanted.end
    return fields


def _operation(operation: TxnOperation) -> dict[str, object]:
    match operation:
        case PutKey():
            fields: dict[str, object] = {"key": operation.key, "value": operation.value}
            if operation.lease:
                fields["lease"] = str(operation.lease)
            return {"request_put": fields}
        case DeleteKeys():
            return {"request_delete_range": {"key": operation.key, "range_end": operation.end}}
        case ReadKeys():
            return {"request_range": _range_fields(operation)}


# --- what a client reads


def read_range(body: bytes) -> tuple[int, tuple[KeyValue, ...]]:
    """Return the store's revision and the keys."""
    answer = _read(_RangeAnswer, body)
    return answer.header.revision, tuple(_key_value(kv) for kv in answer.kvs)


def read_txn(body: bytes) -> TxnResult:
    answer = _read(_TxnAnswer, body)
    reads = tuple(
        tuple(_key_value(kv) for kv in one.response_range.kvs)
        for one in answer.responses
        if one.response_range is not None
    )
    return TxnResult(revision=answer.header.revision, succeeded=answer.succeeded, reads=reads)


def read_grant(body: bytes) -> tuple[int, int]:
    """Return the id of a lease and its time to live."""
    answer = _read(_LeaseAnswer, body)
    if not answer.ID or answer.TTL < 1:
        raise CoordinationError("the coordination store granted a lease without id or time")
    return answer.ID, answer.TTL


def read_kept(body: bytes) -> int:
    """Return the time to live of a lease that was kept alive, or 0 if it has ended."""
    return max(0, _read(_KeptAnswer, body).result.TTL)


def read_status(body: bytes) -> tuple[str, tuple[str, ...]]:
    """Return the version of the server, and its alarms."""
    answer = _read(_Status, body)
    return answer.version, tuple(answer.errors)


def read_token(body: bytes) -> str:
    token = _read(_Token, body).token
    if not token or not token.isascii() or not token.isprintable():
        raise CoordinationError("the coordination store gave no usable token")
    return token


def read_watch(line: bytes) -> WatchAnswer:
    """Return one message of a watch. Raise the error that it holds."""
    message = _read(_WatchMessage, line)
    if message.error is not None:
        raise _error(message.error)
    if message.result is None:
        raise CoordinationError("a message of a watch is empty")
    return message.result


def read_failure(status: int, body: bytes) -> CoordinationError | CoordinationRefusedError:
    """Return the error that an answer other than 200 stands for."""
    try:
        return _error(msgspec.json.decode(body, type=_Failure))
    except (ValueError, RecursionError):
        text = body[:200].decode(errors="replace").strip()
        return CoordinationError(f"the coordination store answered HTTP {status}: {text}")


def _error(failure: _Failure) -> CoordinationError | CoordinationRefusedError:
    code, message = failure.code, failure.message
    if code in _UNKNOWN_AFTER:
        return CoordinationError(f"the coordination store failed: {message}", code=code)
    kind = CoordinationRefusedError
    if code == _NOT_FOUND and "lease" in message:
        kind = LeaseMissingError
    elif code == _OUT_OF_RANGE and "compacted" in message:
        kind = RevisionCompactedError
    elif code == _RESOURCE_EXHAUSTED and "space" in message:
        kind = CoordinationFullError
    elif code in (UNAUTHENTICATED, _PERMISSION_DENIED) or "authentication failed" in message or "user name" in message:
        kind = CoordinationDeniedError
    return kind(f"the coordination store refused: {message}", code=code)


def _key_value(kv: _Kv) -> KeyValue:
    return KeyValue(
        key=kv.key,
        value=kv.value,
        create_revision=kv.create_revision,
        mod_revision=kv.mod_revision,
        version=kv.version,
        lease=kv.lease,
    )


# --- what a server answers


def http_status(code: int) -> int:
    """Return the HTTP status of a reason."""
    return _STATUS.get(code, 500)


def header_fields(cluster: int, revision: int) -> dict[str, object]:
    """Return the header that every answer has."""
    return {"cluster_id": str(cluster), "member_id": "1", "revision": str(revision), "raft_term": "1"}


def key_fields(kv: KeyValue) -> dict[str, object]:
    """Return a key as answers show it. Zeros are absent."""
    numbers = {
        "create_revision": kv.create_revision,
        "mod_revision": kv.mod_revision,
        "version": kv.version,
        "lease": kv.lease,
    }
    fields: dict[str, object] = {"key": kv.key, **{name: str(number) for name, number in numbers.items() if number}}
    if kv.value:
        fields["value"] = kv.value
    return fields


def range_fields(header: dict[str, object], keys: tuple[KeyValue, ...]) -> dict[str, object]:
    return {"header": header, "kvs": [key_fields(kv) for kv in keys], "count": str(len(keys))}


def event_fields(event: KeyEvent) -> dict[str, object]:
    kv = key_fields(event.key)
    return {"type": "DELETE", "kv": kv} if event.is_deletion else {"kv": kv}


def failure_answer(error: CoordinationRefusedError) -> bytes:
    code = INTERNAL if error.code is None else error.code
    return msgspec.json.encode({"code": code, "message": f"etcdserver: {error.message}", "details": []})
