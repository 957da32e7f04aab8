"""Timed messages on a real store: in time, cancelled, stored again, neither lost nor repeated; their index."""

import asyncio
import dataclasses
from functools import partial

import pytest

from aerobee.broker.config import BrokerConfig
from aerobee.broker.delay.timers.driver import TimerService, timer_rules
from aerobee.broker.delay.timers.handles import RecallHandle, decode_handle
from aerobee.hot.log.properties import decode_properties
from aerobee.model.names import TIMER_TOPIC
from aerobee.protocol.codes import ResponseCode
from aerobee.store.config import StoreConfig
from aerobee.testing.brokerkit import BrokerKit, run_broker, settle
from aerobee.testing.disk import RecordingDisk
from aerobee.testing.sendkit import recall, send
from aerobee.testing.storekit import bodies, read_queue, small_config

START_MS = 1_700_000_000_000
RECALLS = BrokerConfig(broker_name="broker-a", broker_ip1="127.0.0.1", recall_message_enable=True)
WHEEL = TIMER_TOPIC.encode()


def settings(**more: int) -> StoreConfig:
    return small_config(segment=1 << 20, mapped_file_size_consume_queue=20 * 5000, **more)


def small_runs(kit: BrokerKit, size: int = 8) -> None:
    kit.broker.timers.index._run_size = size


async def timed(kit: BrokerKit, name: str, delay_ms: int, **more: str) -> str:
    """Send one; its recall handle."""
    properties = {"TIMER_DELAY_MS": str(delay_ms), **more}
    answer = await kit.connect().call(send(name, name.encode(), properties=properties))
    assert answer.code == 0, answer.remark
    return answer.ext.get("recallHandle", "")


@pytest.mark.parametrize(
    ("properties", "due_ms"),
    [
        ({"TIMER_DELAY_SEC": "7"}, 7000),
        ({"TIMER_DELAY_MS": "1250"}, 1250),
        ({"TIMER_DELIVER_MS": str(START_MS + 4321)}, 4321),
        ({"TIMER_DELIVER_MS": str(START_MS + 4000)}, 4000),
        ({"TIMER_DELAY_MS": "1"}, 1),
    ],
)
def test_a_message_is_delivered_at_the_millisecond_it_asks_for(properties: dict[str, str], due_ms: int) -> None:
    async def main(kit: BrokerKit) -> None:
        answer = await kit.connect().call(send("K", queue_id=3, properties={**properties, "TAGS": "a"}))
        assert (answer.code, answer.ext["queueId"]) == (0, "3")
        waiting = decode_properties(read_queue(kit.store, WHEEL)[0].properties)
        out_ms = int(waiting["TIMER_OUT_MS"])
        assert (waiting["REAL_TOPIC"], waiting["REAL_QID"], out_ms % 1000) == ("T", "3", 0)
        assert out_ms < START_MS + due_ms <= out_ms + 1000
        assert decode_handle(answer.ext["recallHandle"]) == RecallHandle("T", "broker-a", str(out_ms + 1), "K")
        await asyncio.sleep((due_ms - 0.5) / 1000)
        kit.tick()
        await settle()
        assert bodies(kit.store, b"T", 3) == [], "early"
        await asyncio.sleep(0.0005)
        kit.tick()
        await settle()
        (message,) = read_queue(kit.store, b"T", 3)
        shown = decode_properties(message.properties)
        assert shown["TIMER_DEQUEUE_MS"] == str(kit.clock.now_ms())
        assert (message.body, shown["TAGS"], shown["TIMER_OUT_MS"]) == (b"body", "a", str(out_ms))
        assert kit.broker.timers.pending == 0

    run_broker(main)


@pytest.mark.parametrize(
    ("properties", "code"),
    [
        ({"TIMER_DELAY_SEC": str(3 * 86_400 + 1)}, ResponseCode.MESSAGE_ILLEGAL),
        ({"TIMER_DELAY_SEC": "soon"}, ResponseCode.MESSAGE_ILLEGAL),
        ({"TIMER_DELIVER_MS": "9" * 30}, ResponseCode.MESSAGE_ILLEGAL),
        ({"TIMER_DELIVER_MS": "5", "TIMER_DEL_UNIQKEY": "K"}, ResponseCode.MESSAGE_ILLEGAL),
        ({"TIMER_DELIVER_MS": "5"}, 0),
        ({"TIMER_DELAY_SEC": "-5"}, 0),
        ({"TIMER_DELAY_SEC": "5", "TIMER_OUT_MS": "1"}, 0),
    ],
)
def test_times_that_cannot_be_and_times_that_are_over(properties: dict[str, str], code: int) -> None:
    async def main(kit: BrokerKit) -> None:
        answer = await kit.connect().call(send(properties=properties))
        assert answer.code == code
        assert "recallHandle" not in answer.ext
        assert len(bodies(kit.store, b"T")) == (code == 0)
        assert bodies(kit.store, WHEEL) == []

    run_broker(main)


def test_a_year_is_possible_where_it_is_configured() -> None:
    async def main(kit: BrokerKit) -> None:
        assert (await kit.connect().call(send(properties={"TIMER_DELAY_SEC": str(365 * 86_400)}))).code == 0
        assert kit.broker.timers.pending == 0
        await kit.pass_time(1)
        assert kit.broker.timers.pending == 1

    run_broker(main, store_config=settings(timer_max_delay_s=366 * 86_400))


def test_a_message_is_recalled_by_its_handle() -> None:
    async def main(kit: BrokerKit) -> None:
        kept, dropped = await timed(kit, "kept", 5500), await timed(kit, "dropped", 5600)
        client = kit.connect()
        answer = await client.call(recall(dropped))
        assert (answer.code, answer.ext["msgId"], answer.ext["MSG_REGION"]) == (0, "dropped", "DefaultRegion")
        await kit.pass_time(10)
        assert bodies(kit.store, b"T") == [b"kept"]
        assert kit.broker.timers.pending == 0
        assert (await client.call(recall(kept))).remark == "recall failed, timestamp invalid"

    run_broker(main, config=RECALLS)


@pytest.mark.parametrize(("prefix", "left"), [("", [b"K"]), ("T+", [b"K"]), ("U+", [b"K"])])
def test_a_message_is_cancelled_through_its_own_topic_only(prefix: str, left: list[bytes]) -> None:
    """Whoever may send to one topic cancels nothing of another one, whatever the key is made to look like."""

    async def main(kit: BrokerKit) -> None:
        await timed(kit, "K", 5500)
        cancel = {"TIMER_DELAY_MS": "5600", "TIMER_DEL_UNIQKEY": f"{prefix}K"}
        assert (await kit.connect().call(send("C", b"0", topic="U", properties=cancel))).code == 0
        await kit.pass_time(10)
        assert bodies(kit.store, b"T") == left

    run_broker(main)


@pytest.mark.parametrize("key", ["K", "T+K"])
def test_a_cancel_may_name_its_topic(key: str) -> None:
    async def main(kit: BrokerKit) -> None:
        await timed(kit, "K", 5500)
        cancel = {"TIMER_DELAY_MS": "5600", "TIMER_DEL_UNIQKEY": key}
        assert (await kit.connect().call(send("C", b"0", properties=cancel))).code == 0
        await kit.pass_time(10)
        assert bodies(kit.store, b"T") == []

    run_broker(main)


def test_recalls_that_are_refused() -> None:
    async def main(kit: BrokerKit) -> None:
        handle = await timed(kit, "K", 5000)
        parts = decode_handle(handle)
        assert parts is not None
        client = kit.connect()
        for wrong, remark in (
            ("nonsense", "recall handle is invalid"),
            (parts._replace(topic="U").encode(), "recall failed, topic not match"),
            (parts._replace(broker_name="b").encode(), "recall failed, broker service not available"),
            (parts._replace(timestamp="x").encode(), "recall failed, timestamp invalid"),
        ):
            answer = await client.call(recall(wrong))
            assert (answer.code, answer.remark) == (ResponseCode.ILLEGAL_OPERATION, remark)
        assert (await client.call(recall(handle, topic="nowhere"))).code == ResponseCode.TOPIC_NOT_EXIST

    run_broker(main, config=RECALLS)


def test_a_cancellation_holds_over_a_kill_in_the_middle_of_its_slot() -> None:
    disk = RecordingDisk(seed=2)

    async def first(kit: BrokerKit) -> None:
        await timed(kit, "early", 5100)
        handle = await timed(kit, "late", 5900)
        assert (await kit.connect().call(recall(handle))).code == 0
        await kit.pass_time(5.5, 0.5)
        assert bodies(kit.store, b"T") == [b"early"]
        kit.broker.timers._next_save_s = 0
        kit.tick()

    run_broker(first, disk=disk, config=RECALLS, close=False)

    async def second(kit: BrokerKit) -> None:
        await kit.pass_time(3, 0.1)
        assert bodies(kit.store, b"T") == [b"early"]

    run_broker(second, disk=disk.kill(), config=RECALLS, wall_ms=START_MS + 5500)


def test_a_record_is_stored_again_before_it_expires_and_delivered_once() -> None:
    hour_s = 3600

    async def main(kit: BrokerKit) -> None:
        handle = await timed(kit, "dropped", 10 * hour_s * 1000)
        await timed(kit, "K", 10 * hour_s * 1000 + 1)
        await kit.pass_time(1)
        assert (await kit.connect().call(recall(handle))).code == 0
        await kit.pass_time(10 * hour_s - 2, 100)
        rolls = [
            decode_properties(record.properties).get("TIMER_ROLL_TIMES") for record in read_queue(kit.store, WHEEL)
        ]
        assert rolls.count("4") >= 2, rolls
        assert bodies(kit.store, b"T") == []
        await kit.pass_time(2, 1)
        assert bodies(kit.store, b"T") == [b"K"]
        assert kit.broker.timers.pending == 0

    config = settings(file_reserved_time_hours=3)
    assert timer_rules(config).window_ms == 2 * hour_s * 1000
    run_broker(main, config=RECALLS, store_config=config)


def test_a_broker_that_was_down_delivers_late_and_still_cancels() -> None:
    disk = RecordingDisk(seed=2)
    hour_ms = 3_600_000

    async def first(kit: BrokerKit) -> None:
        handle = await timed(kit, "dropped", 10 * hour_ms)
        await timed(kit, "K", 10 * hour_ms)
        await kit.pass_time(5)
        assert (await kit.connect().call(recall(handle))).code == 0

    run_broker(first, disk=disk, config=RECALLS, store_config=settings(file_reserved_time_hours=3))

    async def second(kit: BrokerKit) -> None:
        await kit.pass_time(1)
        assert bodies(kit.store, b"T") == [b"K"]

    run_broker(
        second,
        disk=disk,
        config=RECALLS,
        store_config=settings(file_reserved_time_hours=3),
        wall_ms=START_MS + 20 * hour_ms,
    )


@pytest.mark.parametrize("lost", ["nothing", "progress", "a run", "a journal", "all", "a byte of a run"])
def test_what_is_lost_of_the_index_is_made_again_from_the_log(lost: str) -> None:
    disk = RecordingDisk(seed=2)

    async def first(kit: BrokerKit) -> None:
        small_runs(kit)
        for number in range(50):
            await timed(kit, f"{number:02}", 2000 + 200 * number)
        await kit.pass_time(5, 0.1)
        assert len(kit.broker.timers.index.runs) > 3

    run_broker(first, disk=disk)
    names = disk.listdir("/store/timers")
    for name in names:
        kind = {"progress": "progress", "a run": "run-", "a journal": "journal-", "all": ""}.get(lost, "-")
        if name.startswith(kind):
            disk.unlink(f"/store/timers/{name}")
    if lost == "a byte of a run":
        file = disk.open(f"/store/timers/{[name for name in names if name.startswith('run-')][-1]}")
        file.write(32 + 7 * 40 + 5, b"\xff")

    async def second(kit: BrokerKit) -> None:
        await kit.pass_time(20, 0.5)
        assert sorted(bodies(kit.store, b"T")) == [b"%02d" % number for number in range(50)]
        assert kit.broker.timers.pending == 0
        assert kit.broker.timers.rebuilds == (lost not in ("nothing", "a journal"))

    run_broker(second, disk=disk, wall_ms=START_MS + 5_000)


def test_a_full_disk_delays_and_loses_nothing() -> None:
    disk = RecordingDisk(seed=1)

    async def main(kit: BrokerKit) -> None:
        for number in range(3):
            await timed(kit, str(number), 1000 + number)
        kit.store.refuse_full("no space")
        disk.used_share = 0.99
        await kit.pass_time(3, 0.1)
        assert bodies(kit.store, b"T") == []
        kit.store.refuse_full(None)
        disk.used_share = 0.0
        await kit.pass_time(1, 0.1)
        assert bodies(kit.store, b"T") == [b"0", b"1", b"2"]

    run_broker(main, disk=disk)


def test_one_message_the_log_refuses_does_not_stop_the_others() -> None:
    async def main(kit: BrokerKit) -> None:
        for number, body in enumerate(("0", "long" * 100, "2")):
            await timed(kit, body, 1000 + number)
        kit.store.reconfigure(dataclasses.replace(kit.store.config, max_message_size=100))
        await kit.pass_time(3, 0.1)
        assert bodies(kit.store, b"T") == [b"0", b"2"]

    run_broker(main)


def test_a_clock_that_is_set_back_delivers_nothing_early() -> None:
    async def main(kit: BrokerKit) -> None:
        tick = kit.broker.timers.tick
        await timed(kit, "first", 1000)
        await kit.pass_time(1)
        tick(kit.clock.now_ms() + 3_600_000)
        await timed(kit, "second", 10_000)
        await kit.pass_time(9, 0.5)
        assert bodies(kit.store, b"T") == [b"first"]
        await kit.pass_time(1.5, 0.5)
        assert bodies(kit.store, b"T") == [b"first", b"second"]

    run_broker(main)


def test_apaches_progress_is_taken_up() -> None:
    """What Apache delivered leaves no mark; `timercheck` says how far it came."""
    disk = RecordingDisk(seed=2)

    async def first(kit: BrokerKit) -> None:
        for number in range(4):
            await timed(kit, str(number), 1000 * (number + 1) + 5)

    run_broker(first, disk=disk, close=False)
    disk = disk.kill()
    for name in disk.listdir("/store/timers"):
        disk.unlink(f"/store/timers/{name}")
    check = disk.open("/store/config/timercheck", create=True)
    check.write(0, (START_MS + 3000).to_bytes(8, "big") + bytes(8) + (4).to_bytes(8, "big") + bytes(4072))

    async def second(kit: BrokerKit) -> None:
        await kit.pass_time(5, 0.5)
        assert bodies(kit.store, b"T") == [b"2", b"3"]

    run_broker(second, disk=disk, wall_ms=START_MS + 3000)


def test_finished_runs_leave_the_disk() -> None:
    disk = RecordingDisk(seed=2)

    async def main(kit: BrokerKit) -> None:
        small_runs(kit)
        for number in range(40):
            await timed(kit, str(number), 3000 + number)
        await kit.pass_time(2, 0.2)
        assert sum(name.startswith("run-") for name in disk.listdir("/store/timers")) >= 4
        await kit.pass_time(20)
        assert [name for name in disk.listdir("/store/timers") if name.startswith("run-")] == []
        assert len(bodies(kit.store, b"T")) == 40

    run_broker(main, disk=disk, store_config=settings())


def test_an_idle_tick_reads_nothing() -> None:
    async def main(kit: BrokerKit) -> None:
        await timed(kit, "K", 100_000)
        await kit.pass_time(2)
        timers: TimerService = kit.broker.timers
        timers._read = partial(pytest.fail, "read")  # type: ignore[method-assign]
        await kit.pass_time(50)

    run_broker(main)
