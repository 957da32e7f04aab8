"""Who gets in: checks names and secrets at the cluster or in the file, and keeps the connections of each user."""

from __future__ import annotations

import asyncio
import hashlib
from collections import OrderedDict
from dataclasses import replace
from typing import Final

from aerobee.admin.connection import AdminConnection
from aerobee.admin.users import SUPER, user_at
from aerobee.client.core import Credentials
from aerobee.dashboard.collector import Collector
from aerobee.dashboard.connection import CHANGE_S, PAGE_S, PageConnection, remoting_client
from aerobee.dashboard.options import DashboardOptions, Mode
from aerobee.dashboard.registry import InThread
from aerobee.dashboard.security import Person, Role
from aerobee.dashboard.series import SERIES_MAX, SERIES_OF_A_USER
from aerobee.dashboard.usersfile import UsersFile
from aerobee.errors import AerobeeError, BrokerError, ConfigError, InvalidArgumentError, TransportError
from aerobee.errors.codes import NoPermissionError, SystemFailureError
from aerobee.net.client import RemotingClient
from aerobee.protocol.codes import RequestCode
from aerobee.runtime.seams import Clock
from aerobee.runtime.smallfile import read_small
from aerobee.runtime.workers import Workers
from aerobee.telemetry.stdlog import get_log

COLLECTORS_MAX: Final = 16
_LOOK_S: Final = 0.5
# Apache's brokers check who asks before they check what for: this refusal says that the signature was good.
_KNOWN_WITHOUT_RIGHT: Final = "has no permission"
_log = get_log("dashboard")


class Gate:
    """Knows the mode, checks who logs in, and gives each person a collector and connections."""

    def __init__(self, options: DashboardOptions, clock: Clock) -> None:
        self._options = options
        self._clock = clock
        self._workers = Workers(2, "dashboard")
        self._clients: dict[str, RemotingClient] = {}
        self._collectors: OrderedDict[str, Collector] = OrderedDict()
        self._file = None if options.users is None else UsersFile(options.users, read_small)
        self.mode = Mode.file if self._file is not None else Mode.cluster

    async def open(self) -> None:
        """Find out whether the cluster has users. Raise AerobeeError if it tells nothing for long."""
        until_s = self._clock.monotonic() + self._options.patience_s
        while self._file is None:
            try:
                self.mode = Mode.cluster if await self._has_users() else Mode.open
                break
            except (TransportError, SystemFailureError):
                # Apache's broker fails so for some seconds after its start, while a statistic has no sample.
                if self._clock.monotonic() > until_s:
                    raise
                await asyncio.sleep(_LOOK_S)
        if self.mode is not Mode.cluster or self._options.credentials is not None:
            self._collectors[""] = self._new_collector(self._options.credentials, is_own=True)

    async def _has_users(self) -> bool:
        """Tell whether the cluster refuses who does not sign. Raise TransportError if no broker answers."""
        async with AdminConnection(self._options.namesrv, timeout_s=CHANGE_S / 3, tls=self._options.tls) as admin:
            try:
                brokers = await admin.brokers()
                if not brokers:
                    raise TransportError("no broker is registered at the name server")
                asked = (admin.ask(one.address, RequestCode.GET_BROKER_RUNTIME_INFO) for one in brokers)
                answers = await asyncio.gather(*asked, return_exceptions=True)
            except NoPermissionError:
                return True
            failures = [one for one in answers if isinstance(one, BaseException)]
            if any(isinstance(one, NoPermissionError) for one in failures):
                return True
            for one in failures:
                if not isinstance(one, TransportError) or len(failures) == len(answers):
                    raise one
            return False

    async def close(self) -> None:
        for collector in self._collectors.values():
            await collector.close()
        for client in self._clients.values():
            await client.close()
        self._workers.close()

    @property
    def in_thread(self) -> InThread:
        """What calls a function in another thread, so that files do not hold up the loop."""
        return self._workers.run

    async def check(self, name: str, secret: str) -> Person | None:
        """Return the person with this name and secret, or None. Raise TransportError if nobody can tell."""
        if self._file is not None:
            self._file.load()
            person = await self._workers.run(self._file.check, name, secret)
        else:
            try:
                person = await self._check_at_cluster(name, secret)
            except BrokerError as error:
                _log.warning("a login could not be checked", reason=error)
                person = None
        if person is not None and self._options.read_only:
            person = replace(person, role=Role.viewer)
        return person

    def person_still(self, person: Person) -> Person | None:
        """Return a person with the role that the file has now, or None if the file no longer has the person."""
        if self._file is None:
            return person
        role = self._file.role_of(person.name)
        if role is None:
            return None
        return replace(person, role=Role.viewer if self._options.read_only else role)

    async def withdrawn(self, people: set[Person]) -> set[str]:
        """Return the names of people whom the cluster no longer knows as it did when they logged in.

        What a Super user sees is read by the dashboard's own user, and the audit logs are files here. So the cluster
        does not refuse it to somebody who was one. The file of people is read again, too.
        """
        if self._file is not None:
            try:
                self._file.load()
            except ConfigError as error:
                _log.warning("the file of people cannot be read: the old one stays", reason=error)
            return set()
        gone = set()
        for person in people:
            if person.secret is None:
                continue
            try:
                found = await self._check_at_cluster(person.name, person.secret)
            except (AerobeeError, TimeoutError):
                continue
            if found is None or found.is_super is not person.is_super:
                gone.add(person.name)
        return gone

    async def _check_at_cluster(self, name: str, secret: str) -> Person | None:
        try:
            credentials = Credentials(name, secret)
        except InvalidArgumentError:
            return None
        client = remoting_client(credentials, self._options.tls)
        admin = AdminConnection(self._options.namesrv, timeout_s=CHANGE_S / 3, credentials=credentials, client=client)
        try:
            return await self._known(admin, name, secret)
        except NoPermissionError as error:
            if _KNOWN_WITHOUT_RIGHT in error.message.lower():
                return Person(name, Role.operator, secret)
            return None
        finally:
            await admin.close()

    async def _known(self, admin: AdminConnection, name: str, secret: str) -> Person | None:
        """Return what the first broker that answers knows of a user."""
        failure: AerobeeError = TransportError("no broker is registered at the name server")
        silent = {address for one in self._collectors.values() for address in one.snapshot.silent}
        for broker in sorted(await admin.brokers(), key=lambda one: one.address in silent):
            try:
                user = await user_at(admin, broker.address, name)
            except TransportError as error:
                failure = error
                continue
            if user is None:
                return None
            is_super = user.user_type == SUPER
            return Person(name, Role.admin if is_super else Role.operator, secret, is_super)
        raise failure

    # -- what each person sees through

    def _identity(self, person: Person) -> str:
        """Return the key of who signs for a person; nothing for the dashboard itself."""
        if person.secret is None:
            return ""
        return hashlib.sha256(f"{person.name}\0{person.secret}".encode()).hexdigest()

    def _credentials(self, person: Person) -> Credentials | None:
        return self._options.credentials if person.secret is None else Credentials(person.name, person.secret)

    def collector(self, person: Person) -> Collector:
        """Return the collector of a person. One is started if there is none.

        Super users see what the dashboard's own user sees, where it has one: both see everything.
        """
        key = self._identity(person)
        if person.is_super and self._options.credentials is not None:
            key = ""
        found = self._collectors.get(key)
        if found is None:
            credentials = self._options.credentials if key == "" else self._credentials(person)
            found = self._collectors[key] = self._new_collector(credentials, is_own=key == "")
        self._collectors.move_to_end(key)
        return found

    def _new_collector(self, credentials: Credentials | None, *, is_own: bool) -> Collector:
        options = self._options
        admin = AdminConnection(
            options.namesrv, timeout_s=CHANGE_S / 3, credentials=credentials,
            client=remoting_client(credentials, options.tls),
        )  # fmt: skip
        series = SERIES_MAX if is_own else SERIES_OF_A_USER
        collector = Collector(admin, self._clock, self._workers, options.step_s, series)
        collector.start()
        return collector

    def connection(self, person: Person, *, changes: bool) -> PageConnection:
        """Return the connection of one page or one change. It must not be closed: others share its sockets."""
        key, credentials = self._identity(person), self._credentials(person)
        client = self._clients.get(key)
        if client is None:
            client = self._clients[key] = remoting_client(credentials, self._options.tls)
        silent = {} if changes else self.collector(person).snapshot.silent
        limit_s = CHANGE_S if changes else PAGE_S
        return PageConnection(self._options.namesrv, client, credentials=credentials, limit_s=limit_s, silent=silent)

    async def tidy(self, people: set[Person]) -> None:
        """Close what belongs to people who are gone, and the collectors that were used least if there are many."""
        present = {"", *map(self._identity, people)}
        gone = [key for key in self._collectors if key not in present]
        gone += [key for key in self._collectors if key and key not in gone][
            : max(0, len(self._collectors) - COLLECTORS_MAX)
        ]
        for key in gone:
            await self._collectors.pop(key).close()
        for key in [one for one in self._clients if one not in present]:
            await self._clients.pop(key).close()
