"""POP for tests: pops, acknowledgements and changes as requests over a connection of a `BrokerKit`."""

from __future__ import annotations

from dataclasses import dataclass

from aerobee.hot.log.record import Record, decode_records
from aerobee.model.numbers import parse_int
from aerobee.model.topic import TopicConfig
from aerobee.protocol.bodies.pop import BatchAck, BatchAckMessageRequestBody, bits_of
from aerobee.protocol.codes import RequestCode
from aerobee.protocol.command import Command, request
from aerobee.protocol.headers.pop import (
    AckMessageRequestHeader,
    ChangeInvisibleTimeRequestHeader,
    NotificationRequestHeader,
    PeekMessageRequestHeader,
    PollingInfoRequestHeader,
    PopMessageRequestHeader,
)
from aerobee.testing.brokerkit import BrokerKit, KitClient
from aerobee.testing.storekit import draft

RETRY = "%RETRY%G_T"


def with_topic(kit: BrokerKit, queues: int = 1, topic: str = "T") -> None:
    """Make a topic, and the group G."""
    kit.state.catalog.put_topic(TopicConfig(topic, queues, queues))
    assert kit.state.catalog.group("G") is not None


def store(kit: BrokerKit, count: int = 1, queue_id: int = 0, topic: str = "T", tags: str = "") -> None:
    """Store messages that say their number."""
    start = kit.store.max_offset(topic.encode(), queue_id)
    for number in range(start, start + count):
        kit.store.append([draft(b"%d" % number, topic.encode(), queue_id, tags=tags)])


@dataclass(frozen=True, slots=True)
class Popped:
    """One message as a client sees it."""

    record: Record
    # The topic that an acknowledgement names, and the handle.
    topic: str
    queue_id: int
    offset: int
    handle: str

    @property
    def body(self) -> bytes:
        return self.record.body


def pop_request(  # noqa: PLR0913 (each is a field of the request)
    kit: BrokerKit,
    *,
    count: int = 32,
    invisible_ms: int = 60_000,
    poll_ms: int = 0,
    queue_id: int = -1,
    group: str = "G",
    topic: str = "T",
    init_mode: int = 0,
    born_ms: int | None = None,
    opaque: int = 5,
    **further: object,
) -> Command:
    header = PopMessageRequestHeader(
        consumer_group=group, topic=topic, queue_id=queue_id, max_msg_nums=count, invisible_time=invisible_ms,
        poll_time=poll_ms, born_time=kit.clock.now_ms() if born_ms is None else born_ms, init_mode=init_mode,
        **further,  # type: ignore[arg-type]
    )  # fmt: skip
    return request(RequestCode.POP_MESSAGE, header, opaque=opaque)


def popped(answer: Command, group: str = "G", topic: str = "T", broker: str = "broker-a") -> list[Popped]:
    """Return the messages of an answer as a client reads them: by the strings of its header."""
    if answer.code != 0:
        return []
    starts = {}
    for part in answer.ext["startOffsetInfo"].split(";"):
        kind, queue_id, start = part.split(" ")
        assert (kind, queue_id) not in starts, "a client takes two entries of one queue for an error"
        starts[kind, queue_id] = start
    places = []
    for part in answer.ext["msgOffsetInfo"].split(";"):
        kind, queue_id, offsets = part.split(" ")
        places += [(kind, queue_id, parse_int(offset)) for offset in offsets.split(",")]
    records = list(decode_records(answer.body))
    assert len(records) == len(places)
    found = []
    for record, (kind, queue_id, offset) in zip(records, places, strict=True):
        assert (record.queue_id, record.queue_offset) == (parse_int(queue_id), offset)
        handle = (
            f"{starts[kind, queue_id]} {answer.ext['popTime']} {answer.ext['invisibleTime']} {answer.ext['reviveQid']}"
            f" {kind} {broker} {queue_id} {offset}"
        )
        real = topic if kind == "0" else f"%RETRY%{group}{'_' if kind == '1' else '+'}{topic}"
        found.append(Popped(record, real, parse_int(queue_id), offset, handle))
    return found


async def pop(kit: BrokerKit, client: KitClient | None = None, **asked: object) -> list[Popped]:
    """Pop and return the messages."""
    answer = await (client or kit.connect()).call(pop_request(kit, **asked))  # type: ignore[arg-type]
    assert answer.code in (0, 210), (answer.code, answer.remark)
    return popped(answer, str(asked.get("group", "G")), str(asked.get("topic", "T")))


async def bodies(kit: BrokerKit, **asked: object) -> list[bytes]:
    """Pop and return the bodies."""
    return [one.body for one in await pop(kit, **asked)]  # type: ignore[arg-type]


def ack_request(one: Popped, group: str = "G", opaque: int = 6) -> Command:
    header = AckMessageRequestHeader(
        consumer_group=group, topic=one.topic, queue_id=one.queue_id, extra_info=one.handle, offset=one.offset
    )
    return request(RequestCode.ACK_MESSAGE, header, opaque=opaque)


async def ack(kit: BrokerKit, one: Popped, group: str = "G") -> int:
    return (await kit.connect().call(ack_request(one, group))).code


async def batch_ack(kit: BrokerKit, *entries: BatchAck) -> Command:
    body = BatchAckMessageRequestBody("broker-a", entries).encode()
    return await kit.connect().call(request(RequestCode.BATCH_ACK_MESSAGE, body=body, opaque=7))


def batch_entry(one: Popped, offsets: list[int], group: str = "G", topic: str = "T") -> BatchAck:
    """Return an entry of a batch acknowledgement for offsets of the pop that a message came with."""
    parts = one.handle.split(" ")
    start = parse_int(parts[0])
    return BatchAck(
        group, topic, parts[4], start, one.queue_id, parse_int(parts[3]), parse_int(parts[1]), parse_int(parts[2]),
        bits_of(start, offsets),
    )  # fmt: skip


async def change(kit: BrokerKit, one: Popped, invisible_ms: int, *, suspend: bool = False, group: str = "G") -> Command:
    header = ChangeInvisibleTimeRequestHeader(
        consumer_group=group, topic=one.topic, queue_id=one.queue_id, extra_info=one.handle, offset=one.offset,
        invisible_time=invisible_ms, suspend=suspend,
    )  # fmt: skip
    return await kit.connect().call(request(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, header, opaque=8))


async def peek(kit: BrokerKit, **further: object) -> Command:
    header = PeekMessageRequestHeader(topic="T", queue_id=-1, max_msg_nums=32, consumer_group="G", **further)  # type: ignore[arg-type]
    return await kit.connect().call(request(RequestCode.PEEK_MESSAGE, header, opaque=9))


async def polling(kit: BrokerKit, queue_id: int = -1) -> int:
    header = PollingInfoRequestHeader(consumer_group="G", topic="T", queue_id=queue_id)
    answer = await kit.connect().call(request(RequestCode.POLLING_INFO, header, opaque=10))
    return parse_int(answer.ext["pollingNum"])


def notification(kit: BrokerKit, poll_ms: int = 0, opaque: int = 11) -> Command:
    header = NotificationRequestHeader(
        consumer_group="G", topic="T", queue_id=-1, poll_time=poll_ms, born_time=kit.clock.now_ms()
    )
    return request(RequestCode.NOTIFICATION, header, opaque=opaque)
