"""What happened to the messages of a run, as the clients saw it: the material of the judge. Values and lists only."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from aerobee.model.ids import decode_offset_message_id
from aerobee.testing.loop import Trace

Place = tuple[str, str, int]  # topic, broker, queue id


class SentMessage(NamedTuple):
    """A message that a producer began to send. `body` is its identity."""

    body: str
    topic: str
    producer: str
    began_s: float
    delay_s: float = 0.0
    idempotent: bool = False
    # Messages of one key are sent one after the other.
    key: str = ""
    sequence: int = 0


class SendAck(NamedTuple):
    """An acknowledgement. For delayed and half messages the place is that of the broker's own copy."""

    body: str
    place: Place
    queue_offset: int
    physical_offset: int
    at_s: float


@dataclass(slots=True)
class Handling:
    """One call of a handler. `ended_s` is None while it runs, and for good where its process was killed."""

    group: str
    process: str
    body: str
    place: Place
    queue_offset: int
    began_s: float
    # A copy from the group's retry topic: its place is not that of the message.
    is_retry: bool
    ended_s: float | None = None
    is_done: bool = False


class KeptOffset(NamedTuple):
    """An offset that a broker was seen to keep for a group."""

    at_s: float
    group: str
    place: Place
    offset: int


class Outage(NamedTuple):
    """The end of a broker's process. `flushed` is how far it had called its log safe."""

    broker: str
    at_s: float
    is_power_cut: bool
    flushed: int


@dataclass(slots=True)
class Story:
    """Told by the load, the faults and the observer of one run."""

    trace: Trace
    now_s: Callable[[], float]
    sent: dict[str, SentMessage] = field(default_factory=dict)
    acks: dict[str, SendAck] = field(default_factory=dict)
    # Of transactional messages: True commits, False rolls back. Set before the broker is told.
    decisions: dict[str, bool] = field(default_factory=dict)
    handlings: list[Handling] = field(default_factory=list)
    progress: list[KeptOffset] = field(default_factory=list)
    outages: list[Outage] = field(default_factory=list)
    launches: list[tuple[str, float]] = field(default_factory=list)
    # Epoch, address and time of each replica that began to lead its group.
    leads: list[tuple[int, str, float]] = field(default_factory=list)
    # The offsets that each of them began with, by group and place.
    led_offsets: list[dict[tuple[str, Place], int]] = field(default_factory=list)
    # When a master was seen whose whole log was confirmed.
    settled_s: list[float] = field(default_factory=list)
    # Things that must not happen and were seen at once.
    problems: list[str] = field(default_factory=list)
    refusals: int = 0
    # (group, body) that were handled, for a quick look at what is still missing.
    done: set[tuple[str, str]] = field(default_factory=set)

    def begin_send(self, sent: SentMessage) -> None:
        self.trace.note("send", sent.body, sent.topic)
        self.sent[sent.body] = sent

    def acked(self, body: str, place: Place, queue_offset: int, offset_id: str) -> None:
        self.trace.note("ack", body, *place, queue_offset)
        physical_offset = decode_offset_message_id(offset_id).physical_offset
        self.acks[body] = SendAck(body, place, queue_offset, physical_offset, self.now_s())

    def refused(self, body: str, why: BaseException) -> None:
        """Note that the producer was told of a failure. The message may be stored or not."""
        self.trace.note("refused", body, type(why).__name__)
        self.refusals += 1

    def decide(self, body: str, is_commit: bool) -> None:
        self.trace.note("decide", body, is_commit)
        self.decisions[body] = is_commit

    def begin_handling(self, handling: Handling) -> Handling:
        self.trace.note("handle", handling.group, handling.process, handling.body, *handling.place)
        self.handlings.append(handling)
        if handling.body in self.decisions or handling.body not in self.sent:
            if not self.decisions.get(handling.body, False):
                self.problems.append(f"{handling.body} was handed out and must never be seen")
        elif self.sent[handling.body].topic == "tx":
            self.problems.append(f"half message {handling.body} was handed out before it was committed")
        return handling

    def end_handling(self, handling: Handling, is_done: bool) -> None:
        self.trace.note("handled", handling.group, handling.process, handling.body, is_done)
        handling.ended_s = self.now_s()
        handling.is_done = is_done
        if is_done:
            self.done.add((handling.group, handling.body))
