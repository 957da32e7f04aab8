"""What is to be stored about a half message."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, TypeVar

from aerobee.broker.transactions.halves import Half
from aerobee.hot.log.layout import TRANSACTION_COMMIT, TRANSACTION_ROLLBACK
from aerobee.hot.log.record import Draft

M = TypeVar("M")
# Called with (code, remark) when an END_TRANSACTION is over.
Ended = Callable[[int, str | None], None]


class EndKind(Enum):
    """What becomes of a half message."""

    COMMIT = TRANSACTION_COMMIT
    ROLLBACK = TRANSACTION_ROLLBACK
    ASK = "ask"
    REFRESH = "refresh"
    GIVE_UP = "give up"


# What the broker does by itself: nobody is told of a refusal.
OWN_KINDS: Final = (EndKind.ASK, EndKind.REFRESH, EndKind.GIVE_UP)


@dataclass(slots=True)
class EndAction:
    """Something to be stored about one half message."""

    half: Half
    kind: EndKind
    draft: Draft | None
    told: list[Ended] = field(default_factory=list)


# Members of a group that are tried for one question.
_MEMBERS_MAX: Final = 64


def member_who(following: Callable[[], M | None], may_see: Callable[[M], bool]) -> M | None:
    """Return the next member of a group who may see a message: whoever connects calls himself a member."""
    for _ in range(_MEMBERS_MAX):
        member = following()
        if member is None or may_see(member):
            return member
    return None
