"""The judge of a round: what producers were told, what brokers hold and what handlers did, by key. Pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from aerobee.model.numbers import parse_float, parse_int


class KeyRecord(NamedTuple):
    """One message in a queue, as it was read at the end."""

    key: str
    number: int
    queue: str
    offset: int


class HandlerEvent(NamedTuple):
    """The begin or the end of one call of a handler."""

    at_s: float
    is_end: bool
    key: str
    number: int


@dataclass
class OrderVerdict:
    """What a round showed. `lost` and the two lists of disorder must be empty."""

    acknowledged: int = 0
    stored: int = 0
    handled: int = 0
    repeats: int = 0
    lost: list[str] = field(default_factory=list)
    stored_out_of_order: list[str] = field(default_factory=list)
    handled_out_of_order: list[str] = field(default_factory=list)

    @property
    def is_sound(self) -> bool:
        return not (self.lost or self.stored_out_of_order or self.handled_out_of_order)


def parse_events(lines: Iterable[bytes]) -> list[HandlerEvent]:
    """Return the events of a consumer's file. The last line of one that was killed may be incomplete."""
    found: list[HandlerEvent] = []
    for line in lines:
        words = line.split()
        if line.endswith(b"\n") and len(words) == 4:
            found.append(HandlerEvent(parse_float(words[3]), words[0] == b"e", words[1].decode(), parse_int(words[2])))
    return found


def judge_order(
    acked: Mapping[str, Sequence[int]], stored: Iterable[KeyRecord], events: Iterable[HandlerEvent], once: Iterable[str]
) -> OrderVerdict:
    """Judge a round. `once` are the keys whose messages must be stored once; of the others the first copy counts."""
    verdict = OrderVerdict(acknowledged=sum(len(numbers) for numbers in acked.values()))
    by_key: dict[str, list[KeyRecord]] = defaultdict(list)
    for one in sorted(stored, key=lambda one: (one.queue, one.offset)):
        by_key[one.key].append(one)
        verdict.stored += 1
    exact = set(once)
    for key, records in by_key.items():
        if len({one.queue for one in records}) > 1:
            verdict.stored_out_of_order.append(f"{key} is in {sorted({one.queue for one in records})}")
        highest, seen = -1, set()
        for one in records:
            if one.number in seen:
                if key in exact:
                    verdict.stored_out_of_order.append(f"{key} {one.number} is stored twice")
                continue
            seen.add(one.number)
            if one.number < highest:
                verdict.stored_out_of_order.append(f"{key} {one.number} is stored behind {highest}")
            highest = max(highest, one.number)
    done = _handling(verdict, {key: sorted({one.number for one in records}) for key, records in by_key.items()}, events)
    for key, numbers in acked.items():
        held = {one.number for one in by_key.get(key, ())}
        for number in numbers:
            if number not in held:
                verdict.lost.append(f"{key} {number} is not stored")
            elif number not in done[key]:
                verdict.lost.append(f"{key} {number} was not handled")
    return verdict


def _handling(
    verdict: OrderVerdict, stored: Mapping[str, Sequence[int]], events: Iterable[HandlerEvent]
) -> defaultdict[str, set[int]]:
    """Judge the calls of handlers: one may begin only after all earlier messages of its key were done once."""
    done: defaultdict[str, set[int]] = defaultdict(set)
    # How many of the stored numbers of a key are done without a gap.
    reached: Counter[str] = Counter()
    # At the same moment an end counts before a begin.
    for event in sorted(events, key=lambda event: (event.at_s, not event.is_end)):
        numbers = stored.get(event.key, ())
        if event.is_end:
            verdict.repeats += event.number in done[event.key]
            done[event.key].add(event.number)
            verdict.handled += 1
            while reached[event.key] < len(numbers) and numbers[reached[event.key]] in done[event.key]:
                reached[event.key] += 1
        elif reached[event.key] < len(numbers) and numbers[reached[event.key]] < event.number:
            missing = numbers[reached[event.key]]
            verdict.handled_out_of_order.append(f"{event.key} {event.number} began before {missing} was done")
    return done
