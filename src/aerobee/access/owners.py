"""Whose batches those of a query are: the first user's who may send rows of it.

The names are kept in a file, so that a restart does not give a query to somebody else, and in the journal of a
replicated group, so that a new master does not either. Who begins very many queries forgets the own ones first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, Protocol, TypeVar

from aerobee.errors import StoreError
from aerobee.model.dialect import dumps, loads_object
from aerobee.telemetry.stdlog import get_log

T = TypeVar("T")
QUERIES_MAX: Final = 10_000
# Longer names are refused by whoever serves them (aerobee.broker.batches.limits).
QUERY_LENGTH_MAX: Final = 256
_log = get_log("access")


class OwnersFile(Protocol):
    """The file of the names, replaced as a whole."""

    def load(self, decode: Callable[[bytes], T]) -> T | None: ...
    def submit(self, content: bytes, done: Callable[[Exception | None], None]) -> None: ...


class QueryOwners:
    """The user of each query."""

    def __init__(self, file: OwnersFile | None = None) -> None:
        self._file = file
        self._owners: dict[str, str] = {}
        # By user, oldest first.
        self._queries: dict[str, dict[str, None]] = {}
        self._is_new = False
        # Differs after every change.
        self.version = 0
        # Called when a query has a new user, before anything else is done about it.
        self.on_new: Callable[[], object] = lambda: None

    @property
    def table(self) -> Mapping[str, str]:
        """Return the users by query."""
        return self._owners

    def get(self, query: str) -> str | None:
        """Return the user of a query, or None."""
        return self._owners.get(query)

    def put(self, query: str, user: str) -> None:
        """Note the user of a query that has none, or whose user is gone."""
        if len(query) > QUERY_LENGTH_MAX:
            return
        self._forget(query)
        if len(self._owners) >= QUERIES_MAX:
            most = max(self._queries.values(), key=len)
            self._forget(next(iter(most)))
        self._add(query, user)
        self.on_new()

    def learn(self, query: str, user: str | None) -> None:
        """Take over what the master of the group says: the user of a query, or None for nobody."""
        self._forget(query)
        if user is not None:
            self._add(query, user)

    def _add(self, query: str, user: str) -> None:
        self._owners[query] = user
        self._queries.setdefault(user, {})[query] = None
        self._changed()

    def _changed(self) -> None:
        self._is_new = True
        self.version += 1

    def _forget(self, query: str) -> None:
        user = self._owners.pop(query, None)
        if user is None:
            return
        mine = self._queries[user]
        del mine[query]
        if not mine:
            del self._queries[user]
        self._changed()

    # -- kept

    def load(self) -> None:
        """Take up what the file holds. One that cannot be read is left alone until something changes."""
        try:
            found = None if self._file is None else self._file.load(_owners_in)
        except StoreError as error:
            _log.error("whose batches are whose is lost: each query is its next user's", reason=str(error))
            return
        for query, user in (found or {}).items():
            self.put(query, user)
        self._is_new = False

    def save(self) -> None:
        """Keep what is new. Call it about once a second."""
        if self._is_new and self._file is not None:
            self._is_new = False
            self._file.submit(dumps({"owners": self._owners}), self._saved)

    def _saved(self, error: Exception | None) -> None:
        if error is not None:
            self._is_new = True
            _log.error("whose batches are whose cannot be saved", reason=str(error))


def _owners_in(content: bytes) -> dict[str, str]:
    found = loads_object(content)["owners"]
    if not isinstance(found, dict) or not all(isinstance(user, str) for user in found.values()):
        raise ValueError("owners are users by queries")
    return {str(query): str(user) for query, user in found.items()}
