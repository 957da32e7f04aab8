"""The exceptions of Aerobee. The table that links them to wire codes is in `codes.py`.

AerobeeError
├── ProtocolError            bytes break the protocol; the connection is closed
│   ├── LocalProtocolError   this side built them
│   └── RemoteProtocolError  the peer sent them
├── InvalidArgumentError     the caller's value is not allowed (name, size, option)
├── TransportError           a connection could not be made, was closed or was reset
│   ├── NotConnectedError    no connection could be made: nothing was sent
│   │   └── ConnectTimeoutError  also a RequestTimeoutError
│   ├── RequestTimeoutError  also a TimeoutError
│   └── CoordinationError    the store where replicas agree on a master gave no usable answer
├── BrokerError              a server answered with a refusal; carries its wire code (see codes.py)
├── StoreError               a problem of the log on disk
│   ├── CorruptLogError      file, physical offset, reason
│   ├── DiskFullError        a write was refused for lack of space; reads go on
│   ├── StoreFencedError     a sync failed: nothing is acknowledged until a restart
│   ├── LogDisagreementError a master's log is not the continuation of this one
│   ├── WithheldError        the group of replicas does not allow the write now; carries its wire code
│   ├── StoreLockedError     another process uses the directory
│   └── StoreClosedError
└── ConfigError              all problems of a configuration
"""

from __future__ import annotations

from collections.abc import Sequence


class AerobeeError(Exception):
    """Base of all errors. `hint` says what to do next; `retriable` whether the call may succeed elsewhere or later."""

    retriable = False
    refresh_route = False

    def __init__(
        self,
        message: str,
        *,
        code: int | None = None,
        broker: str | None = None,
        retriable: bool | None = None,
        hint: str | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.code = code
        self.broker = broker
        self.hint = hint
        if retriable is not None:
            self.retriable = retriable

    def __str__(self) -> str:
        text = self.message
        if self.code is not None:
            text += f" (code {self.code})"
        if self.broker:
            text += f" at {self.broker}"
        if self.hint:
            text += f". {self.hint}"
        return text


class ProtocolError(AerobeeError):
    """Bytes break the protocol."""


class LocalProtocolError(ProtocolError):
    """This side built something that the protocol cannot carry."""


class RemoteProtocolError(ProtocolError):
    """The peer sent something that breaks the protocol."""


class InvalidArgumentError(AerobeeError, ValueError):
    """The caller passed a value that is not allowed."""


class TransportError(AerobeeError):
    """The connection could not be made or was lost."""

    retriable = True


class NotConnectedError(TransportError):
    """No connection could be made, so nothing was sent. A second try cannot do anything twice."""


class RequestTimeoutError(TransportError, TimeoutError):
    """No answer came in time. The request may or may not have been carried out."""


class CoordinationError(TransportError):
    """The coordination store could not be reached in time, or its answer cannot be used. A change that was asked for
    may or may not have been carried out."""


class ConnectTimeoutError(NotConnectedError, RequestTimeoutError):
    """No connection was made in time, so nothing was sent."""


def is_cut(error: TransportError) -> bool:
    """Return whether the server accepted the connection and closed it without an answer.

    A server that enforces TLS does so to a plain connection.
    """
    return not isinstance(error, NotConnectedError | RequestTimeoutError)


class BrokerError(AerobeeError):
    """A server refused a request. `code` is its wire code."""


class StoreError(AerobeeError):
    """A problem of the log on disk."""


class WrongStoreError(StoreError):
    """A directory is no store for this version: a backup, or of a kind or of a version that is not read here."""

    # The exit code of commands, that of wrong settings: starting again would not help.
    exit_code = 2


class StoreDamagedError(StoreError):
    """Files of a store cannot be used. Starting again would not help."""


class CorruptLogError(StoreDamagedError):
    """Bytes in a store file cannot be what was written."""

    def __init__(self, path: str, offset: int, reason: str) -> None:
        super().__init__(f"{path}: byte {offset}: {reason}", hint="run: aerobee store verify DIR")
        self.path = path
        self.offset = offset
        self.reason = reason


class DiskFullError(StoreError):
    """There is no space for the write. Reads go on; writes resume when there is space again."""

    retriable = True


class StoreFencedError(StoreError):
    """A sync failed: the page cache can no longer be trusted, so nothing is acknowledged until a restart."""


class LogDisagreementError(StoreError):
    """The bytes of a master are not the continuation of this log. Following it any further would mix two logs."""


class WithheldError(StoreError):
    """The group of replicas does not allow the write: this replica does not lead, or too few are in sync."""

    retriable = True


class StoreLockedError(StoreError):
    """Another process holds the store directory."""


class StoreClosedError(StoreError):
    """The store is closed."""


class ConfigError(AerobeeError):
    """The problems found in a configuration, all at once."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems = list(problems)
