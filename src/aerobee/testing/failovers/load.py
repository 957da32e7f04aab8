"""Two clients that send without a pause, and what they were told: the material of a round's verdict."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Final

from aerobee.client.producer import Producer
from aerobee.errors import AerobeeError
from aerobee.runtime.clock import SystemClock
from aerobee.runtime.tasks import Tasks

TOPIC: Final = "failovers"
QUEUES: Final = 4
_KEYS: Final = 8
_PLAIN: Final = 4
_PAUSE_S: Final = 0.01
_CLOCK = SystemClock()


@dataclass(slots=True)
class Told:
    """What the clients were told. A body is `key:number`; plain messages have keys of their own."""

    # Body -> when its send began and when it was acknowledged.
    acked: dict[str, tuple[float, float]] = field(default_factory=dict)
    failed: int = 0

    def first_after(self, at_s: float) -> float | None:
        """Return when the first message was acknowledged whose send began after a time."""
        return min((acked_s for began_s, acked_s in self.acked.values() if began_s >= at_s), default=None)

    def longest_gap(self, from_s: float, to_s: float) -> float:
        """Return the longest time without an acknowledgement in a stretch of time."""
        times = sorted(acked_s for _, acked_s in self.acked.values() if from_s <= acked_s <= to_s)
        return max(after - before for before, after in zip([from_s, *times], [*times, to_s], strict=True))


class FailoverLoad:
    """A client that sends by keys, in order, and one that sends plain messages."""

    def __init__(self, namesrv: str) -> None:
        self.told = Told()
        self._by_key, self._plain = (
            Producer(namesrv, group=name, instance_name=name, timeout=20.0, retries=50) for name in ("by-key", "plain")
        )
        self._tasks = Tasks()
        self._numbers: dict[str, int] = {}

    async def start(self) -> None:
        await self._by_key.start()
        await self._plain.start()
        for number in range(_KEYS):
            self._tasks.start(self._send(f"key{number}", self._by_key, by_key=True), name=f"key {number}")
        for number in range(_PLAIN):
            self._tasks.start(self._send(f"plain{number}", self._plain, by_key=False), name=f"plain {number}")

    async def _send(self, key: str, producer: Producer, *, by_key: bool) -> None:
        number = 0
        while True:
            body, began_s = f"{key}:{number}", _CLOCK.monotonic()
            try:
                if by_key:
                    await producer.send(TOPIC, body.encode(), sharding_key=key)
                else:
                    await producer.send(TOPIC, body.encode())
                self.told.acked[body] = (began_s, _CLOCK.monotonic())
            except AerobeeError:
                self.told.failed += 1
            number += 1
            await asyncio.sleep(_PAUSE_S)

    async def stop(self) -> None:
        await self._tasks.close()
        await self._by_key.close()
        await self._plain.close()
