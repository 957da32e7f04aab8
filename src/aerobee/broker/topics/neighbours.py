"""What a broker keeps of the other broker groups: the topics that each declared.

A name server forgets everything when it stops. A reader must still learn that a part of its topic is on a group that is
away, so every broker keeps what name servers told it, and tells it to a name server that does not know it. This module
owns `config/brokerGroups.json` (docs/formats/private.md).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from aerobee.broker.topics.catalog import Saved
from aerobee.errors import AerobeeError, StoreError
from aerobee.model.dialect import dumps, loads_object
from aerobee.model.fields import objects_of
from aerobee.net.client import RemotingClient
from aerobee.protocol.bodies.declarations import GroupDeclaration, GroupNews, KnownGroups, digest_of
from aerobee.protocol.codes import GROUPS_FIELD, PrivateRequestCode
from aerobee.protocol.command import Command, request
from aerobee.protocol.headers.declarations import KnownGroupsRequestHeader
from aerobee.runtime.seams import Disk
from aerobee.store.statefile import StateFile
from aerobee.telemetry.stdlog import get_log

FILE_NAME: Final = "brokerGroups.json"
GROUPS_MAX: Final = 1000
_KEY: Final = "groups"
# An answer has a part of the news only. This many parts are more than 1,000 groups need.
_ROUNDS_MAX: Final = 1000
# A name server that does not answer delays the registration by no more.
_TIMEOUT_S: Final = 3.0

_log = get_log("broker.registrar")


class Neighbours:
    """The declarations of the other groups, in memory and on disk. This is a machine with a file."""

    def __init__(self, disk: Disk, root: str, name: str) -> None:
        self._file = StateFile(disk, f"{root}/config/{FILE_NAME}")
        self._name = name
        self._groups: dict[str, GroupDeclaration] = {}

    def load(self) -> None:
        """Read what was saved. A file that cannot be read is begun anew: name servers tell it again."""
        try:
            found = self._file.load(_decode) or []
        except StoreError as error:
            _log.warning("what was known of other broker groups is lost", reason=error.message)
            found = []
        self._groups = {one.broker_name: one for one in found if one.broker_name != self._name}

    @property
    def digest(self) -> str:
        """Return a text that is equal where a name server knows the same of all other groups."""
        return digest_of(self.stamps.items())

    @property
    def stamps(self) -> dict[str, str]:
        return {name: one.stamp for name, one in self._groups.items()}

    def find(self, name: str) -> GroupDeclaration | None:
        return self._groups.get(name)

    def learn(self, news: Iterable[GroupDeclaration], saved: Saved) -> None:
        """Take what a name server knows better, and save it."""
        for one in news:
            if one.broker_name != self._name and (one.broker_name in self._groups or len(self._groups) < GROUPS_MAX):
                self._groups[one.broker_name] = one
        content = dumps({_KEY: [self._groups[name].to_json() for name in sorted(self._groups)]})
        self._file.submit(
            content, lambda error: saved(None if error is None else StoreError(f"{self._file.path}: {error}"))
        )


def _decode(content: bytes) -> list[GroupDeclaration]:
    return [GroupDeclaration.from_json(one) for one in objects_of(loads_object(content), _KEY)]


async def exchange(client: RemotingClient, namesrv: str, neighbours: Neighbours, own: str) -> None:
    """Learn what a name server knows of other groups, and tell it what it does not know. It may be Apache's."""
    for _ in range(_ROUNDS_MAX):
        body = KnownGroups(neighbours.stamps).encode()
        answer = await _ask(client, namesrv, PrivateRequestCode.KNOWN_GROUPS, body, own)
        found = GroupNews.decode(answer.body)
        if found.news:
            neighbours.learn(found.news, _saved)
        for name in found.wanted:
            known = neighbours.find(name)
            if known is not None:
                await _ask(client, namesrv, PrivateRequestCode.TELL_GROUP, known.encode(), own)
        if not found.news:
            return


async def _ask(client: RemotingClient, namesrv: str, code: int, body: bytes, own: str) -> Command:
    header = KnownGroupsRequestHeader(broker_name=own)
    return await client.ask(namesrv, request(code, header, body, opaque=client.next_opaque()), timeout_s=_TIMEOUT_S)


def _saved(error: StoreError | None) -> None:
    if error is not None:
        _log.warning("what is known of other broker groups is not saved", reason=error.message)


def differs(answer: Command, neighbours: Neighbours) -> bool:
    """Return whether a name server knows other things of the groups than this broker. Apache's tells nothing."""
    told = answer.ext.get(GROUPS_FIELD)
    return told is not None and told != neighbours.digest


async def exchange_quietly(client: RemotingClient, namesrv: str, neighbours: Neighbours, own: str) -> None:
    """Exchange what both know. A failure is logged and changes nothing: the next registration tries again."""
    try:
        await exchange(client, namesrv, neighbours, own)
    except AerobeeError as error:
        _log.debug("broker groups were not exchanged with a name server", namesrv=namesrv, reason=str(error))
