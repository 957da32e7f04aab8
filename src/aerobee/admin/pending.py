"""Counts the messages that wait in a broker's own topics: delayed, timed and half messages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from aerobee.admin.cluster import runtime_info, settings_of
from aerobee.admin.connection import AdminConnection, KnownBroker, from_each
from aerobee.admin.values import Value
from aerobee.model.names import HALF_TOPIC, SCHEDULE_TOPIC, TIMER_TOPIC
from aerobee.model.numbers import int_or

# Keys of a broker's runtime info.
_COUNTED = {TIMER_TOPIC: "timerMessagePending", HALF_TOPIC: "transactionHalfPending"}


@dataclass(frozen=True, slots=True)
class Pending(Value):
    """The number of messages that wait on one broker, by delay level if they have one."""

    broker: str
    level: int | None
    # As in messageDelayLevel of the broker: 10s, 1m, 2h.
    delay: str | None
    pending: int


async def pending_of(
    admin: AdminConnection, brokers: Sequence[KnownBroker], topic: str
) -> tuple[tuple[Pending, ...], tuple[str, ...]]:
    """Return what waits in the topic on each broker, and the brokers that could not be asked.

    The result is empty for other topics. A broker updates the counts of levels when it saves its progress
    (flushDelayOffsetInterval).
    """
    if topic != SCHEDULE_TOPIC and topic not in _COUNTED:
        return (), ()

    async def ask(broker: KnownBroker) -> list[Pending]:
        info = await runtime_info(admin, broker.address)
        if topic == SCHEDULE_TOPIC:
            delays = (await settings_of(admin, broker)).get("messageDelayLevel", "").split()
            return levels_in(info, broker.name, delays)
        count = info.get(_COUNTED[topic])
        return [] if count is None else [Pending(broker.name, None, None, int_or(count, 0))]

    found, problems = await from_each(brokers, ask)
    return tuple(one for _, rows in found for one in rows), tuple(problems)


def levels_in(info: Mapping[str, str], broker: str, delays: Sequence[str]) -> list[Pending]:
    """Return every level in a broker's runtime info. Apache's broker tells its offsets only."""
    found = []
    for level, delay in enumerate(delays, 1):
        count = info.get(f"scheduleMessagePending_{level}")
        if count is None:
            done, _, end = info.get(f"scheduleMessageOffset_{level}", "0,0").partition(",")
            count = str(max(0, int_or(end, 0) - int_or(done, 0)))
        found.append(Pending(broker, level, delay, int_or(count, 0)))
    return found
