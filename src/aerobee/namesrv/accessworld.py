"""What the table of rights asks of a name server, which knows no messages."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from aerobee.config.properties import decode_text, parse_properties
from aerobee.config.setting import to_properties
from aerobee.namesrv.state import NamesrvState
from aerobee.protocol.codes import RequestCode
from aerobee.protocol.command import Command

_R: Final = RequestCode


class NamesrvWorld:
    """The eyes of the guard in one name server."""

    def __init__(self, cluster: str, state: NamesrvState) -> None:
        self.cluster = cluster
        self._state = state

    def has_topic(self, name: str) -> bool:
        """Return False: no row of the name server's table asks."""
        return False

    def has_group(self, name: str) -> bool:
        """Return False: a name server knows no groups."""
        return False

    def topic_at(self, physical_offset: int, told: Callable[[str | None], None]) -> None:
        """Tell None: there are no messages here."""
        told(None)

    def recalled_topic(self, handle: str) -> str | None:
        """Return None: there are no messages here."""
        return None

    def batch_topics(self, query: str) -> Sequence[str]:
        """Return none: there are no batches here."""
        return ()

    def described(self, command: Command) -> object:
        """Return what a request is about, as it is now."""
        ext = command.ext
        if command.code in (_R.PUT_KV_CONFIG, _R.DELETE_KV_CONFIG):
            space, key = ext.get("namespace", ""), ext.get("key", "")
            return {f"{space}/{key}"[:500]: (self._state.kv.get(space, key) or "")[:500] or None}
        if command.code == _R.UPDATE_NAMESRV_CONFIG:
            now = to_properties(self._state.config)
            return {key: now[key] for key in parse_properties(decode_text(command.body)) if key in now}
        names = ("brokerName", "topic", "clusterName")
        return {name: ext[name][:500] for name in names if name in ext} or None
