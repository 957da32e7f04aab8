"""The judge of a run: what the clients saw against what the brokers hold at the end. Pure.

What is promised depends on the flush of a broker. With SYNC_FLUSH an acknowledged message survives everything. With
ASYNC_FLUSH a power cut may take the tail of the log that was not synced; after such a cut queue offsets are given
again, so that what is said about offsets and about handling holds only for brokers without one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from aerobee.hot.log.record import Record
from aerobee.testing.checkers import Acked, Read, judge
from aerobee.testing.simulation.load import GROUPS, ORDERED_GROUP
from aerobee.testing.simulation.story import Handling, Place, SendAck, Story

# Broker clocks count whole milliseconds.
_ROUNDING_S: Final = 0.002
_SHOWN_MAX: Final = 5


class Stored(NamedTuple):
    """What one queue holds at the end."""

    broker: str
    topic: str
    queue_id: int
    records: Sequence[Record]

    @property
    def place(self) -> Place:
        return self.topic, self.broker, self.queue_id


class Judge:
    """Judges one story."""

    def __init__(self, story: Story, sync_flush: Mapping[str, bool]) -> None:
        self._story = story
        self._sync_flush = sync_flush
        # By how much each broker's wall clock was set forward.
        self.jumped_s: dict[str, float] = {}
        self.counts: Counter[str] = Counter()

    # --- what may be lost

    def _has_lost_tail(self, broker: str) -> bool:
        """Whether a power cut may have taken messages of this broker that were acknowledged."""
        return not self._sync_flush[broker] and any(
            outage.is_power_cut for outage in self._story.outages if outage.broker == broker
        )

    def _may_be_lost(self, ack: SendAck) -> bool:
        broker = ack.place[1]
        return not self._sync_flush[broker] and any(
            outage.is_power_cut and outage.at_s >= ack.at_s and outage.flushed <= ack.physical_offset
            for outage in self._story.outages
            if outage.broker == broker
        )

    def missing(self) -> Iterator[tuple[str, str]]:
        """Tell (group, body) of each message that a group must still handle."""
        story = self._story
        lost_tail = [broker for broker in self._sync_flush if self._has_lost_tail(broker)]
        # A retry may have been given to a broker that lost it.
        failed = {(one.group, one.body) for one in story.handlings if not one.is_done} if lost_tail else set()
        for ack in story.acks.values():
            if ack.place[1] not in lost_tail and story.decisions.get(ack.body, ack.place[0] != "tx"):
                for group in _groups_of(ack.place[0]):
                    if (group, ack.body) not in story.done and (group, ack.body) not in failed:
                        yield group, ack.body

    # --- the verdict

    def verdict(self, stored: Sequence[Stored], after_cut: Mapping[str, tuple[int, list[Record]]]) -> list[str]:
        """Return everything that is wrong, in words."""
        story = self._story
        problems = list(story.problems)
        for name, found in (
            ("not handled", [f"{body} by {group}" for group, body in self.missing()]),
            ("lost by the next power cut", self._lost(after_cut)),
            ("wrong in the queues", list(self._queues(stored))),
            ("stored twice", list(self._twice(stored))),
            ("out of order by key", list(self._by_key(stored))),
            ("readable and not committed", list(self._uncommitted(stored))),
            ("early", list(self._early())),
            ("out of order", list(self._out_of_order())),
            ("two consumers at once", list(self._overlaps())),
            ("offset ahead of the handlers", list(self._ahead())),
        ):
            problems += [f"{name}: {one}" for one in found[:_SHOWN_MAX]]
            if len(found) > _SHOWN_MAX:
                problems.append(f"{name}: and {len(found) - _SHOWN_MAX} more")
        self._count(stored)
        return problems

    def _count(self, stored: Sequence[Stored]) -> None:
        story = self._story
        self.counts.update(
            {
                "sent": len(story.sent),
                "acknowledged": len(story.acks),
                "refused": story.refusals,
                "stored": sum(len(one.records) for one in stored),
                "handled": len(story.done),
                "handler calls": len(story.handlings),
                "decisions": len(story.decisions),
                "offsets seen": len(story.progress),
            }
        )

    def _lost(self, after_cut: Mapping[str, tuple[int, list[Record]]]) -> list[str]:
        """Return the acknowledged messages that one more power cut would take from the log."""
        bodies: dict[str, set[bytes]] = {
            broker: {record.body for record in records} for broker, (_, records) in after_cut.items()
        }
        return [
            f"{ack.body} of {ack.place[1]} at {ack.physical_offset}"
            for ack in self._story.acks.values()
            if ack.body.encode() not in bodies[ack.place[1]]
            and not self._may_be_lost(ack)
            and (self._sync_flush[ack.place[1]] or ack.physical_offset < after_cut[ack.place[1]][0])
        ]

    def _queues(self, stored: Sequence[Stored]) -> Iterator[str]:
        """Judge place, order and holes of the messages that are stored where their producer was told."""
        producers: dict[str, int] = {}
        for topic in ("plain", "ordered"):
            acked = []
            for ack in self._story.acks.values():
                if self._is_exact(topic, ack.place):
                    sent = self._story.sent[ack.body]
                    number = producers.setdefault(sent.producer, len(producers))
                    acked.append(Acked(number, sent.sequence, *ack.place[1:], ack.queue_offset, ack.body))
            reads = [
                Read(one.broker, one.queue_id, record.queue_offset, record.body.decode())
                for one in stored
                if self._is_exact(topic, one.place)
                for record in one.records
            ]
            live = [
                Read(*call.place[1:], call.queue_offset, call.body)
                for call in self._story.handlings
                if self._is_exact(topic, call.place) and not call.is_retry
            ]
            verdict = judge(acked, reads, live)
            for name in ("lost", "misplaced", "holes", "changed"):
                for found in getattr(verdict, name):
                    yield f"{topic}: {name}: {found}"
            if topic == "ordered":
                for pair in verdict.reordered:
                    yield f"{topic}: reordered: {pair}"

    def _is_exact(self, topic: str, place: Place) -> bool:
        return place[0] == topic and not self._has_lost_tail(place[1])

    def _twice(self, stored: Sequence[Stored]) -> Iterator[str]:
        """Tell messages of idempotent producers and records that are stored more than once."""
        copies = Counter(record.body.decode() for one in stored for record in one.records)
        for body, count in copies.items():
            sent = self._story.sent.get(body)
            if count > 1 and sent is not None and sent.idempotent:
                yield f"{body} {count} times"
        for broker in self._sync_flush:
            places = Counter(record.physical_offset for one in stored if one.broker == broker for record in one.records)
            for offset, count in places.items():
                if count > 1:
                    yield f"the record at {offset} of {broker} {count} times"

    def _by_key(self, stored: Sequence[Stored]) -> Iterator[str]:
        """Tell messages of a key that an idempotent producer sent and that are stored behind later ones, and keys that
        moved between queues. A key may move once: when a client that began while a broker was away hears of it."""
        queues: dict[str, dict[int, Place]] = {}
        for one in stored:
            last: dict[str, int] = {}
            for record in one.records:
                sent = self._story.sent.get(record.body.decode())
                if sent is None or not sent.key or one.topic != "ordered":
                    continue
                queues.setdefault(sent.producer, {})[sent.sequence] = one.place
                if sent.idempotent:
                    if sent.sequence < last.get(sent.producer, -1):
                        yield f"{sent.body} behind number {last[sent.producer]} in {one.place}"
                    last[sent.producer] = max(sent.sequence, last.get(sent.producer, -1))
        for producer, places in queues.items():
            in_turn = [places[sequence] for sequence in sorted(places)]
            moves = sum(before != after for before, after in pairwise(in_turn))
            if moves > 1:
                yield f"the messages of {producer} moved {moves} times between {sorted(set(in_turn))}"

    def _uncommitted(self, stored: Sequence[Stored]) -> Iterator[str]:
        decisions = self._story.decisions
        for one in stored:
            if one.topic == "tx":
                for record in one.records:
                    if not decisions.get(record.body.decode(), False):
                        yield record.body.decode()

    def _early(self) -> Iterator[str]:
        for call in self._story.handlings:
            sent = self._story.sent[call.body]
            due_s = sent.began_s + sent.delay_s - self.jumped_s[call.place[1]] - _ROUNDING_S
            if sent.delay_s and call.began_s < due_s:
                yield f"{call.body} {due_s - call.began_s:.3f} s before its time"

    # --- queues as consumers go through them

    def _calls(self, group: str, *, is_ordered: bool = False) -> dict[Place, list[Handling]]:
        found: dict[Place, list[Handling]] = {}
        for call in self._story.handlings:
            if call.group == group and (is_ordered or not call.is_retry) and not self._has_lost_tail(call.place[1]):
                found.setdefault(call.place, []).append(call)
        return found

    def _out_of_order(self) -> Iterator[str]:
        """Tell messages of ordered queues that were handed out before all earlier ones were done."""
        for place, calls in self._calls(ORDERED_GROUP, is_ordered=True).items():
            done: set[int] = set()
            ended = sorted(
                (call.ended_s, call.queue_offset) for call in calls if call.is_done and call.ended_s is not None
            )
            at, frontier = 0, 0
            for call in calls:
                while at < len(ended) and ended[at][0] <= call.began_s:
                    done.add(ended[at][1])
                    at += 1
                while frontier in done:
                    frontier += 1
                if call.queue_offset > frontier:
                    yield f"{call.body} at {call.queue_offset} of {place} while {frontier} was not done"

    def _forgets_s(self, broker: str) -> float:
        """Return when a broker forgets its locks first."""
        return min((one.at_s for one in self._story.outages if one.broker == broker), default=float("inf"))

    def _overlaps(self) -> Iterator[str]:
        """Tell ordered queues that two members had at once, unless their broker had restarted and forgotten the
        lock."""
        for place, calls in self._calls(ORDERED_GROUP, is_ordered=True).items():
            forgets_s = self._forgets_s(place[1])
            for before, after in pairwise(calls):
                if before.process == after.process or after.began_s >= forgets_s or before.ended_s is None:
                    continue
                if after.began_s < before.ended_s:
                    yield f"{before.process} and {after.process} in {place} at {after.began_s:.3f}"

    def _ahead(self) -> Iterator[str]:
        """Tell offsets that brokers kept although a handler had not ended for everything below them."""
        for group in GROUPS:
            seen = [one for one in self._story.progress if one.group == group]
            for place, calls in self._calls(group, is_ordered=group == ORDERED_GROUP).items():
                ended = sorted((call.ended_s, call.queue_offset) for call in calls if call.ended_s is not None)
                ended_of: set[int] = set()
                at, frontier = 0, 0
                for one in seen:
                    if one.place != place:
                        continue
                    while at < len(ended) and ended[at][0] <= one.at_s:
                        ended_of.add(ended[at][1])
                        at += 1
                    while frontier in ended_of:
                        frontier += 1
                    if one.offset > frontier:
                        yield f"{group} at {one.offset} of {place}, and {frontier} was not handled at {one.at_s:.3f}"


def _groups_of(topic: str) -> Iterable[str]:
    return (group for group, topics in GROUPS.items() if topic in topics)
