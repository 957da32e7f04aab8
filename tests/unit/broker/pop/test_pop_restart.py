"""What POP knows after a start: where its groups stand. And how much of its journal it reads for that: pictures bound
it, at whatever moment the process is killed."""

from __future__ import annotations

import pytest

from aerobee.broker.pop import Key
from aerobee.protocol.codes import RequestCode
from aerobee.protocol.headers.offset import ResetOffsetRequestHeader, UpdateConsumerOffsetRequestHeader
from aerobee.testing.adminkit import AdminKit
from aerobee.testing.brokerkit import BrokerKit, run_broker
from aerobee.testing.disk import RecordingDisk
from aerobee.testing.popkit import ack, bodies, pop, store, with_topic
from aerobee.testing.storekit import small_config

_PICTURE_FROM = 4 << 20
ASYNC = small_config(sync=False, segment=1 << 20)
_TEXT = b'{"c":1}' + b" " * 40_000


def test_pictures_bound_what_a_start_reads() -> None:
    """A kill leaves at most the 4 MiB after which a picture is taken, and what came while it was saved."""
    config = small_config(segment=32 << 20, sync=False, max_message_size=1 << 20)

    async def main(kit: BrokerKit) -> None:
        disk, ledger = kit.store.disk, kit.broker.pop.ledger
        assert isinstance(disk, RecordingDisk)
        read = []
        for number in range(330):
            ledger.writer.order(Key("T", "G", number % 3), _TEXT, kit.clock.now_ms())
            ledger.said()
            await kit.pass_time(0.05, 0.05)
            if number % 10 == 9:
                again = BrokerKit(disk.kill(), kit.clock, None, config)
                assert len(again.broker.pop.table.orders) == 3
                read.append(again.broker.pop.ledger.unpictured)
                again.close()
        assert 330 * len(_TEXT) > 3 * _PICTURE_FROM
        assert _PICTURE_FROM // 2 < max(read) < _PICTURE_FROM + 10 * len(_TEXT)
        assert read[-1] < max(read), "pictures were saved"

    run_broker(main, store_config=config, close=False)


def reset_to(offset: int) -> ResetOffsetRequestHeader:
    return ResetOffsetRequestHeader(topic="T", group="G", timestamp=0, queue_id=0, offset=offset, is_force=True)


@pytest.mark.parametrize("in_order", [False, True])
def test_a_reset_that_was_answered_is_there_after_a_kill(in_order: bool) -> None:
    async def main(kit: BrokerKit) -> None:
        with_topic(kit)
        store(kit, 10)
        await kit.pass_time(6, 0.5)
        for one in await pop(kit, order=in_order, attempt_id="a"):
            assert await ack(kit, one) == 0
        await kit.pass_time(12, 0.5)
        assert (await AdminKit(kit).call(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, reset_to(2))).code == 0
        again = BrokerKit(kit.store.disk.kill(), kit.clock, None, ASYNC)  # type: ignore[attr-defined]
        assert await bodies(again, order=in_order, attempt_id="b") == [b"%d" % one for one in range(2, 10)]
        again.close()

    run_broker(main, store_config=ASYNC, close=False)


@pytest.mark.parametrize("in_order", [False, True])
def test_what_is_acknowledged_after_a_reset_does_not_take_it_back(in_order: bool) -> None:
    async def main(kit: BrokerKit) -> None:
        with_topic(kit)
        store(kit, 10)
        held = await pop(kit, order=in_order, attempt_id="a")
        kit.broker.pop.tell_positions()
        assert (await AdminKit(kit).call(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, reset_to(0))).code == 0
        for one in held:
            assert await ack(kit, one) == 0
        await kit.pass_time(12, 0.5)
        for number in range(0, 10, 2):
            taken = await pop(kit, count=2, order=in_order, attempt_id=f"b{number}")
            assert [one.body for one in taken] == [b"%d" % number, b"%d" % (number + 1)]
            for one in taken:
                assert await ack(kit, one) == 0

    run_broker(main, store_config=ASYNC)


def test_a_group_that_popped_in_order_and_pulls_now_may_go_back() -> None:
    async def main(kit: BrokerKit) -> None:
        with_topic(kit)
        store(kit, 10)
        for one in await pop(kit, order=True, attempt_id="a"):
            assert await ack(kit, one) == 0
        committed = UpdateConsumerOffsetRequestHeader(consumer_group="G", topic="T", queue_id=0, commit_offset=3)
        assert (await AdminKit(kit).call(RequestCode.UPDATE_CONSUMER_OFFSET, committed)).code == 0
        await kit.pass_time(12, 0.5)
        again = BrokerKit(kit.store.disk.kill(), kit.clock, None, ASYNC)  # type: ignore[attr-defined]
        assert again.state.offsets.query("G", "T", 0) == 3
        again.close()

    run_broker(main, store_config=ASYNC, close=False)


def test_a_slave_that_takes_a_commit_which_goes_back_writes_nothing() -> None:
    disk = RecordingDisk(seed=1)

    async def master(kit: BrokerKit) -> None:
        with_topic(kit)
        store(kit, 10)
        for one in await pop(kit, order=True, attempt_id="a"):
            assert await ack(kit, one) == 0
        await kit.pass_time(12, 0.5)

    async def slave(kit: BrokerKit) -> None:
        end = kit.store.log_end
        assert Key("T", "G", 0) in kit.broker.pop.table.orders
        kit.state.offsets.commit("G", "T", 0, 3)
        await kit.pass_time(1, 0.1)
        assert kit.store.log_end == end

    run_broker(master, disk=disk, store_config=ASYNC)
    run_broker(slave, disk=disk, store_config=ASYNC, following=True)
