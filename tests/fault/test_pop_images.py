"""Power cuts after every call of the disk, in the middle of pop, ack and change: what POP knows afterwards."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from aerobee.testing.brokerkit import BrokerKit, run_broker, settle
from aerobee.testing.clock import START_MS
from aerobee.testing.crash import CrashMode
from aerobee.testing.disk import RecordingDisk
from aerobee.testing.entropy import SeededEntropy
from aerobee.testing.faults import DiskCall
from aerobee.testing.popkit import Popped, ack, ack_request, change, pop, store, with_topic
from aerobee.testing.storekit import small_config

_COUNT = 24
_WRITES = frozenset(("write", "truncate", "sync", "rename", "unlink", "sync_dir"))


class _Image(NamedTuple):
    """A disk after a power cut, and what consumers had been told by then."""

    disk: RecordingDisk
    mode: CrashMode
    after: DiskCall
    acked: frozenset[bytes]
    # An acknowledgement was asked for: it may be known or not.
    asked: frozenset[bytes]


def _images(seed: int, sync: bool, every: int) -> list[_Image]:
    """Pop, acknowledge and change, and take an image after each `every`th call that writes."""
    images: list[_Image] = []

    async def main(kit: BrokerKit) -> None:
        disk, draw = kit.store.disk, SeededEntropy(seed)
        assert isinstance(disk, RecordingDisk)
        with_topic(kit)
        await kit.pass_time(3, 0.1)
        store(kit, _COUNT)
        await kit.pass_time(3, 0.1)
        acked: set[bytes] = set()
        asked: set[bytes] = set()
        calls = 0

        def called(call: DiskCall) -> None:
            nonlocal calls
            if call.kind not in _WRITES:
                return
            calls += 1
            if calls % every == 0:
                mode = draw.choose(list(CrashMode))
                images.append(_Image(disk.crash(mode, calls), mode, call, frozenset(acked), frozenset(asked)))

        disk.after_call = called
        held: list[Popped] = []
        until_ms: dict[bytes, int] = {}
        for number in range(8):
            invisible_ms = 2_000 + 500 * number
            for one in await pop(kit, count=4, invisible_ms=invisible_ms):
                held.append(one)
                until_ms[one.body] = kit.clock.now_ms() + invisible_ms
            # An acknowledgement that comes too late has no effect.
            held = [one for one in held if until_ms[one.body] > kit.clock.now_ms() + 1_000]
            for one in [one for one in held if draw.below(3) == 0]:
                asked.add(one.body)
                client = kit.connect()
                client.send(ack_request(one))
                await settle()
                for _ in range(40):
                    if await client.answers():
                        acked.add(one.body)
                        break
                    await kit.pass_time(0.05, 0.05)
                held.remove(one)
            if held:
                one, invisible_ms = held[draw.below(len(held))], 500 + draw.below(5_000)
                until_ms[one.body] = kit.clock.now_ms() + invisible_ms
                await change(kit, one, invisible_ms, suspend=draw.below(2) == 0)
            await kit.pass_time(0.6, 0.1)
        disk.after_call = None

    run_broker(main, store_config=small_config(segment=1 << 20, sync=sync), close=False, disk=RecordingDisk(seed=seed))
    return images


def _check(image: _Image, sync: bool) -> None:
    async def after(kit: BrokerKit) -> None:
        came: set[bytes] = set()
        for _ in range(24):
            for one in await pop(kit):
                came.add(one.body)
                assert await ack(kit, one) == 0
            await kit.pass_time(0.5, 0.1)
        every = {b"%d" % number for number in range(_COUNT)}
        where = f"after {image.after} with {image.mode}"
        assert every - image.asked <= came, f"lost {where}: {sorted(every - image.asked - came)}"
        if sync:
            assert not image.acked & came, f"acknowledged, and given again {where}: {sorted(image.acked & came)}"

    config = small_config(segment=1 << 20, sync=sync)
    run_broker(after, disk=image.disk, store_config=config, wall_ms=START_MS + 30_000)


@pytest.mark.parametrize("sync", [True, False], ids=["sync", "async"])
def test_power_cuts_among_leases(sync: bool) -> None:
    images = _images(1, sync, 9)
    assert len(images) > 8
    for image in images:
        _check(image, sync)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", range(2, 10))
def test_power_cuts_among_leases_after_every_call(seed: int) -> None:
    """`make crash-images` runs these."""
    for image in _images(seed, seed % 2 == 0, 1):
        _check(image, seed % 2 == 0)
