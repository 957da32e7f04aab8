"""TLS and users of a `LocalCluster(secure=True)`: the files that `aerobee up --secure` makes, and users for tests."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from aerobee.admin.acls import Right, grant
from aerobee.admin.connection import AdminConnection
from aerobee.admin.everyserver import Changed
from aerobee.admin.users import UserChanges, create_user
from aerobee.app.secure import Secured, secure
from aerobee.client.core import PROFILES_FILE_VARIABLE as FILE_VARIABLE
from aerobee.client.core import SECRET_KEY_VARIABLE, ClientOptions, Credentials, read_profile
from aerobee.errors import AerobeeError
from aerobee.runtime.clock import SystemClock
from aerobee.testing.secrets import made_secret

_LOOK_S: Final = 0.05


class ClusterSecurity:
    """The authority, the certificates and the administrator of one cluster."""

    def __init__(self, data: Path, host: str) -> None:
        self._made: Secured = secure(str(data), host, None, SystemClock(), made_secret)
        facts = self._made.facts
        self.ca = facts.ca
        self.credentials_file = facts.credentials
        known = read_profile(facts.profile, {FILE_VARIABLE: facts.credentials})
        self.admin = Credentials(facts.profile, known[SECRET_KEY_VARIABLE])

    @property
    def settings(self) -> Mapping[str, str]:
        """Return the settings of every server."""
        return self._made.settings

    def options_of(self, who: Credentials) -> ClientOptions:
        """Return the options with which a client connects as somebody."""
        tls = ssl.create_default_context(cafile=self.ca)
        return {"access_key": who.access_key, "secret_key": who.secret_key, "tls": tls}

    async def add_user(self, namesrv: str, name: str, rights: Mapping[str, str], brokers: int) -> Credentials:
        """Make a user on every server. `rights` are actions by resource: `{"Topic:orders": "Pub,Sub"}`.

        It waits until so many brokers are registered: one that comes later would not know the user.
        """
        who = Credentials(name, made_secret())
        wanted = [Right(name, resource, tuple(actions.split(","))) for resource, actions in rights.items()]
        tls = ssl.create_default_context(cafile=self.ca)
        async with AdminConnection(namesrv, credentials=self.admin, tls=tls) as admin:
            while len(await admin.brokers()) < brokers:  # noqa: ASYNC110 - nobody tells
                await asyncio.sleep(_LOOK_S)
            _require(await create_user(admin, name, UserChanges(who.secret_key)))
            if wanted:
                _require(await grant(admin, wanted))
        return who


def _require(changed: Changed) -> None:
    if not changed.is_complete:
        said = "; ".join(f"{one.server.address}: {one.words}" for one in changed.answers if one.words)
        raise AerobeeError(f"a server refused the user or its rights: {said}")
