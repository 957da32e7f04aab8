"""Bulk pulls: raw records of a queue, by offsets, tags or properties; frames in, frames out, on virtual time."""

from __future__ import annotations

from aerobee.broker.config import BrokerConfig
from aerobee.broker.pull.bulk import ANSWER_COUNT_MAX
from aerobee.hot.log.javahash import java_hash
from aerobee.hot.log.layout import UNIT_SIZE
from aerobee.hot.log.properties import encode_properties
from aerobee.hot.log.record import VERIFY_NONE, decode_records
from aerobee.model.topic import TopicConfig
from aerobee.protocol.codes import PrivateRequestCode, ResponseCode
from aerobee.protocol.command import Command, request
from aerobee.protocol.headers.bulkpull import OFFSETS_ONLY, BulkPullRequestHeader
from aerobee.testing.brokerkit import BrokerKit, run_broker
from aerobee.testing.disk import RecordingDisk
from aerobee.testing.storekit import draft, small_config

CONFIG = BrokerConfig(broker_name="b", broker_ip1="127.0.0.1", enable_property_filter=True)


def fill(kit: BrokerKit, count: int, *, queue_id: int = 0, size: int = 10) -> None:
    kit.state.catalog.put_topic(TopicConfig("T", 1, 1))
    for number in range(count):
        one = draft(b"%d" % number * size, b"T", queue_id)
        tag = "even" if number % 2 == 0 else "odd"
        one.properties = encode_properties({"TAGS": tag, "n": str(number)})
        one.tags_code = java_hash(tag)
        kit.store.append([one])
    kit.tick()


def bulk(
    offset: int,
    end: int,
    *,
    size: int = 1 << 20,
    queue_id: int = 0,
    sub: str | None = None,
    kind: str | None = None,
    parts: int | None = None,
) -> Command:
    header = BulkPullRequestHeader(
        topic="T", queue_id=queue_id, queue_offset=offset, end_offset=end, max_msg_bytes=size, subscription=sub,
        expression_type=kind, parts=parts,
    )  # fmt: skip
    return request(PrivateRequestCode.BULK_PULL, header, opaque=7)


def told(answer: Command) -> tuple[int, int, list[int]]:
    records = decode_records(answer.body) if answer.body else []
    return answer.code, int(answer.ext["nextBeginOffset"]), [record.queue_offset for record in records]


def test_a_stretch_of_a_queue_in_one_answer_beyond_the_bounds_for_consumers() -> None:
    async def main(kit: BrokerKit) -> None:
        fill(kit, 600, size=300)
        client = kit.connect()
        code, following, offsets = told(await client.call(bulk(3, 590)))
        assert (code, following, offsets) == (0, 590, list(range(3, 590)))
        assert ANSWER_COUNT_MAX > 600 > kit.store.config.max_transfer_count_on_message_in_memory
        answer = await client.call(bulk(0, 600, size=5000))
        assert len(answer.body) <= 5000
        assert told(answer)[1] == len(decode_records(answer.body)) > 1, "the rest is asked for next"
        assert answer.ext["maxOffset"] == "600" and answer.ext["damaged"] == "0"

    run_broker(main, config=CONFIG)


def test_tags_and_properties_are_filtered_here() -> None:
    async def main(kit: BrokerKit) -> None:
        fill(kit, 20)
        client = kit.connect()
        assert told(await client.call(bulk(0, 20, sub="odd || none")))[2] == list(range(1, 20, 2))
        assert told(await client.call(bulk(0, 20, sub="n > 16", kind="SQL92"))) == (0, 20, [17, 18, 19])
        wrong = await client.call(bulk(0, 20, sub="n >", kind="SQL92"))
        assert wrong.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED

    run_broker(main, config=CONFIG)


def test_records_without_bodies_or_properties() -> None:
    async def main(kit: BrokerKit) -> None:
        fill(kit, 600, size=300)
        client = kit.connect()
        whole = (await client.call(bulk(0, 600))).body
        assert (await client.call(bulk(0, 600, parts=3))).body == whole
        for parts in (0, 1, 2, -4, 1 << 30):
            answer = await client.call(bulk(0, 600, parts=parts, sub="odd"))
            assert told(answer)[1:] == (600, list(range(1, 600, 2))), "the filter comes first"
            for record in decode_records(answer.body, VERIFY_NONE):
                number = b"%d" % record.queue_offset * 300
                assert record.body == (number if parts & 1 else b"")
                assert bool(record.properties) == bool(parts & 2)
        assert len((await client.call(bulk(0, 600, parts=0))).body) == 600 * 92
        large = b"x" * 2040
        kit.store.append([draft(large, b"T")])
        kit.tick()
        (record,) = decode_records((await client.call(bulk(600, 601, parts=2))).body, VERIFY_NONE)
        assert (record.queue_offset, record.body) == (600, b"")

    run_broker(main, config=CONFIG)


def test_the_ends_of_a_queue_and_a_queue_beyond_the_topics_number() -> None:
    async def main(kit: BrokerKit) -> None:
        fill(kit, 5)
        fill(kit, 3, queue_id=4)
        client = kit.connect()
        assert told(await client.call(bulk(5, 9))) == (ResponseCode.PULL_NOT_FOUND, 5, [])
        assert told(await client.call(bulk(9, 12))) == (ResponseCode.PULL_OFFSET_MOVED, 5, [])
        assert told(await client.call(bulk(0, 3, queue_id=4))) == (0, 3, [0, 1, 2]), "shrunk, not out of reach"
        missing = BulkPullRequestHeader(topic="X", queue_id=0, queue_offset=0, end_offset=1, max_msg_bytes=1)
        answer = await client.call(request(PrivateRequestCode.BULK_PULL, missing, opaque=8))
        assert answer.code == ResponseCode.TOPIC_NOT_EXIST

    run_broker(main, config=CONFIG)


def test_offsets_are_named_without_records() -> None:
    async def main(kit: BrokerKit) -> None:
        fill(kit, 600, size=300)
        client = kit.connect()
        answer = await client.call(bulk(3, 590, parts=OFFSETS_ONLY, size=1))
        assert (answer.code, answer.body) == (0, b"")
        assert (answer.ext["firstOffset"], answer.ext["count"], answer.ext["nextBeginOffset"]) == ("3", "587", "590")
        assert (await client.call(bulk(590, 9999, parts=OFFSETS_ONLY))).ext["count"] == "10"
        # With a filter, records are looked at.
        filtered = await client.call(bulk(0, 600, parts=OFFSETS_ONLY, sub="odd"))
        assert told(filtered)[2] == list(range(1, 600, 2)) and "count" not in filtered.ext
        for offset in (600, 700):
            answer = await client.call(bulk(offset, 800, parts=OFFSETS_ONLY))
            whole = await client.call(bulk(offset, 800))
            assert answer.code == whole.code and answer.ext == whole.ext, offset

    run_broker(main, config=CONFIG)


def test_offsets_below_the_log_and_in_gaps_are_not_named() -> None:
    async def main(kit: BrokerKit) -> None:
        fill(kit, 50)
        client = kit.connect()
        queue = kit.store.queues.find(b"T", 0)
        assert queue is not None
        # Unit 20 is blank, as in a file that was made longer.
        queue.tail[20 * UNIT_SIZE : 21 * UNIT_SIZE] = bytes(UNIT_SIZE)
        first = await client.call(bulk(0, 20, parts=OFFSETS_ONLY))
        assert (first.ext["count"], first.ext["nextBeginOffset"]) == ("20", "20")
        around = await client.call(bulk(10, 50, parts=OFFSETS_ONLY))
        assert told(around)[1:] == (50, [*range(10, 20), *range(21, 50)]) and "count" not in around.ext

    run_broker(main, config=CONFIG)


def test_records_that_are_deleted_while_they_are_read_are_not_left_out() -> None:
    async def main(kit: BrokerKit) -> None:
        fill(kit, 100, size=20)
        client = kit.connect()
        disk = kit.store.disk
        assert isinstance(disk, RecordingDisk)
        kit.store.reads.hot_bytes = 0
        disk.complete_queued()
        client.send(bulk(0, 100))
        assert await client.answers() == [], "the records are on the disk"
        disk.complete_inline()
        # The first segment is open for the read that waits. The second is gone when its turn comes.
        assert kit.store.delete_oldest_segment() and kit.store.delete_oldest_segment()
        disk.run_pending()
        (answer,) = await client.answers()
        low = kit.store.min_offset(b"T", 0)
        assert 0 < low < 100 and told(answer) == (ResponseCode.PULL_OFFSET_MOVED, low, [])
        assert told(await client.call(bulk(low, 100)))[2][:5] == list(range(low, low + 5))

    run_broker(main, config=CONFIG, store_config=small_config())
