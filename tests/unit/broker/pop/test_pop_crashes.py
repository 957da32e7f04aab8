"""What kill -9 and power cuts leave of POP: nothing un-acknowledged is lost, nothing acknowledged comes again."""

from __future__ import annotations

import pytest

from aerobee.broker.pop import Key
from aerobee.store.config import StoreConfig
from aerobee.testing.brokerkit import BrokerKit, run_broker, settle
from aerobee.testing.crash import CrashMode
from aerobee.testing.disk import RecordingDisk
from aerobee.testing.popkit import RETRY, Popped, ack, ack_request, bodies, change, pop, store, with_topic
from aerobee.testing.storekit import ROOT, small_config

ASYNC = small_config(segment=1 << 20, sync=False)
SYNC = small_config(segment=1 << 20, sync=True)


async def _all_that_comes(kit: BrokerKit, seconds: float = 12.0) -> list[bytes]:
    """Pop for a while with acknowledgements; return the bodies."""
    found: list[bytes] = []
    for _ in range(int(seconds / 0.5)):
        for one in await pop(kit):
            found.append(one.body)
            assert await ack(kit, one) == 0
        await kit.pass_time(0.5, 0.1)
    return found


@pytest.mark.parametrize("with_picture", [True, False])
def test_acked_survives_kill(with_picture: bool) -> None:
    """An answered acknowledgement holds after kill -9, also with ASYNC_FLUSH. Apache hands such messages out again."""

    async def main(kit: BrokerKit) -> None:
        with_topic(kit)
        await kit.pass_time(3, 0.1)
        store(kit, 40)
        held = await pop(kit, count=32, invisible_ms=5_000)
        for one in held[::2]:
            assert await ack(kit, one) == 0
        disk = kit.store.disk.kill()  # type: ignore[attr-defined]
        if not with_picture and disk.exists(f"{ROOT}/pop/state"):
            disk.unlink(f"{ROOT}/pop/state")
        again = BrokerKit(disk, kit.clock, None, ASYNC)
        came = await _all_that_comes(again)
        wanted = [one.body for one in held[1::2]] + [b"%d" % number for number in range(32, 40)]
        assert sorted(came) == sorted(wanted)
        again.close()

    run_broker(main, store_config=ASYNC, close=False)


@pytest.mark.parametrize("config", [ASYNC, SYNC], ids=["async", "sync"])
def test_unacked_survives_all(config: StoreConfig) -> None:
    """A power cut at any moment, with any choice of what was not synced: each message that is still there and was not
    acknowledged comes again; with SYNC_FLUSH no acknowledged one does."""
    images: list[tuple[RecordingDisk, set[bytes]]] = []

    async def main(kit: BrokerKit) -> None:
        disk = kit.store.disk
        assert isinstance(disk, RecordingDisk)
        with_topic(kit)
        await kit.pass_time(3, 0.1)
        store(kit, 30)
        await kit.pass_time(3, 0.1)
        acked: set[bytes] = set()

        def cut() -> None:
            for image in disk.crash_images(len(images)):
                images.append((image.disk, set(acked)))

        held: list[Popped] = []
        for number in range(6):
            held += await pop(kit, count=5, invisible_ms=2_000 + 500 * number)
            cut()
            for one in held[::3]:
                assert await ack(kit, one) == 0
                acked.add(one.body)
                held.remove(one)
            cut()
            if held:
                assert (await change(kit, held[0], 4_000)).code == 0
            await kit.pass_time(0.7, 0.1)
            cut()

    run_broker(main, store_config=config, close=False, disk=RecordingDisk(seed=3))
    assert len(images) > 20
    for image, acked in images[:: max(1, len(images) // 25)]:

        async def after(kit: BrokerKit, acked: set[bytes] = acked) -> None:
            await kit.pass_time(0.2, 0.1)
            came = await _all_that_comes(kit, 10)
            every = {b"%d" % number for number in range(30)}
            assert every - acked <= set(came), "lost"
            if config is SYNC:
                assert not acked & set(came), "acknowledged, and given again"

        run_broker(after, disk=image, store_config=config, wall_ms=1_700_000_020_000)


def test_handle_survives_restart() -> None:
    async def main(kit: BrokerKit) -> None:
        with_topic(kit)
        store(kit, 3)
        one, two, three = await pop(kit, invisible_ms=5_000)
        await kit.pass_time(1, 0.1)
        again = BrokerKit(kit.store.disk.kill(), kit.clock, None, ASYNC)  # type: ignore[attr-defined]
        assert await ack(again, one) == 0
        assert (await change(again, two, 60_000)).code == 0
        await again.pass_time(8, 0.1)
        assert await bodies(again) == [three.body]
        assert await ack(again, two) == 0
        await again.pass_time(80, 0.5)
        assert b"1" not in await bodies(again)
        again.close()

    run_broker(main, store_config=ASYNC, close=False)


def test_safe_never_ahead() -> None:
    """The saved offset is never above the lowest message that somebody holds: another broker loses none."""

    async def main(kit: BrokerKit) -> None:
        disk = kit.store.disk
        assert isinstance(disk, RecordingDisk)
        with_topic(kit)
        store(kit, 100)
        held: list[Popped] = []
        for number in range(12):
            held += await pop(kit, count=8)
            for one in held[1::2]:
                assert await ack(kit, one) == 0
                held.remove(one)
            if number == 7:
                for one in list(held[:5]):
                    assert await ack(kit, one) == 0
                    held.remove(one)
            await kit.pass_time(1, 0.1)
            image = disk.crash(CrashMode.NONE)
            table = BrokerKit(image, kit.clock, None, ASYNC).broker.tables.offsets.table
            saved = table.get("T@G", {}).get(0, 0)
            assert saved <= min(one.offset for one in held)
        assert kit.broker.tables.offsets.table["T@G"][0] > 0

    run_broker(main, store_config=ASYNC, close=False, disk=RecordingDisk(seed=5))


def test_snapshot_lost() -> None:
    async def main(kit: BrokerKit) -> None:
        with_topic(kit)
        store(kit, 50)
        held = await pop(kit, count=32)
        for one in held[::3]:
            await ack(kit, one)
        await change(kit, held[1], 90_000)
        kit.close()
        disk = kit.store.disk
        assert isinstance(disk, RecordingDisk)
        assert disk.exists(f"{ROOT}/pop/state")
        states = []
        for lost in (False, True):
            image = disk.kill()
            if lost:
                image.unlink(f"{ROOT}/pop/state")
            again = BrokerKit(image, kit.clock, None, ASYNC)
            window = again.broker.pop.table.windows[Key("T", "G", 0)]
            states.append((window.taken, window.safe, window.in_flight, list(window.held())))
            again.close()
        assert states[0] == states[1]

    run_broker(main, store_config=ASYNC, close=False)


def test_an_ack_waits_for_the_sync() -> None:
    """With SYNC_FLUSH an acknowledgement is answered when the disk has it."""

    async def main(kit: BrokerKit) -> None:
        with_topic(kit)
        store(kit, 1)
        await kit.pass_time(1, 0.1)
        (one,) = await pop(kit)
        await kit.pass_time(1, 0.1)
        client = kit.connect()
        client.send(ack_request(one))
        await settle()
        (answer,) = await client.answers()
        assert answer.code == 0
        assert kit.store.flushed_offset == kit.store.log_end

    run_broker(main, store_config=SYNC)


def test_replicas_take_over() -> None:
    """A follower knows from its master's log what is held, and until when."""

    async def main(kit: BrokerKit) -> None:
        follower = BrokerKit(
            RecordingDisk(seed=9), kit.clock, None, ASYNC, root=ROOT, authority=lambda: True, following=True,
            confirm_limit=0,
        )  # fmt: skip
        with_topic(kit)
        store(kit, 10)
        await kit.pass_time(3, 0.1)
        held = await pop(kit, invisible_ms=20_000)
        for one in held[:4]:
            await ack(kit, one)
        await change(kit, held[4], 3_000)
        await kit.pass_time(1, 0.1)
        follower.follow(kit)
        follower.store.set_confirm_limit(None)
        follower.lead()
        assert follower.state.catalog.find("T") is not None
        assert await bodies(follower) == []
        assert await ack(follower, held[9]) == 0
        await follower.pass_time(3, 0.1)
        assert await bodies(follower) == [b"4"]
        await follower.pass_time(18, 0.1)
        assert sorted(await bodies(follower)) == [b"5", b"6", b"7", b"8"]
        assert follower.store.max_offset(RETRY.encode(), 0) == 5

    run_broker(main, store_config=ASYNC, authority=lambda: True, close=False)
