from __future__ import annotations

import asyncio
import contextvars
import os
import subprocess
import sys

import pytest

from aerobee.testing.clock import START_MS, VirtualClock
from aerobee.testing.entropy import SeededEntropy
from aerobee.testing.loop import PROCESS, DeadlockError, LivelockError, VirtualLoop, run_virtual
from aerobee.testing.net import SimNet, Weather


def test_a_year_passes_at_once() -> None:
    async def main(loop: VirtualLoop) -> float:
        await asyncio.sleep(365 * 86400)
        for _ in range(1000):  # late on the clock, floats are coarse: timers must still come due
            await asyncio.sleep(0.0001234567)
        return loop.time()

    assert run_virtual(main) == pytest.approx(365 * 86400)


def test_timers_run_at_their_time_and_in_order() -> None:
    async def main(loop: VirtualLoop) -> list[tuple[str, float]]:
        log: list[tuple[str, float]] = []
        for name, delay_s in (("c", 3.0), ("a", 1.0), ("b", 2.0)):
            loop.call_later(delay_s, lambda name=name: log.append((name, loop.time())))
        await asyncio.sleep(5)
        return log

    assert run_virtual(main) == [("a", 1.0), ("b", 2.0), ("c", 3.0)]


def test_timeouts_work_on_virtual_time() -> None:
    async def main(loop: VirtualLoop) -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(30):
                await asyncio.Event().wait()
        assert loop.time() == pytest.approx(30)

    run_virtual(main)


def test_waiting_for_nothing_is_a_deadlock_that_names_the_tasks() -> None:
    async def main(loop: VirtualLoop) -> None:
        stuck = loop.create_task(asyncio.Event().wait(), name="stuck-task")
        await stuck

    with pytest.raises(DeadlockError, match="stuck-task"):
        run_virtual(main)


def test_turning_without_time_is_a_livelock() -> None:
    async def main(loop: VirtualLoop) -> None:
        def again() -> None:
            loop.call_soon(again)

        again()
        await asyncio.sleep(1)

    with pytest.raises(LivelockError):
        run_virtual(main, turns_max=1000)


def test_threads_are_refused() -> None:
    async def main(loop: VirtualLoop) -> None:
        with pytest.raises(RuntimeError, match="threads"):
            await asyncio.to_thread(len, "")

    run_virtual(main)


def _order_of_tasks(seed: int, *, shuffle: bool) -> str:
    async def main(loop: VirtualLoop) -> str:
        log: list[str] = []

        async def work(name: str) -> None:
            for _ in range(3):
                await asyncio.sleep(0)
                log.append(name)

        await asyncio.gather(*(work(name) for name in "abcdef"))
        return "".join(log)

    return run_virtual(main, seed=seed, shuffle=shuffle)


def test_shuffling_explores_orders_and_repeats_them() -> None:
    assert _order_of_tasks(1, shuffle=False) == "abcdef" * 3
    assert _order_of_tasks(1, shuffle=True) == _order_of_tasks(1, shuffle=True)
    assert len({_order_of_tasks(seed, shuffle=True) for seed in range(10)}) > 5


def test_shuffling_keeps_the_order_of_plain_callbacks() -> None:
    async def main(loop: VirtualLoop) -> list[int]:
        log: list[int] = []
        for number in range(20):
            loop.call_soon(log.append, number)
        await asyncio.sleep(1)
        return log

    assert run_virtual(main, seed=5, shuffle=True) == list(range(20))


PROGRAM = """
import asyncio
from aerobee.runtime.tasks import Tasks
from aerobee.testing.clock import VirtualClock
from aerobee.testing.disk import RecordingDisk
from aerobee.testing.crash import CrashMode
from aerobee.testing.entropy import SeededEntropy
from aerobee.testing.loop import Trace, run_virtual
from aerobee.testing.net import SimNet, Weather
from aerobee.runtime.tasks import LoopTimers

class Echo(asyncio.Protocol):
    def __init__(self, name, trace):
        self.name, self.trace = name, trace
    def connection_made(self, transport):
        self.transport = transport
        self.trace.note(self.name, "made", transport.get_extra_info("peername"))
    def data_received(self, data):
        self.trace.note(self.name, "data", data)
        if self.name.startswith("server"):
            self.transport.write(data.upper())
    def connection_lost(self, error):
        self.trace.note(self.name, "lost", error)

async def client(name, net, trace, entropy, hosts, disk):
    file = disk.open("/store/" + name, create=True)
    for round in range(20):
        await asyncio.sleep(entropy.uniform())
        try:
            transport, _ = await net.connect(entropy.choose(hosts), 9876, lambda: Echo(name, trace))
        except OSError as error:
            trace.note(name, "refused", error)
            continue
        for _ in range(5):
            transport.write(entropy.token(3))
            file.write(entropy.below(4000), entropy.token(20))
            disk.sync([file], lambda error: trace.note(name, "synced", error))
            await asyncio.sleep(entropy.uniform() / 100)
        transport.close()

async def main(loop):
    trace = Trace(loop.time)
    clock = VirtualClock(loop.time, drift=0.001)
    entropy = SeededEntropy(11)
    net = SimNet(loop, seed=11, weather=Weather(refuse=0.1, reset=0.02, duplicate=0.1, chunk_bytes_max=2))
    disk = RecordingDisk()
    disk.complete_by(LoopTimers(loop), lambda: entropy.uniform() / 100)
    hosts = ["10.0.0.1", "10.0.0.2", "10.0.0.3"]
    for host in hosts:
        await net.host(host).listen("0.0.0.0", 9876, lambda host=host: Echo("server" + host, trace))
    async with Tasks() as tasks:
        for number in range(6):
            name = "client%d" % number
            tasks.start(client(name, net.host("10.0.1.%d" % number), trace, entropy.fork(), hosts, disk),
            name=name)
        for _ in range(8):
            await asyncio.sleep(1)
            net.partition(["10.0.0.1"], ["10.0.1.%d" % entropy.below(6)])
            await asyncio.sleep(1)
            net.heal_all()
            trace.note("wall", clock.now_ms())
            trace.note(sorted(disk.crash(CrashMode.TORN_RANDOM, 5).contents().items()))
    return trace

trace = run_virtual(main, seed=11, shuffle=SHUFFLE)
print(trace.count, trace.digest())
"""


@pytest.mark.parametrize("shuffle", [False, True])
def test_a_seed_gives_one_run_whatever_the_hash_seed(shuffle: bool) -> None:
    outputs = []
    for hash_seed in ("0", "1", "4242"):
        run = subprocess.run(
            [sys.executable, "-c", PROGRAM.replace("SHUFFLE", str(shuffle))],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
        )
        assert run.returncode == 0, run.stderr
        outputs.append(run.stdout)
    assert outputs[0] == outputs[1] == outputs[2]
    assert int(outputs[0].split()[0]) > 500


def test_a_virtual_clock_follows_its_loop_jumps_and_drifts() -> None:
    async def main(loop: VirtualLoop) -> None:
        clock = VirtualClock(loop.time)
        assert clock.now_ms() == START_MS
        await asyncio.sleep(10)
        assert clock.now_ms() == START_MS + 10_000 and clock.monotonic() == pytest.approx(10)
        clock.jump(-3_600_000)
        assert clock.now_ms() == START_MS + 10_000 - 3_600_000 and clock.monotonic() == pytest.approx(10)
        clock.set_drift(0.5)
        await asyncio.sleep(10)
        assert clock.now_ms() == START_MS + 25_000 - 3_600_000
        clock.set_drift(0.0)
        await asyncio.sleep(10)
        assert clock.now_ms() == START_MS + 35_000 - 3_600_000
        with pytest.raises(ValueError):
            clock.advance(1)

    run_virtual(main)


def test_a_virtual_clock_can_be_moved_by_hand() -> None:
    clock = VirtualClock(wall_ms=1000)
    clock.advance(1.5)
    assert clock.now_ms() == 2500 and clock.monotonic() == 1.5
    with pytest.raises(ValueError):
        clock.advance(-1)


def test_seeded_entropy_is_pinned() -> None:
    """Values that every Python version must draw: a seed in a report stays good."""
    entropy = SeededEntropy(1)
    assert [entropy.below(100) for _ in range(5)] == [17, 72, 97, 8, 32]
    assert entropy.token(4).hex() == "1e2feb89"
    items = list(range(6))
    entropy.shuffle(items)
    assert sorted(items) == list(range(6))
    one, two = SeededEntropy(3), SeededEntropy(3)
    one.fork().token(100)
    two.fork()
    assert one.below(1 << 60) == two.below(1 << 60)
    assert not one.chance(0) and one.chance(1)


def test_the_weather_defaults_to_nothing_but_delay() -> None:
    async def main(loop: VirtualLoop) -> None:
        assert SimNet(loop).weather == Weather(delay_s=(0.0005, 0.002))

    run_virtual(main)


def test_a_killed_process_runs_no_further_step() -> None:
    """Neither its timers, nor what others wake, nor its `finally` blocks."""
    log: list[str] = []
    woken = asyncio.Event()

    async def work(name: str) -> None:
        try:
            await woken.wait()
            log.append(name)
        finally:
            log.append(f"{name} ended")

    async def main(loop: VirtualLoop) -> None:
        for name in ("dead", "alive"):
            context = contextvars.copy_context()
            context.run(PROCESS.set, name)
            loop.create_task(work(name), name=name, context=context)
            loop.call_later(2.0, log.append, f"{name} timer", context=context)
        await asyncio.sleep(1.0)
        loop.kill("dead")
        woken.set()
        await asyncio.sleep(2.0)
        assert log == ["alive", "alive ended", "alive timer"]

    loop = VirtualLoop()
    loop.run_until_complete(main(loop))
    loop.bury_all()
    loop.close()
    assert log[3:] == ["dead ended"]


def test_a_stopped_process_does_later_what_it_would_have_done() -> None:
    log: list[tuple[str, float]] = []
    woken = asyncio.Event()

    async def main(loop: VirtualLoop) -> None:
        async def work(name: str) -> None:
            await woken.wait()
            log.append((f"{name} woken", loop.time()))
            await asyncio.sleep(1.0)
            log.append((f"{name} slept", loop.time()))

        for name in ("stopped", "running"):
            context = contextvars.copy_context()
            context.run(PROCESS.set, name)
            loop.create_task(work(name), name=name, context=context)
            for at_s in (3.0, 2.0):
                told = f"{name} timer {at_s}"
                loop.call_later(at_s, lambda told=told: log.append((told, loop.time())), context=context)
        await asyncio.sleep(1.0)
        loop.stop_process("stopped")
        woken.set()
        await asyncio.sleep(4.0)
        assert sorted(name for name, _ in log) == [
            "running slept", "running timer 2.0", "running timer 3.0", "running woken",
        ]  # fmt: skip
        loop.continue_process("stopped")
        await asyncio.sleep(2.0)
        assert sorted(log[4:]) == [
            ("stopped slept", 6.0), ("stopped timer 2.0", 5.0), ("stopped timer 3.0", 5.0), ("stopped woken", 5.0),
        ]  # fmt: skip

    run_virtual(main)
