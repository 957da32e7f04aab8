"""The short way of a signed send or pull through the guard: one scan, one comparison, one look into what is known.

It only lets pass what the guard has let pass before, for the same user, address, topic and group, since users or
rights changed last, and what is signed well again. Everything else goes to the guard, which decides and answers.
"""

from __future__ import annotations

from typing import Final

from aerobee.hot.wire.frame import Frame
from aerobee.hot.wire.signed import SigningKey, scan_signed
from aerobee.net.channel import Channel
from aerobee.net.server import FastHandler

_PASSES_MAX: Final = 10_000
_TOPICS_MAX: Final = 10_000


class Pass:
    """What a user may do from one address, as far as it was decided: send to topics, pull topics as groups."""

    def __init__(self, key: SigningKey) -> None:
        self.key = key
        self.sends: set[str] = set()
        self.pulls: dict[str, set[str]] = {}


class PassBook:
    """Passes by user and address. `clear` voids all of them."""

    def __init__(self) -> None:
        self._passes: dict[str, dict[str, Pass]] = {}
        self._count = 0

    def find(self, name: str, source: str) -> Pass | None:
        """Return the pass of a user from an address."""
        found = self._passes.get(name)
        return None if found is None else found.get(source)

    def _made(self, name: str, secret: str, source: str) -> Pass:
        found = self.find(name, source)
        if found is None:
            if self._count >= _PASSES_MAX:
                self.clear()
            found = Pass(SigningKey(secret.encode()))
            self._passes.setdefault(name, {})[source] = found
            self._count += 1
        return found

    def allow_send(self, name: str, secret: str, source: str, topic: str) -> None:
        """Note that a user may send to a topic."""
        sends = self._made(name, secret, source).sends
        if len(sends) >= _TOPICS_MAX:
            sends.clear()
        sends.add(topic)

    def allow_pull(self, name: str, secret: str, source: str, topic: str, group: str) -> None:
        """Note that a user may pull a topic as a member of a group."""
        pulls = self._made(name, secret, source).pulls
        groups = pulls.get(topic)
        if groups is None:
            if len(pulls) >= _TOPICS_MAX:
                pulls.clear()
            groups = pulls[topic] = set()
        if len(groups) >= _TOPICS_MAX:
            groups.clear()
        groups.add(group)

    def clear(self) -> None:
        """Forget everything: users or rights have changed."""
        self._passes.clear()
        self._count = 0


class SendGate:
    """Stands before the handler of a send. `slowly` is the guard's way."""

    def __init__(self, book: PassBook, handler: FastHandler, slowly: FastHandler, second_version: bool) -> None:
        self._book = book
        self._handler = handler
        self._slowly = slowly
        self._second_version = second_version

    def on_frame(self, channel: Channel, frame: Frame) -> None:
        """Serve a send that is signed well by a user who may send there."""
        signed = scan_signed(frame, self._second_version)
        if signed is not None and signed.access_key == channel.user:
            found = self._book.find(signed.access_key, channel.source)
            if found is not None and signed.topic in found.sends and signed.is_by(found.key, frame):
                self._handler(channel, frame)
                return
        self._slowly(channel, frame)


class PullGate:
    """Stands before the handler of a pull."""

    def __init__(self, book: PassBook, handler: FastHandler, slowly: FastHandler) -> None:
        self._book = book
        self._handler = handler
        self._slowly = slowly

    def on_frame(self, channel: Channel, frame: Frame) -> None:
        """Serve a pull that is signed well by a user who may read there."""
        signed = scan_signed(frame, False)
        if signed is not None and signed.access_key == channel.user:
            found = self._book.find(signed.access_key, channel.source)
            if found is not None:
                groups = found.pulls.get(signed.topic)
                if groups is not None and signed.group in groups and signed.is_by(found.key, frame):
                    self._handler(channel, frame)
                    return
        self._slowly(channel, frame)
