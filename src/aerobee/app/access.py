"""The root of access control in one server process: users and rights, their files, the guard and the audit log."""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import json
from collections.abc import Callable, Mapping
from typing import Any, Final

from aerobee.access.audit import Audit
from aerobee.access.config import AccessConfig
from aerobee.access.directory import UserDirectory
from aerobee.access.door import Access
from aerobee.access.files import LOOK_INTERVAL_S, AccessFiles
from aerobee.access.guard import Guard
from aerobee.access.owners import QueryOwners
from aerobee.access.plainacl import imported, read_plain_acl
from aerobee.access.refusal import AccessRefusedError
from aerobee.access.requests import ACCESS_ROWS, AccessRequests
from aerobee.access.rows import AccessRow, AccessWorld
from aerobee.access.users import User, UserType
from aerobee.broker.config import BrokerConfig
from aerobee.errors import ConfigError
from aerobee.net.client import Sign
from aerobee.net.server import FastHandler, Handler
from aerobee.protocol.signing import signer
from aerobee.runtime.logfile import LogFile, rolling_writer
from aerobee.runtime.machine import read_whole
from aerobee.runtime.paths import join
from aerobee.runtime.seams import Clock, Disk
from aerobee.store.statefile import StateFile
from aerobee.telemetry.stdlog import get_log

DEFAULT_CLUSTER: Final = "DefaultCluster"
_log = get_log("access")
_audit_log = get_log("audit")


def inner_signer(config: AccessConfig) -> Sign | None:
    """Return what signs a server's own requests, or None if no credentials are set."""
    found = config.inner_credentials()
    return None if found is None else signer(found.access_key, found.secret_key)


def group_secret(access: AccessConfig, config: BrokerConfig) -> bytes:
    """Return what the replicas of a group prove to each other, nothing if no inner credentials are set.

    It is made of the inner secret, which all servers of a cluster have, and of the group's name: a proof for one group
    is none for another, and no signature.
    """
    found = access.inner_credentials()
    if found is None:
        return b""
    purpose = f"aerobee replicas of {config.cluster_name}/{config.broker_name}"
    return hmac.digest(found.secret_key.encode(), purpose.encode(), "sha256")


def audit_writer(config: AccessConfig, stack: contextlib.ExitStack) -> Callable[[dict[str, Any]], None]:
    """Return what writes events of the audit log: into its file, which `stack` closes, or into the server's log."""
    path = config.audit_log_path
    if not path:
        return lambda event: _audit_log.info(
            str(event.get("event")), **{name: value for name, value in event.items() if name not in _OF_LOG}
        )
    write = stack.enter_context(rolling_writer(LogFile(path), private=True))
    return lambda event: write(json.dumps(event, ensure_ascii=False, separators=(",", ":")) + "\n")


class AccessRoot:
    """Access control of one server. There is none where `authenticationEnabled` is off."""

    def __init__(
        self,
        config: AccessConfig,
        disk: Disk,
        clock: Clock,
        directory: str,
        cluster: str,
        rows: Mapping[int, AccessRow],
    ) -> None:
        """`directory` is where users.json and acls.json are, `cluster` what policies call the cluster."""
        self._config = config
        self._clock = clock
        self._stack = contextlib.ExitStack()
        self.audit = Audit(clock, audit_writer(config, self._stack))
        self.access = Access(config, config.auth_cluster_name or cluster, self.audit)
        self.files = AccessFiles(
            self.access, _state_file(disk, directory, "users.json"), _state_file(disk, directory, "acls.json"), clock
        )
        self.owners = QueryOwners(_state_file(disk, directory, "batchOwners.json"))
        self._rows = {**rows, **ACCESS_ROWS}
        self._requests = AccessRequests(self.access, self.files, self.audit)
        self._guard: Guard | None = None
        self._looked_s = 0.0
        self._looking: asyncio.Task[bool] | None = None

    def open(self) -> None:
        """Read users and rights, and make those that the settings name. Raise StoreError for unreadable files."""
        self.files.load()
        self.owners.load()
        tables = self.access.tables
        for user, key in (
            (self._config.initial_user(), "initAuthenticationUser"),
            (self._inner_user(), "innerClientAuthenticationCredentials"),
        ):
            if user is not None:
                tables = _with_first(tables, user, key)
        tables = self._migrated(tables)
        if tables != self.access.tables:
            self.files.save(tables)
        if not any(user.is_super and user.is_enabled for user in tables.users.values()):
            _log.warning("there is no Super user, so nobody can change users: set initAuthenticationUser")
        if self._config.inner_credentials() is None:
            _log.warning(
                "innerClientAuthenticationCredentials is not set: this server cannot prove to others that check "
                "signatures who it is"
            )

    def _migrated(self, tables: UserDirectory) -> UserDirectory:
        """Return the tables with the accounts of a plain_acl.yml. Raise ConfigError where it is not understood."""
        path = self._config.acl_file
        if not self._config.migrate_auth_from_v1_enabled:
            return tables
        try:
            found = read_plain_acl(read_whole(path).decode())
        except (AccessRefusedError, UnicodeDecodeError) as error:
            raise ConfigError([f"aclFile {path}: {error}"]) from None
        except OSError as error:
            raise ConfigError([f"aclFile {path}: {error.strerror or error}"]) from error
        for sentence in found.dropped:
            _log.warning("an address list of plain_acl.yml has no counterpart", what=sentence)
        tables, kept = imported(tables, found)
        _log.info("plain_acl.yml was read", accounts=len(found.accounts), kept_as_they_are=",".join(kept) or "none")
        return tables

    def _inner_user(self) -> User | None:
        found = self._config.inner_credentials()
        return None if found is None else User(found.access_key, found.secret_key, UserType.SUPER)

    def guard(self, world: AccessWorld) -> Guard:
        """Return the guard of the server that `world` looks at. A broker that was built anew gets a new world."""
        if self._guard is None:
            self._guard = Guard(self.access, self._rows, world, self.audit, self._clock, self.owners)
        else:
            self._guard.look_at(world)
        return self._guard

    def table(self) -> dict[int, Handler]:
        """Return an empty table of handlers for the server."""
        return Guard.empty_table(lambda: self._guard)

    def guarded(
        self, world: AccessWorld, handlers: Mapping[int, Handler], fast: Mapping[int, FastHandler]
    ) -> tuple[dict[int, Handler], dict[int, FastHandler]]:
        """Return what to serve in place of these tables."""
        guard = self.guard(world)
        return guard.handlers({**handlers, **self._requests.handlers()}), guard.fast(fast)

    def tick(self, now_s: float) -> None:
        """Read the files again if they have changed. Call it often."""
        if now_s >= self._looked_s + LOOK_INTERVAL_S:
            self._looked_s = now_s
            if self._looking is None or self._looking.done():
                self._looking = asyncio.get_running_loop().create_task(self.files.look())
            self.owners.save()

    def close(self) -> None:
        """Stop what is under way, and close the audit log."""
        if self._looking is not None:
            self._looking.cancel()
        self._requests.close()
        self._stack.close()


_OF_LOG: Final = frozenset(("event", "time"))


def _state_file(disk: Disk, directory: str, name: str) -> StateFile:
    # No backup: it would hold rights that were withdrawn, and secrets that were changed.
    return StateFile(disk, join(directory, name), keep_backup=False, sealed=False)


def _with_first(tables: UserDirectory, user: User, key: str) -> UserDirectory:
    """Return the tables with a user of the settings. One that exists is never changed."""
    found = tables.users.get(user.name)
    if found is None:
        _log.info("a Super user was made", user=user.name, setting=key)
        return tables.with_user(user)
    if found.password != user.password or not (found.is_super and found.is_enabled):
        _log.warning(
            "this user exists with another password, type or status, and was not changed", user=user.name, setting=key
        )
    return tables
