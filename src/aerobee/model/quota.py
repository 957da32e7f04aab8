"""Quotas as they are written: how many messages and bytes a second a user, an address or a topic may send.

A quota is written `user:alice bytes=1000000 messages=500`; several are separated by semicolons. The kinds are `user`
(who signed, where clients log in), `address` (the host of the connection, where they do not) and `topic`.
The name `*` stands for each user, address or topic that has no quota of its own.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from aerobee.errors import InvalidArgumentError
from aerobee.model.numbers import NumberError, parse_int

RATE_MAX: Final = 1 << 50
QUOTAS_MAX: Final = 1000
EVERY: Final = "*"
_NAME_MAX: Final = 255


class QuotaKind(enum.Enum):
    """Who is held to a quota."""

    user = "user"
    address = "address"
    topic = "topic"


@dataclass(frozen=True, slots=True)
class Quota:
    """Rates a second; 0 stands for any."""

    kind: QuotaKind
    name: str
    bytes_s: int = 0
    messages_s: int = 0

    def __str__(self) -> str:
        rates = (("bytes", self.bytes_s), ("messages", self.messages_s))
        return " ".join([f"{self.kind.name}:{self.name}", *(f"{word}={rate}" for word, rate in rates if rate)])


def parse_quotas(text: str) -> tuple[Quota, ...]:
    """Return the quotas of a text. Raise InvalidArgumentError that says what is wrong with which one."""
    found: dict[tuple[QuotaKind, str], Quota] = {}
    for part in filter(None, (one.strip() for one in text.split(";"))):
        quota = _parse(part)
        if (quota.kind, quota.name) in found:
            raise InvalidArgumentError(f"{quota.kind.name}:{quota.name} has two quotas")
        found[quota.kind, quota.name] = quota
    if len(found) > QUOTAS_MAX:
        raise InvalidArgumentError(f"{len(found)} quotas, {QUOTAS_MAX} are the most")
    return tuple(found.values())


def parse_who(text: str) -> tuple[QuotaKind, str]:
    """Return whom a text like `user:alice` names. Raise InvalidArgumentError where it names nobody."""
    kind, colon, name = text.partition(":")
    if not colon or kind not in QuotaKind.__members__ or not name or set(name) & set("; \t\r\n"):
        raise InvalidArgumentError(f"{text[:_NAME_MAX]!r} is not user:NAME, address:HOST or topic:NAME")
    if len(name) > _NAME_MAX:
        raise InvalidArgumentError(f"the name {name[:20]!r}... of a quota is longer than {_NAME_MAX} characters")
    if EVERY in name and name != EVERY:
        # It would hold for nobody, and nobody would notice.
        raise InvalidArgumentError(f"{text!r}: `*` stands for every {kind} by itself, not for a part of a name")
    return QuotaKind[kind], name


def _parse(part: str) -> Quota:
    who, *rates = part.split()
    kind, name = parse_who(who)
    values = {"bytes": 0, "messages": 0}
    for rate in rates:
        word, equals, number = rate.partition("=")
        if not equals or word not in values:
            raise InvalidArgumentError(f"{who}: {rate[:40]!r} is not bytes=N or messages=N")
        try:
            values[word] = parse_int(number, 1, RATE_MAX)
        except NumberError as error:
            raise InvalidArgumentError(f"{who}: {word}: {error}") from error
    if not any(values.values()):
        raise InvalidArgumentError(f"{who} has neither bytes=N nor messages=N")
    return Quota(kind, name, values["bytes"], values["messages"])


def render_quotas(quotas: Iterable[Quota]) -> str:
    """Return the text that `parse_quotas` reads."""
    return "; ".join(str(one) for one in sorted(quotas, key=lambda one: (one.kind.name, one.name)))
