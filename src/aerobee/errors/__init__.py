"""Exceptions, by who must act. The table that links them to wire codes is in `codes.py`.

AerobeeError
├── ProtocolError            bytes that break the protocol; the connection is closed
│   ├── LocalProtocolError   we built it wrong
│   └── RemoteProtocolError  the peer did
├── InvalidArgumentError     the caller's value is not allowed (name, size, option)
├── TransportError           connect, closed, reset
│   ├── NotConnectedError    no connection could be made: nothing was sent
│   └── RequestTimeoutError  also a TimeoutError
├── BrokerError              a server answered with a refusal; carries its wire code (see codes.py)
├── StoreError               the log on disk
│   ├── CorruptLogError      file, physical offset, reason
│   ├── DiskFullError        refused for lack of space; readers go on
│   ├── StoreFencedError     a sync failed: nothing is acknowledged until a restart
│   ├── StoreLockedError     another process has the directory
│   └── StoreClosedError
└── ConfigError              every problem of a configuration at once
"""

from __future__ import annotations

from collections.abc import Sequence


class AerobeeError(Exception):
    """Base of all. `hint` says what to do next; `retriable` whether the same call may succeed elsewhere or later."""

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
    """Bytes that break the protocol."""


class LocalProtocolError(ProtocolError):
    """We built something the protocol cannot carry."""


class RemoteProtocolError(ProtocolError):
    """The peer sent something that is not the protocol."""


class InvalidArgumentError(AerobeeError, ValueError):
    """A value of the caller's that is not allowed."""


class TransportError(AerobeeError):
    """The connection could not be made or was lost."""

    retriable = True


class NotConnectedError(TransportError):
    """No connection could be made, so nothing was sent: trying again cannot do anything twice."""


class RequestTimeoutError(TransportError, TimeoutError):
    """No answer in time; the request may or may not have been carried out."""


def is_cut(error: TransportError) -> bool:
    """Whether the server took the connection and closed it unanswered, as one that enforces TLS does to plain ones."""
    return not isinstance(error, NotConnectedError | RequestTimeoutError)


class BrokerError(AerobeeError):
    """A server refused; `code` is its wire code."""


class StoreError(AerobeeError):
    """The log on disk."""


class CorruptLogError(StoreError):
    """Bytes in a store file that cannot be what was written."""

    def __init__(self, path: str, offset: int, reason: str) -> None:
        super().__init__(f"{path}: byte {offset}: {reason}", hint="run: aerobee store verify DIR")
        self.path = path
        self.offset = offset
        self.reason = reason


class DiskFullError(StoreError):
    """No space for the write. Readers go on; writing resumes when space returns."""

    retriable = True


class StoreFencedError(StoreError):
    """fsync failed once: what the page cache holds can no longer be trusted, so nothing is acknowledged."""


class StoreLockedError(StoreError):
    """Another process holds the store directory."""


class StoreClosedError(StoreError):
    """The store is closed."""


class ConfigError(AerobeeError):
    """Every problem found in a configuration, together."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems = list(problems)
