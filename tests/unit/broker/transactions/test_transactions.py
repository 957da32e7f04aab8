"""Transactions on a real store: what is stored, who is asked and when, what survives; frames in, records out."""

import pytest

from aerobee.broker.config import BrokerConfig
from aerobee.broker.transactions.halves import CheckRules, Half, HalfTable, decode_op
from aerobee.hot.log.properties import decode_properties
from aerobee.hot.log.record import Draft, decode_record
from aerobee.model.ids import offset_message_id
from aerobee.model.names import HALF_TOPIC, OP_HALF_TOPIC, SCHEDULE_TOPIC, TIMER_TOPIC, TRANS_CHECK_MAX_TIME_TOPIC
from aerobee.protocol.codes import RequestCode, ResponseCode
from aerobee.protocol.command import Command, request
from aerobee.protocol.headers.transaction import ResumeCheckHalfMessageRequestHeader
from aerobee.testing.brokerkit import BrokerKit, run_broker
from aerobee.testing.disk import RecordingDisk
from aerobee.testing.sendkit import COMMIT, ROLLBACK, UNKNOWN, end, end_checked, half, heartbeat
from aerobee.testing.storekit import HOST, bodies, read_queue, small_config

START_MS = 1_700_000_000_000
SETTINGS = BrokerConfig(broker_name="broker-a", broker_ip1="127.0.0.1")


def named(kit: BrokerKit) -> list[int]:
    """Half messages that op messages name."""
    return [offset for record in read_queue(kit.store, OP_HALF_TOPIC.encode()) for offset in decode_op(record.body)]


def resume(physical_offset: int) -> Command:
    header = ResumeCheckHalfMessageRequestHeader(msg_id=offset_message_id(HOST, physical_offset))
    return request(RequestCode.RESUME_CHECK_HALF_MESSAGE, header, opaque=30)


async def checks(kit: BrokerKit, client: object, seconds: float, step_s: float = 1.0) -> list[Command]:
    await kit.pass_time(seconds, step_s)
    pushed: list[Command] = await client.pushes()  # type: ignore[attr-defined]
    return [push for push in pushed if push.code == RequestCode.CHECK_TRANSACTION_STATE]


def test_a_half_message_is_hidden_and_a_commit_shows_it_as_apache_stores_it() -> None:
    async def main(kit: BrokerKit) -> None:
        client = kit.connect()
        answer = await client.call(half("K", queue_id=2, properties={"TAGS": "a", "KEYS": "k"}, born_ms=START_MS))
        assert (answer.code, answer.ext["queueId"], answer.ext["transactionId"]) == (0, "2", "K")
        stored = read_queue(kit.store, HALF_TOPIC.encode())[0]
        properties = decode_properties(stored.properties)
        assert (properties["REAL_TOPIC"], properties["REAL_QID"], properties["__transactionId__"]) == ("T", "2", "K")
        assert (stored.sys_flag & 0xC, stored.queue_id, bodies(kit.store, b"T", 2)) == (0, 0, [])
        assert (await client.call(end(answer, COMMIT))).code == 0
        (message,) = read_queue(kit.store, b"T", 2)
        properties = decode_properties(message.properties)
        assert (message.body, message.sys_flag & 0xC, message.born_timestamp) == (b"body", COMMIT, START_MS)
        assert message.prepared_transaction_offset == 1, "the log's start"
        assert (properties["TRAN_MSG"], properties["UNIQ_KEY"], properties["PGROUP"]) == ("true", "K", "P")
        assert "REAL_TOPIC" not in properties and "REAL_QID" not in properties
        assert named(kit) == [0]
        assert kit.broker.transactions.pending == 0

    run_broker(main)


def test_a_rollback_shows_nothing_and_the_first_end_counts() -> None:
    async def main(kit: BrokerKit) -> None:
        client = kit.connect()
        rolled, committed = await client.call(half("A")), await client.call(half("B"))
        assert (await client.call(end(rolled, ROLLBACK))).code == 0
        assert (await client.call(end(committed, COMMIT))).code == 0
        assert (await client.call(end(committed, COMMIT))).code == 0, "an end sent twice"
        late = await client.call(end(rolled, COMMIT))
        assert (late.code, late.remark) == (ResponseCode.SYSTEM_ERROR, "the transaction has ended before: rollback")
        assert (await client.call(end(committed, ROLLBACK))).code == ResponseCode.SYSTEM_ERROR
        for opaque in range(20, 25):
            client.send(end(committed, COMMIT, opaque=opaque))
        assert all(one.code == 0 for one in await client.answers())
        assert [decode_properties(m.properties)["UNIQ_KEY"] for m in read_queue(kit.store, b"T")] == ["B"]

    run_broker(main)


def test_ends_of_one_tick_share_one_op_message() -> None:
    async def main(kit: BrokerKit) -> None:
        client = kit.connect()
        answers = [await client.call(half(str(number))) for number in range(5)]
        for opaque, answer in enumerate(answers, 100):
            client.send(end(answer, COMMIT, opaque=opaque))
            client.send(end(answer, COMMIT, opaque=opaque + 100))
        assert {one.code for one in await client.answers()} == {0}
        assert len(read_queue(kit.store, b"T")) == 5
        assert [decode_op(op.body) for op in read_queue(kit.store, OP_HALF_TOPIC.encode())] == [[0, 1, 2, 3, 4]]

    run_broker(main)


@pytest.mark.parametrize(
    ("change", "remark"),
    [
        ({"producerGroup": "other"}, "The producer group wrong"),
        ({"tranStateTableOffset": "7"}, "The transaction state table offset wrong"),
        ({"commitLogOffset": "3"}, "Find prepared transaction message failed"),
        ({"commitLogOffset": "99999999"}, "Find prepared transaction message failed"),
    ],
)
def test_ends_that_name_something_else_are_refused(change: dict[str, str], remark: str) -> None:
    async def main(kit: BrokerKit) -> None:
        client = kit.connect()
        wrong = end(await client.call(half()), COMMIT)
        wrong.ext.update(change)
        answer = await client.call(wrong)
        assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, remark)
        assert bodies(kit.store, b"T") == []

    run_broker(main)


def test_a_committed_record_cannot_be_ended_as_if_it_were_a_half_message() -> None:
    async def main(kit: BrokerKit) -> None:
        client = kit.connect()
        answer = await client.call(half())
        assert (await client.call(end(answer, COMMIT))).code == 0
        message = read_queue(kit.store, b"T")[0]
        again = end(answer, COMMIT)
        again.ext["commitLogOffset"] = str(message.physical_offset)
        assert (await client.call(again)).remark == "Find prepared transaction message failed"

    run_broker(main)


def test_questions_come_after_6_s_and_every_30_s_15_times_and_then_it_is_given_up() -> None:
    async def main(kit: BrokerKit) -> None:
        client = kit.connect()
        await client.call(heartbeat())
        answer = await client.call(half("K", queue_id=3))
        assert await checks(kit, client, 5.9, 0.1) == []
        for number in range(1, 16):
            asked = await checks(kit, client, 0.2, 0.1)
            assert len(asked) == 1, f"question {number}"
            shown = decode_record(asked[0].body, 0)
            properties = decode_properties(shown.properties)
            assert (shown.topic, shown.queue_id, shown.body) == (b"T", 3, b"body")
            assert (properties["TRANSACTION_CHECK_TIMES"], asked[0].ext["msgId"]) == (str(number), "K")
            assert asked[0].ext["commitLogOffset"] == str(shown.physical_offset)
            assert asked[0].is_oneway
            await client.call(heartbeat())
            client.send(end_checked(asked[0], UNKNOWN))
            assert await checks(kit, client, 29.8, 0.2) == []
        assert read_queue(kit.store, TRANS_CHECK_MAX_TIME_TOPIC.encode()) == []
        assert await checks(kit, client, 1, 0.2) == []
        (given_up,) = read_queue(kit.store, TRANS_CHECK_MAX_TIME_TOPIC.encode())
        assert (given_up.body, decode_properties(given_up.properties)["REAL_TOPIC"]) == (b"body", "T")
        assert await checks(kit, client, 100) == []
        assert kit.broker.transactions.pending == 0
        client = kit.connect()
        assert (await client.call(end(answer, COMMIT))).code == ResponseCode.SYSTEM_ERROR
        kit.broker.transactions.table.validate()
        # An administrator has it asked about once more.
        await client.call(heartbeat())
        assert (await client.call(resume(0))).code == ResponseCode.SYSTEM_ERROR, "that is no message given up"
        assert (await client.call(resume(given_up.physical_offset))).code == 0
        (asked_again,) = await checks(kit, client, 7)
        client.send(end_checked(asked_again, COMMIT))
        await kit.pass_time(1)
        assert bodies(kit.store, b"T", 3) == [b"body"]

    run_broker(main)


def test_any_member_of_the_group_is_asked_and_an_old_copy_still_ends_it_once() -> None:
    async def main(kit: BrokerKit) -> None:
        gone, other, stranger = kit.connect(), kit.connect(), kit.connect()
        await gone.call(heartbeat("gone"))
        await stranger.call(heartbeat("stranger", "Q"))
        answer = await gone.call(half())
        gone.close()
        assert await checks(kit, stranger, 40) == []
        assert kit.broker.transactions.table.find(0).check_times == 0, "not asked, not counted"  # type: ignore[union-attr]
        await other.call(heartbeat("other"))
        (asked,) = await checks(kit, other, 31)
        late = kit.connect()
        assert (await late.call(end(answer, COMMIT))).code == 0, "it names the first half message, not the copy"
        other.send(end_checked(asked, COMMIT))
        await kit.pass_time(60)
        assert bodies(kit.store, b"T") == [b"body"]
        assert await checks(kit, other, 60) == []

    run_broker(main)


def test_the_time_of_the_first_question_can_be_asked_for_and_then_ends_come_too_late() -> None:
    async def main(kit: BrokerKit) -> None:
        client = kit.connect()
        await client.call(heartbeat())
        born_ms = kit.clock.now_ms()
        answer = await client.call(half(born_ms=born_ms, properties={"CHECK_IMMUNITY_TIME_IN_SECONDS": "50"}))
        assert await checks(kit, client, 49) == []
        (asked,) = await checks(kit, client, 2)
        assert (await client.call(end(answer, COMMIT))).code == ResponseCode.ILLEGAL_OPERATION
        client.send(end_checked(asked, COMMIT))
        await kit.pass_time(1)
        assert bodies(kit.store, b"T") == [b"body"]

    run_broker(main)


def test_delays_and_times_are_kept_at_the_commit() -> None:
    async def main(kit: BrokerKit) -> None:
        client = kit.connect()
        for number, properties in enumerate(({"DELAY": "3"}, {"TIMER_DELAY_SEC": "100"})):
            answer = await client.call(half(str(number), b"%d" % number, properties=properties))
            await kit.pass_time(3)
            assert (await client.call(end(answer, COMMIT))).code == 0
        assert (bodies(kit.store, SCHEDULE_TOPIC.encode(), 2), bodies(kit.store, TIMER_TOPIC.encode())) == (
            [b"0"],
            [b"1"],
        )
        waiting = decode_properties(read_queue(kit.store, TIMER_TOPIC.encode())[0].properties)
        assert (waiting["REAL_TOPIC"], "TRAN_MSG" in waiting) == ("T", False)
        await kit.pass_time(11)
        assert bodies(kit.store, b"T") == [b"0"]
        await kit.pass_time(100)
        assert bodies(kit.store, b"T") == [b"0", b"1"]
        assert kit.broker.transactions.pending == 0

    run_broker(main)


@pytest.mark.parametrize("clean", [True, False])
def test_pending_transactions_and_their_counts_survive_restarts(clean: bool) -> None:
    disk = RecordingDisk(seed=3)
    answers: list[Command] = []

    async def first(kit: BrokerKit) -> None:
        client = kit.connect()
        await client.call(heartbeat())
        answers.extend([await client.call(half(str(number), b"%d" % number)) for number in range(4)])
        await client.call(end(answers[0], COMMIT))
        await client.call(end(answers[1], ROLLBACK))
        assert len(await checks(kit, client, 40)) == 4, "two, twice"
        await client.call(end(answers[2], COMMIT))

    run_broker(first, disk=disk, close=clean)
    disk = disk.kill() if not clean else disk

    async def second(kit: BrokerKit) -> None:
        assert kit.broker.transactions.pending == 1
        client = kit.connect()
        await client.call(heartbeat())
        (asked,) = await checks(kit, client, 31)
        assert decode_properties(decode_record(asked.body, 0).properties)["TRANSACTION_CHECK_TIMES"] == "3"
        for answer in answers[:3]:
            assert (await client.call(end(answer, COMMIT))).code == ResponseCode.SYSTEM_ERROR
        assert (await client.call(end(answers[3], COMMIT))).code == 0
        await kit.pass_time(10)
        assert sorted(bodies(kit.store, b"T")) == [b"0", b"2", b"3"]
        kit.broker.transactions.table.validate()
        ends = kit.store.max_offset(HALF_TOPIC.encode(), 0), kit.store.max_offset(OP_HALF_TOPIC.encode(), 0)
        assert kit.broker.transactions.table.progress() == ends
        table = kit.state.offsets.table
        saved = tuple(table[f"{topic}@CID_RMQ_SYS_TRANS"][0] for topic in (HALF_TOPIC, OP_HALF_TOPIC))
        assert saved == ends

    run_broker(second, disk=disk, wall_ms=START_MS + 60_000)


def test_a_commit_cut_off_before_its_op_message_is_not_repeated() -> None:
    """The log ends right behind the committed copy."""
    disk = RecordingDisk(seed=5)
    answers: list[Command] = []

    async def first(kit: BrokerKit) -> None:
        client = kit.connect()
        answers.extend([await client.call(half(name)) for name in "AB"])
        await kit.pass_time(10)
        await client.call(end(answers[0], COMMIT))
        kit.store.truncate(read_queue(kit.store, OP_HALF_TOPIC.encode())[-1].physical_offset)

    run_broker(first, disk=disk, close=False)

    async def second(kit: BrokerKit) -> None:
        assert kit.broker.transactions.pending == 1
        client = kit.connect()
        await client.call(heartbeat())
        assert [one.ext["msgId"] for one in await checks(kit, client, 10)] == ["B"]
        await client.call(end(answers[0], COMMIT))
        assert len(read_queue(kit.store, b"T")) == 1
        assert 0 in named(kit), "Apache would ask about it"

    run_broker(second, disk=disk.kill(), wall_ms=START_MS + 20_000)


def test_what_apache_left_pending_is_taken_up() -> None:
    """Put back by Apache, whose copies say no origin, and ended there by an op message of one number."""
    disk = RecordingDisk(seed=6)

    async def first(kit: BrokerKit) -> None:
        client = kit.connect()
        for name in "ABC":
            await client.call(half(name, name.encode()))
        old = read_queue(kit.store, HALF_TOPIC.encode())
        block = old[1].properties + b"TRANSACTION_CHECK_TIMES\x011\x02"
        put_back = Draft(
            HALF_TOPIC.encode(), 0, 0, 0, 1, old[1].born_host, old[1].store_host, 0, 0, b"B", block, 0, "", "B"
        )
        op = Draft(
            OP_HALF_TOPIC.encode(),
            0,
            0,
            0,
            1,
            old[0].born_host,
            old[0].store_host,
            0,
            0,
            b"0",
            b"TAGS\x01d\x02",
            0,
            "",
            "",
        )
        kit.store.append([put_back])
        kit.store.append([op])
        kit.state.offsets.table[f"{HALF_TOPIC}@CID_RMQ_SYS_TRANS"] = {0: 2}
        kit.broker.tables.offsets.save()

    run_broker(first, disk=disk, close=False)

    async def second(kit: BrokerKit) -> None:
        client = kit.connect()
        await client.call(heartbeat())
        asked = await checks(kit, client, 12)
        assert sorted(one.ext["msgId"] for one in asked) == ["B", "C"]
        for one in asked:
            client.send(end_checked(one, COMMIT))
        await kit.pass_time(1)
        assert sorted(bodies(kit.store, b"T")) == [b"B", b"C"]

    run_broker(second, disk=disk.kill(), wall_ms=START_MS + 20_000)


def test_a_full_disk_delays_ends_and_loses_none() -> None:
    disk = RecordingDisk(seed=1)

    async def main(kit: BrokerKit) -> None:
        client = kit.connect()
        await client.call(heartbeat())
        answer = await client.call(half())
        kit.store.refuse_full("no space")
        disk.used_share = 0.99
        assert (await client.call(end(answer, COMMIT))).code == ResponseCode.SERVICE_NOT_AVAILABLE
        assert await checks(kit, client, 10) == []
        kit.store.refuse_full(None)
        disk.used_share = 0.0
        (asked,) = await checks(kit, client, 3)
        client.send(end_checked(asked, COMMIT))
        await kit.pass_time(1)
        assert bodies(kit.store, b"T") == [b"body"]
        kit.broker.transactions.table.validate()

    run_broker(main, disk=disk)


def test_cold_half_messages_are_read_and_ended_too() -> None:
    async def main(kit: BrokerKit) -> None:
        client = kit.connect()
        await client.call(heartbeat())
        first, second = await client.call(half("A")), await client.call(half("B"))
        kit.store.reads.hot_bytes = 0
        assert (await client.call(end(first, COMMIT))).code == 0
        assert len(await checks(kit, client, 7)) == 1
        assert (await client.call(end(second, COMMIT))).code == 0
        kit.store.reads.hot_bytes = 1 << 30
        assert len(bodies(kit.store, b"T")) == 2

    run_broker(main)


def test_a_half_message_nobody_answers_for_is_given_up_before_it_expires() -> None:
    async def main(kit: BrokerKit) -> None:
        client = kit.connect()
        await client.call(half(born_ms=kit.clock.now_ms()))
        await kit.pass_time(3600, 100)
        assert kit.broker.transactions.pending == 1
        await kit.pass_time(4000, 100)
        assert kit.broker.transactions.pending == 0
        assert bodies(kit.store, TRANS_CHECK_MAX_TIME_TOPIC.encode()) == [b"body"]

    run_broker(main, config=SETTINGS, store_config=small_config(segment=1 << 20, file_reserved_time_hours=1))


def test_a_half_message_before_a_copy_that_is_known_already_holds_the_progress_back() -> None:
    """A stop may save the progress after a copy was stored and before the half message in front of it was learnt of.
    The simulation found this: seed 1902 lost a committed message."""
    rules, table = CheckRules(), HalfTable()
    asked = Half(0, 100, 100, "P", START_MS, 0, None)
    table.learn(asked, -1, rules, START_MS)
    # Another half message is at queue offset 1, and the copy that the question is asked about at 2.
    table.renewed(asked, Half(2, 300, 100, "P", START_MS, 1, None), rules, START_MS)
    table.op_stored(0, [0])
    assert table.progress() == (1, 1), "the half message at 1 is not done"
    table.learn(Half(1, 200, 200, "P", START_MS, 0, None), -1, rules, START_MS)
    assert table.progress() == (1, 1)
    table.learn(Half(2, 300, 100, "P", START_MS, 1, None), -1, rules, START_MS)
    table.validate()


def test_a_copy_that_replicas_have_not_confirmed_yet_is_not_taken_for_a_lost_one() -> None:
    async def main(kit: BrokerKit) -> None:
        client = kit.connect()
        kit.store.set_confirm_limit(1 << 40)
        await client.call(heartbeat())
        await client.call(half("A", b"one"))
        # The question is about a copy that no replica confirms for a minute.
        kit.store.set_confirm_limit(kit.store.log_end)
        asked = await checks(kit, client, 60)
        kit.store.set_confirm_limit(1 << 40)
        asked += await checks(kit, client, 60)
        assert asked
        client.send(end_checked(asked[-1], COMMIT))
        await kit.pass_time(2)
        assert bodies(kit.store, b"T") == [b"one"]

    run_broker(main, authority=lambda: True, confirm_limit=0)
