"""The error of a read that would leave out a part of a topic, because a broker group is away."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from aerobee.errors import AerobeeError


@dataclass(frozen=True, slots=True, order=True)
class MissingPart:
    """The part of a topic that is on a broker group which cannot be asked now, and the reason."""

    topic: str
    broker: str
    reason: str

    def text(self) -> str:
        return f"a part of topic {self.topic} is on broker group {self.broker}, which {self.reason}"


class MissingBrokerError(AerobeeError):
    """A broker group that has a part of what is read is away."""

    def __init__(self, missing: Collection[MissingPart]) -> None:
        first = min(missing)
        more = f" ({len(missing) - 1} more parts are missing)" if len(missing) > 1 else ""
        super().__init__(
            f"{first.text()}{more}",
            retriable=True,
            hint=f"Start {first.broker}. Option onMissingBroker=skip reads without it. If the group is gone for good, "
            f"`aerobee cluster forget {first.broker}` makes the name servers forget it.",
        )
        self.missing = tuple(sorted(missing))
