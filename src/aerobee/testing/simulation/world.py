"""The simulated world: machines on one network and one virtual time, and the trace of what happens to them.

A machine has an address, a disk, a wall clock and at most one process. A process is whatever was started in its
context (`PROCESS`): killing it stops its tasks and timers where they stand, and nothing of it runs again.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections import Counter
from collections.abc import Coroutine
from typing import Any
from zlib import crc32

from aerobee.runtime.tasks import LoopTimers
from aerobee.testing.clock import VirtualClock
from aerobee.testing.crash import CrashMode
from aerobee.testing.disk import RecordingDisk
from aerobee.testing.entropy import SeededEntropy
from aerobee.testing.faults import DiskCall
from aerobee.testing.loop import PROCESS, Trace, VirtualLoop
from aerobee.testing.net import SimNet
from aerobee.testing.stream import Signal

# How long a sync or a cold read of a healthy disk takes.
DISK_DELAY_S = (0.0005, 0.003)
ROOT = "/store"


class World:
    """Everything that one run shares."""

    def __init__(self, loop: VirtualLoop, seed: int) -> None:
        self.loop = loop
        self.seed = seed
        self.entropy = SeededEntropy(seed)
        self.net = SimNet(loop, seed=seed)
        self.trace = Trace(loop.time)
        # How often each kind of fault happened.
        self.faults: Counter[str] = Counter()
        self.machines: dict[str, Machine] = {}
        # Words of log lines that a fault explains.
        self.expected_errors: set[str] = set()
        # Processes that ended by an error.
        self.problems: list[str] = []
        self.net.on_arrival = self._arrived

    def machine(self, address: str) -> Machine:
        made = self.machines[address] = Machine(self, address)
        return made

    def _arrived(self, source: tuple[str, int], target: tuple[str, int], payload: bytes | Signal) -> None:
        if isinstance(payload, bytes):
            self.trace.note("net", source[0], source[1], target[0], target[1], len(payload), crc32(payload))
        else:
            self.trace.note("net", source[0], source[1], target[0], target[1], payload.value)


class Machine:
    """One host, and the process that runs on it."""

    def __init__(self, world: World, address: str) -> None:
        self.world = world
        self.address = address
        self.net = world.net.host(address)
        self.clock = VirtualClock(world.loop.time)
        # By how much the wall clock was set forward, over the whole run.
        self.jumped_ms = 0
        # By how much it was set at all, in either direction.
        self.clock_moved_ms = 0
        # Added to each sync and read while the disk is slow.
        self.slow_s = 0.0
        self.process = ""
        # How often the machine was switched on.
        self.boots = 1
        # Whether the process was stopped by SIGSTOP.
        self.is_stopped = False
        # Why nothing runs: "", "killed", "power" or "stopped".
        self.down = ""
        self._entropy = world.entropy.fork()
        self._launches = 0
        self._task: asyncio.Task[Any] | None = None
        self.disk = RecordingDisk(seed=world.seed, existing=(ROOT,))
        self._equip()

    @property
    def entropy(self) -> SeededEntropy:
        return self._entropy

    @property
    def launches(self) -> int:
        """How often a process was started here."""
        return self._launches

    def launch(self, work: Coroutine[Any, Any, None]) -> None:
        """Start a process that does this work."""
        if self.down == "power":
            self.boots += 1
            self.world.net.power_on(self.address)
        self.down = ""
        self._launches += 1
        self.process = f"{self.address}/{self._launches}"
        self.world.trace.note("launch", self.process)
        context = contextvars.copy_context()
        context.run(PROCESS.set, self.process)
        self._task = self.world.loop.create_task(work, name=self.process, context=context)
        self._task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self.world.problems.append(f"process {task.get_name()} failed: {error!r}")

    async def stopped(self) -> None:
        """Wait until the process has ended by itself."""
        if self._task is not None:
            await asyncio.wait([self._task])

    def kill(self) -> None:
        """End the process as kill -9 does. What it has written stays, synced or not."""
        self._end("killed")
        self.world.net.kill(self.address)
        self.disk = self.disk.kill()
        self._equip()

    def cut_power(self, mode: CrashMode) -> None:
        """Switch the machine off. Of what was not synced, only what `mode` chooses is on the disk afterwards."""
        self._end("power")
        self.world.net.power_off(self.address)
        self.disk = self.disk.crash(mode, self._entropy.below(1 << 30))
        self._equip()

    def stop(self) -> None:
        """Stop the process as SIGSTOP does, until `go_on`."""
        self.is_stopped = True
        self.world.loop.stop_process(self.process)
        self.world.net.stop(self.address)
        self.world.trace.note("stopped", self.process)

    def go_on(self) -> None:
        """Let a stopped process run again (SIGCONT)."""
        if self.is_stopped:
            self.is_stopped = False
            self.world.trace.note("continued", self.process)
            self.world.net.go_on(self.address)
            self.world.loop.continue_process(self.process)

    def jump(self, milliseconds: int) -> None:
        """Set the wall clock forward, or back."""
        self.clock.jump(milliseconds)
        self.jumped_ms += max(0, milliseconds)
        self.clock_moved_ms += abs(milliseconds)

    def _end(self, how: str) -> None:
        self.down = how
        self.is_stopped = False
        self.world.loop.kill(self.process)
        self.world.trace.note(how, self.process)

    def _equip(self) -> None:
        self.disk.complete_by(LoopTimers(self.world.loop), self._disk_delay)
        self.disk.after_call = self._disk_called

    def _disk_delay(self) -> float:
        return self._entropy.between(*DISK_DELAY_S) + self.slow_s

    def _disk_called(self, call: DiskCall) -> None:
        self.world.trace.note("disk", self.address, call.kind, call.path, call.offset, call.size)
