"""A topic with a retention of its own: what nobody is served any more, and when it is served again."""

from __future__ import annotations

from aerobee.broker.metrics.lag import LagTable
from aerobee.hot.log.properties import encode_properties
from aerobee.hot.log.record import VERIFY_NONE, decode_records
from aerobee.model.topic import TopicConfig
from aerobee.protocol.bodies.offsets import ConsumeStats
from aerobee.protocol.codes import PrivateRequestCode, RequestCode, ResponseCode
from aerobee.protocol.command import Command, request
from aerobee.protocol.headers.base import Header
from aerobee.protocol.headers.bulkpull import BulkPullRequestHeader
from aerobee.protocol.headers.group import GetConsumeStatsRequestHeader
from aerobee.protocol.headers.message import QueryMessageRequestHeader, ViewMessageRequestHeader
from aerobee.protocol.headers.offset import (
    GetEarliestMsgStoretimeRequestHeader,
    GetMaxOffsetRequestHeader,
    GetMinOffsetRequestHeader,
    SearchOffsetRequestHeader,
)
from aerobee.protocol.headers.pull import PullMessageRequestHeader
from aerobee.protocol.headers.topic import CreateTopicRequestHeader
from aerobee.testing.brokerkit import BrokerKit, run_broker
from aerobee.testing.storekit import draft

HOUR_S = 3600.0
STEP_S = 60.0


async def ask(kit: BrokerKit, code: int, header: Header) -> Command:
    return await kit.connect().call(request(code, header, opaque=5))


async def set_retention(kit: BrokerKit, change: str) -> Command:
    header = CreateTopicRequestHeader(
        topic="T", default_topic="TBW102", read_queue_nums=2, write_queue_nums=2, perm=6,
        topic_filter_type="SINGLE_TAG", topic_sys_flag=0, order=False, attributes=change,
    )  # fmt: skip
    client = kit.connect()
    client.send(request(RequestCode.UPDATE_AND_CREATE_TOPIC, header, opaque=5))
    # The answer waits until the topic is saved.
    await kit.pass_time(0.2, 0.1)
    return (await client.answers())[0]


def put(kit: BrokerKit, body: bytes, topic: bytes = b"T", queue_id: int = 0) -> int:
    """Store a message. Return its place in the log."""
    one = draft(body, topic, queue_id)
    one.keys = body.decode()
    one.properties = encode_properties({"KEYS": one.keys})
    kit.store.append([one])
    kit.tick()
    return one.physical_offset


async def bounds(kit: BrokerKit, topic: str = "T") -> tuple[int, int]:
    low = await ask(kit, RequestCode.GET_MIN_OFFSET, GetMinOffsetRequestHeader(topic=topic, queue_id=0))
    high = await ask(kit, RequestCode.GET_MAX_OFFSET, GetMaxOffsetRequestHeader(topic=topic, queue_id=0))
    return int(low.ext["offset"]), int(high.ext["offset"])


async def pull(kit: BrokerKit, offset: int) -> tuple[int, int, list[bytes]]:
    header = PullMessageRequestHeader(
        consumer_group="G", topic="T", queue_id=0, queue_offset=offset, max_msg_nums=32, sys_flag=4, commit_offset=0,
        suspend_timeout_millis=0, subscription="*", sub_version=1, expression_type="TAG",
    )  # fmt: skip
    answer = await ask(kit, RequestCode.PULL_MESSAGE, header)
    found = decode_records(answer.body, verify=VERIFY_NONE) if answer.code == 0 else []
    return answer.code, int(answer.ext["nextBeginOffset"]), [bytes(one.body) for one in found]


async def three_hours(kit: BrokerKit) -> list[int]:
    """Store a message an hour: three in T, three in U. Return the places of those in T."""
    for name in ("T", "U"):
        kit.state.catalog.put_topic(TopicConfig(name, 2, 2))
    assert kit.state.catalog.group("G") is not None
    places = []
    for number in range(3):
        places.append(put(kit, b"T%d" % number))
        put(kit, b"U%d" % number, b"U")
        await kit.pass_time(HOUR_S, STEP_S)
    return places


def test_old_messages_are_served_to_nobody_though_the_log_keeps_them() -> None:
    async def main(kit: BrokerKit) -> None:
        places = await three_hours(kit)
        assert (await pull(kit, 0))[2] == [b"T0", b"T1", b"T2"]
        assert (await set_retention(kit, "+reserve.time=2")).code == 0
        assert await bounds(kit) == (2, 3) and await bounds(kit, "U") == (0, 3)
        # A consumer that is behind is sent to the first message that is served.
        assert await pull(kit, 0) == (ResponseCode.PULL_OFFSET_MOVED, 2, [])
        assert await pull(kit, 2) == (0, 3, [b"T2"])
        bulk = BulkPullRequestHeader(topic="T", queue_id=0, queue_offset=0, end_offset=3, max_msg_bytes=1 << 20)
        answer = await ask(kit, PrivateRequestCode.BULK_PULL, bulk)
        assert not answer.body and answer.ext["minOffset"] == "2"
        earliest = GetEarliestMsgStoretimeRequestHeader(topic="T", queue_id=0)
        told = await ask(kit, RequestCode.GET_EARLIEST_MSG_STORETIME, earliest)
        assert abs(kit.clock.now_ms() - int(told.ext["timestamp"]) - HOUR_S * 1000) < 1000
        search = SearchOffsetRequestHeader(topic="T", queue_id=0, timestamp=0)
        assert (await ask(kit, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, search)).ext["offset"] == "2"
        shown = [await ask(kit, RequestCode.VIEW_MESSAGE_BY_ID, ViewMessageRequestHeader(offset=at)) for at in places]
        assert [one.code for one in shown] == [ResponseCode.SYSTEM_ERROR] * 2 + [0]
        assert kit.store.log_start == 0, "nothing was deleted"
        await kit.pass_time(HOUR_S, STEP_S)
        assert await bounds(kit) == (3, 3), "the last one has come of age, too"
        put(kit, b"T3")
        assert await pull(kit, 3) == (0, 4, [b"T3"])

    run_broker(main)


def test_a_key_finds_only_what_is_served() -> None:
    async def main(kit: BrokerKit) -> None:
        await three_hours(kit)
        await set_retention(kit, "+reserve.time=2")
        for key, code in (("T0", ResponseCode.QUERY_NOT_FOUND), ("T2", 0), ("U0", 0)):
            header = QueryMessageRequestHeader(
                topic=key[0], key=key, max_num=32, begin_timestamp=0, end_timestamp=1 << 60
            )
            assert (await ask(kit, RequestCode.QUERY_MESSAGE, header)).code == code, key

    run_broker(main)


def test_a_longer_time_or_none_brings_messages_back() -> None:
    async def main(kit: BrokerKit) -> None:
        await three_hours(kit)
        for change, low in (
            ("+reserve.time=1", 3),
            ("+reserve.time=3", 1),
            ("+reserve.time=2", 2),
            ("-reserve.time", 0),
        ):
            assert (await set_retention(kit, change)).code == 0, change
            assert await bounds(kit) == (low, 3), change
        # Apache's default means that there is no time of the topic's own.
        await set_retention(kit, "+reserve.time=1")
        await set_retention(kit, "+reserve.time=-1")
        assert await bounds(kit) == (0, 3)

    run_broker(main)


def test_a_restart_serves_no_old_message_before_it_has_looked() -> None:
    async def main(kit: BrokerKit) -> None:
        await three_hours(kit)
        await set_retention(kit, "+reserve.time=2")
        await kit.pass_time(6)
        restarted = BrokerKit(kit.store.disk.kill(), kit.clock)  # type: ignore[attr-defined]
        assert await bounds(restarted) == (2, 3)
        assert (await set_retention(restarted, "-reserve.time")).code == 0
        assert await bounds(restarted) == (0, 3), "the files of the queue were kept"
        restarted.close()

    run_broker(main)


def test_a_topic_created_again_and_a_cut_log_begin_anew() -> None:
    async def main(kit: BrokerKit) -> None:
        places = await three_hours(kit)
        await set_retention(kit, "+reserve.time=1")
        assert await bounds(kit) == (3, 3)
        kit.store.truncate(places[1])
        put(kit, b"young")
        assert (await pull(kit, 1))[2] == [b"young"]
        kit.broker.state.store.delete_topics([b"T"])
        put(kit, b"again")
        assert (await pull(kit, 0))[2] == [b"again"]
        await kit.pass_time(2 * HOUR_S, STEP_S)
        assert await bounds(kit) == (1, 1)

    run_broker(main)


def test_a_log_that_cannot_be_read_is_looked_at_again() -> None:
    async def main(kit: BrokerKit) -> None:
        await three_hours(kit)
        disk = kit.store.disk
        sound = disk.read
        disk.read = lambda file, offset, size, done: done(OSError(5, "planted"))  # type: ignore[method-assign]
        await set_retention(kit, "+reserve.time=2")
        assert await bounds(kit) == (0, 3)
        disk.read = sound  # type: ignore[method-assign]
        await kit.pass_time(2)
        assert await bounds(kit) == (2, 3)

    run_broker(main)


def test_values_that_are_refused() -> None:
    async def main(kit: BrokerKit) -> None:
        kit.state.catalog.put_topic(TopicConfig("T", 2, 2))
        for value in ("-2", "x", "1.5", str(1 << 63)):
            answer = await set_retention(kit, f"+reserve.time={value}")
            assert answer.code == ResponseCode.SYSTEM_ERROR and "reserve.time" in (answer.remark or ""), value

    run_broker(main)


def test_what_is_too_old_counts_for_no_lag() -> None:
    """Of a group that committed before it, and of one that never did."""

    async def main(kit: BrokerKit) -> None:
        await three_hours(kit)
        kit.state.offsets.commit("G", "T", 0, 1)
        await set_retention(kit, "+reserve.time=2")
        assert await bounds(kit) == (2, 3)
        header = GetConsumeStatsRequestHeader(consumer_group="G", topic="T")
        stats = ConsumeStats.decode((await ask(kit, RequestCode.GET_CONSUME_STATS, header)).body)
        assert stats.diff_total == 1
        lag = LagTable(kit.state)
        lag.asked()
        await kit.pass_time(1)
        assert [(one.group, one.topic, one.lag) for one in lag.asked()] == [("G", "T", 1)]

    run_broker(main)
