"""POP over the wire, in a broker on virtual time: what consumers rely on (names are those of the study)."""

from __future__ import annotations

from aerobee.hot.log.properties import decode_properties
from aerobee.model.topic import TopicConfig
from aerobee.protocol.codes import RequestCode, ResponseCode
from aerobee.protocol.command import request
from aerobee.protocol.headers.offset import QueryConsumerOffsetRequestHeader
from aerobee.testing.brokerkit import BrokerKit, run_broker, settle
from aerobee.testing.popkit import (
    RETRY,
    ack,
    ack_request,
    batch_ack,
    batch_entry,
    bodies,
    change,
    notification,
    peek,
    polling,
    pop,
    pop_request,
    popped,
    store,
    with_topic,
)


def test_pop_hands_out_and_hides() -> None:
    async def main(kit: BrokerKit) -> None:
        with_topic(kit)
        store(kit, 5)
        assert await bodies(kit, count=3) == [b"0", b"1", b"2"]
        assert await bodies(kit) == [b"3", b"4"]
        await kit.pass_time(50, 0.5)
        assert await bodies(kit) == []

    run_broker(main)


def test_header_strings_are_apaches() -> None:
    """The examples of Apache's broker: three strings, and the handle in a retried record."""

    async def main(kit: BrokerKit) -> None:
        with_topic(kit, 2)
        store(kit, 1, 1)
        store(kit, 5)
        client = kit.connect()
        await client.call(pop_request(kit, queue_id=0, count=3))
        answer = await client.call(pop_request(kit, queue_id=0))
        assert (answer.code, answer.remark) == (0, "FOUND")
        assert answer.ext["startOffsetInfo"] == "0 0 3"
        assert answer.ext["msgOffsetInfo"] == "0 0 3,4"
        assert "orderCountInfo" not in answer.ext
        assert answer.ext["restNum"] == "0"
        assert answer.ext["popTime"] == str(kit.clock.now_ms())
        assert answer.ext["invisibleTime"] == "60000"
        assert 0 <= int(answer.ext["reviveQid"]) < 8
        empty = await client.call(pop_request(kit, queue_id=0))
        assert (empty.code, empty.remark) == (ResponseCode.POLLING_TIMEOUT, "NO_MESSAGE_IN_QUEUE")
        assert (empty.ext["startOffsetInfo"], empty.ext["msgOffsetInfo"]) == ("", "")

    run_broker(main)


def test_pop_all_queues() -> None:
    async def main(kit: BrokerKit) -> None:
        with_topic(kit, 2)
        store(kit, 1, 0)
        store(kit, 3, 1)
        answer = await kit.connect().call(pop_request(kit))
        assert sorted(answer.ext["startOffsetInfo"].split(";")) == ["0 0 0", "0 1 0"]
        assert sorted(answer.ext["msgOffsetInfo"].split(";")) == ["0 0 0", "0 1 0,1,2"]
        assert len(popped(answer)) == 4

    run_broker(main)


def test_ack_then_never_again() -> None:
    async def main(kit: BrokerKit) -> None:
        with_topic(kit)
        store(kit, 2)
        for one in await pop(kit, invisible_ms=1_000):
            assert await ack(kit, one) == 0
        await kit.pass_time(5, 0.05)
        assert await bodies(kit) == []
        assert kit.store.max_offset(RETRY.encode(), 0) == 0

    run_broker(main)


def test_unacked_comes_back() -> None:
    """At most 0.1 s late; Apache's broker is two to three seconds late."""

    async def main(kit: BrokerKit) -> None:
        with_topic(kit)
        store(kit, 1)
        (first,) = await pop(kit, invisible_ms=3_000)
        popped_ms = kit.clock.now_ms()
        await kit.pass_time(2.95, 0.05)
        assert await bodies(kit) == []
        client = kit.connect()
        client.send(pop_request(kit, poll_ms=10_000))
        for _ in range(100):
            await kit.pass_time(0.05)
            answers = await client.answers()
            if answers:
                break
        late_ms = kit.clock.now_ms() - popped_ms - 3_000
        assert 0 <= late_ms <= 200
        (again,) = popped(answers[0])
        properties = decode_properties(again.record.properties)
        assert again.body == first.body
        assert again.record.reconsume_times == 1
        assert properties["1ST_POP_TIME"] == str(popped_ms)
        assert properties["ORIGIN_GROUP"] == "G"

    run_broker(main)


def test_retry_record_is_reencoded() -> None:
    async def main(kit: BrokerKit) -> None:
        with_topic(kit)
        store(kit, 1)
        await pop(kit, invisible_ms=1_000)
        await kit.pass_time(2, 0.05)
        (again,) = await pop(kit, invisible_ms=1_000)
        assert again.record.topic == b"T"
        assert again.topic == RETRY
        handle = decode_properties(again.record.properties)["POP_CK"]
        assert handle == again.handle
        assert handle.split(" ")[4] == "1"
        assert await ack(kit, again) == 0
        await kit.pass_time(3, 0.05)
        assert await bodies(kit) == []

    run_broker(main)


def test_change() -> None:
    """Handles do not change: both the old and the new one acknowledge. Apache gives a new pop time."""

    async def main(kit: BrokerKit) -> None:
        with_topic(kit)
        store(kit, 2)
        one, two = await pop(kit, invisible_ms=10_000)
        answer = await change(kit, one, 1_000)
        assert (answer.code, answer.remark) == (0, "not set any response code")
        assert answer.ext["popTime"] == one.handle.split(" ")[1]
        assert int(answer.ext["invisibleTime"]) == 1_000
        assert (await change(kit, two, 60_000)).code == 0
        await kit.pass_time(1.2, 0.05)
        assert await bodies(kit) == [b"0"]
        await kit.pass_time(11, 0.05)
        assert await bodies(kit) == []
        assert await ack(kit, two) == 0
        await kit.pass_time(100, 0.1)
        assert b"1" not in await bodies(kit)

    run_broker(main)


def test_suspend_does_not_count() -> None:
    async def main(kit: BrokerKit) -> None:
        with_topic(kit)
        store(kit, 1)
        (one,) = await pop(kit)
        await change(kit, one, 500, suspend=True)
        await kit.pass_time(1, 0.05)
        (again,) = await pop(kit)
        assert again.record.reconsume_times == 0

    run_broker(main)


def test_batch_ack_bits() -> None:
    async def main(kit: BrokerKit) -> None:
        with_topic(kit)
        store(kit, 4)
        one = (await pop(kit, invisible_ms=1_000))[0]
        foreign = batch_entry(one, [0], topic="unknown")
        assert (await batch_ack(kit, foreign, batch_entry(one, [1, 2]))).code == 0
        await kit.pass_time(2, 0.05)
        assert sorted(await bodies(kit)) == [b"0", b"3"]
        assert (await batch_ack(kit)).code == ResponseCode.NO_MESSAGE

    run_broker(main)


def test_refusals() -> None:
    async def main(kit: BrokerKit) -> None:
        with_topic(kit)
        store(kit, 1)
        client = kit.connect()

        async def refused(**asked: object) -> tuple[int, str]:
            answer = await client.call(pop_request(kit, **asked))  # type: ignore[arg-type]
            assert (answer.ext["popTime"], answer.ext["restNum"]) == ("0", "0")
            return answer.code, answer.remark or ""

        code, remark = await refused(count=33)
        assert (code, remark) == (29, "the broker[127.0.0.1] pop message's num is greater than 32")
        code, remark = await refused(topic="unknown")
        assert code == 17 and remark.startswith("topic[unknown] not exist, apply first please! ")
        code, remark = await refused(queue_id=1)
        assert code == 29
        assert remark.startswith("queueId[1] is illegal, topic:[T] topicConfig.readQueueNums:[1] consumer:[")
        code, remark = await refused(exp="a = ", exp_type="SQL92")
        assert (code, remark) == (23, "parse the consumer's subscription failed")
        code, _ = await refused(invisible_ms=3 * 24 * 3_600_000 + 1)
        assert code == 29
        (one,) = await pop(kit)
        over = type(one)(one.record, "T", 0, 5, one.handle)
        answer = await client.call(ack_request(over))
        assert (answer.code, answer.remark) == (208, "offset is illegal, key:T@0, commit:5, store:0~1")
        assert await ack(kit, type(one)(one.record, "T", 0, 1, one.handle)) == 0, "the end itself passes"
        assert (await change(kit, type(one)(one.record, "T", 0, 1, one.handle), 5)).code == 208
        assert await ack(kit, type(one)(one.record, "T", 1, 0, one.handle)) == 13
        assert await ack(kit, type(one)(one.record, "U", 0, 0, one.handle)) == 17

    run_broker(main)


def test_poll_wakes() -> None:
    async def main(kit: BrokerKit) -> None:
        with_topic(kit)
        clients = kit.connect(), kit.connect()
        for client in clients:
            client.send(pop_request(kit, poll_ms=10_000))
        await settle()
        assert await polling(kit) == 2
        store(kit, 1)
        await settle()
        answered = [len(await client.answers()) for client in clients]
        assert sum(answered) == 1
        assert await polling(kit) == 1

    run_broker(main)


def test_poll_ends() -> None:
    async def main(kit: BrokerKit) -> None:
        with_topic(kit)
        client = kit.connect()
        assert (await client.call(pop_request(kit))).code == 210
        client.send(pop_request(kit, poll_ms=1_000))
        await kit.pass_time(0.9, 0.05)
        assert not await client.answers()
        await kit.pass_time(0.15, 0.05)
        (answer,) = await client.answers()
        assert answer.code == 210
        client.send(pop_request(kit, poll_ms=1_000, born_ms=kit.clock.now_ms() - 3_600_000))
        await kit.pass_time(0.5, 0.05)
        assert not await client.answers(), "a client whose clock is late would poll in a busy loop"

    run_broker(main)


def test_polling_full() -> None:
    async def main(kit: BrokerKit) -> None:
        with_topic(kit)
        client = kit.connect()
        for number in range(1_024):
            client.send(pop_request(kit, poll_ms=10_000, opaque=100 + number))
        await settle()
        answer = await client.call(pop_request(kit, poll_ms=10_000))
        assert answer.code == 209

    run_broker(main)


def test_retry_wakes_its_group() -> None:
    async def main(kit: BrokerKit) -> None:
        with_topic(kit)
        store(kit, 1)
        other = kit.connect()
        await pop(kit, invisible_ms=1_000)
        assert await bodies(kit, group="G2", init_mode=0) == [b"0"]
        mine = kit.connect()
        mine.send(pop_request(kit, poll_ms=10_000))
        other.send(pop_request(kit, poll_ms=10_000, group="G2"))
        await kit.pass_time(2, 0.05)
        assert len(await mine.answers()) == 1
        assert not await other.answers()

    run_broker(main)


def test_tags_skip() -> None:
    async def main(kit: BrokerKit) -> None:
        with_topic(kit)
        store(kit, 100, tags="B")
        assert await bodies(kit, exp="A", exp_type="TAG") == []
        header = QueryConsumerOffsetRequestHeader(consumer_group="G", topic="T", queue_id=0)
        answer = await kit.connect().call(request(RequestCode.QUERY_CONSUMER_OFFSET, header, opaque=3))
        assert answer.ext["offset"] == "100"
        store(kit, 1, tags="A")
        assert await bodies(kit, exp="A", exp_type="TAG") == [b"100"]

    run_broker(main)


def test_reset_in_flight() -> None:
    async def main(kit: BrokerKit) -> None:
        with_topic(kit)
        store(kit, 10)
        held = await pop(kit)
        assert len(held) == 10
        assert kit.state.offsets.reset("G", "T", 0, 0)
        again = await pop(kit)
        assert [one.body for one in again] == [one.body for one in held]
        for one in held:
            assert await ack(kit, one) == 0
        await kit.pass_time(70, 0.5)
        assert len(await bodies(kit)) == 10, "handles from before the reset have no effect"

    run_broker(main)


def test_many_members() -> None:
    async def main(kit: BrokerKit) -> None:
        with_topic(kit)
        store(kit, 2_000)
        clients = [kit.connect() for _ in range(8)]
        seen: list[bytes] = []
        while True:
            found = [one for client in clients for one in await pop(kit, client, count=7)]
            seen += [one.body for one in found]
            if not found:
                break
        assert sorted(map(int, seen)) == list(range(2_000))

    run_broker(main)


def test_peek_takes_nothing() -> None:
    async def main(kit: BrokerKit) -> None:
        with_topic(kit)
        store(kit, 3)
        for _ in range(2):
            answer = await peek(kit)
            assert (answer.code, answer.remark, answer.ext["restNum"]) == (0, "FOUND", "0")
        assert len(await bodies(kit)) == 3
        assert (await peek(kit)).code == 19

    run_broker(main)


def test_polling_info_counts() -> None:
    async def main(kit: BrokerKit) -> None:
        with_topic(kit)
        assert await polling(kit) == 0
        client = kit.connect()
        client.send(pop_request(kit, poll_ms=5_000, queue_id=0))
        await settle()
        assert (await polling(kit), await polling(kit, 0)) == (0, 1)

    run_broker(main)


def test_notification_answers() -> None:
    async def main(kit: BrokerKit) -> None:
        with_topic(kit)
        client = kit.connect()
        assert (await client.call(notification(kit))).ext["hasMsg"] == "false"
        client.send(notification(kit, 5_000))
        await settle()
        store(kit, 1)
        (answer,) = await client.answers()
        assert (answer.ext["hasMsg"], answer.ext["pollingFull"]) == ("true", "false")
        assert len(await bodies(kit)) == 1, "a sign takes nothing"

    run_broker(main)


def test_dead_client_returns() -> None:
    """The connection is gone before its held pop is answered: the next pop has the message at once."""

    async def main(kit: BrokerKit) -> None:
        with_topic(kit)
        client = kit.connect()
        client.send(pop_request(kit, poll_ms=10_000))
        await settle()
        client.close()
        await settle()
        store(kit, 1)
        await settle()
        (one,) = await pop(kit)
        assert one.record.reconsume_times == 0

    run_broker(main)


def test_new_group_starts() -> None:
    async def main(kit: BrokerKit) -> None:
        with_topic(kit)
        store(kit, 5)
        assert await bodies(kit, init_mode=0) == [b"0", b"1", b"2", b"3", b"4"]
        assert len(await bodies(kit, init_mode=1, group="young")) == 5, "the first message is still in memory"
        kit.store.reads.hot_bytes = 0
        assert await bodies(kit, init_mode=1, group="late") == [b"4"]

    run_broker(main)


def test_waits_that_end_early_do_not_pile_up() -> None:
    """A client that wakes its own long polls, thousands of times while one waits on, fills no memory."""

    async def main(kit: BrokerKit) -> None:
        with_topic(kit)
        kit.state.catalog.put_topic(TopicConfig("U", 1, 1))
        kit.connect().send(pop_request(kit, topic="U", poll_ms=110_000))
        client = kit.connect()
        for number in range(2_500):
            client.send(pop_request(kit, poll_ms=110_000, opaque=number))
            await settle()
            store(kit, 1)
            await settle()
        assert len(await client.answers()) == 2_500
        waits = kit.broker.pop.waits
        assert len(waits) == 1
        assert len(waits._order) < 1_100

    run_broker(main)
