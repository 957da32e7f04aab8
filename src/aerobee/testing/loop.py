"""An asyncio loop on virtual time. Waiting costs nothing, and a seed gives the same run in every process.

There are no sockets and no threads: what would need one raises. A loop with nothing to do and nothing to wait for
raises DeadlockError. With `shuffle`, task steps that are ready in the same turn run in a seeded order, which
explores interleavings; plain callbacks keep the order that asyncio promises for them. Which tasks are ready in a
turn is asyncio's own decision, so shuffled runs repeat within one Python version, and others also across versions.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import hashlib
import heapq
import math
from asyncio import base_events
from collections import deque
from collections.abc import Callable, Coroutine, Iterable
from concurrent.futures import Executor
from typing import Any, NoReturn, TypeVar, TypeVarTuple

from aerobee.testing.entropy import SeededEntropy

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

_RESOLUTION_S = 1e-9
# The name of the simulated process that a task or callback belongs to; "" is the simulation itself.
PROCESS: contextvars.ContextVar[str] = contextvars.ContextVar("PROCESS", default="")


class DeadlockError(RuntimeError):
    """Every task waits, and no timer is set."""


class LivelockError(RuntimeError):
    """Turn follows turn, and time does not move."""


class VirtualLoop(base_events.BaseEventLoop):
    """A loop whose time starts at 0 and moves only to the next timer. `turns_max` turns without that are a livelock."""

    def __init__(self, *, seed: int = 0, shuffle: bool = False, turns_max: int = 1_000_000) -> None:
        super().__init__()
        self._virtual_s = 0.0
        self._turns = 0
        self._turns_max = turns_max
        self._entropy = SeededEntropy(seed) if shuffle else None
        self._dead: dict[str, None] = {}
        # What processes that are stopped would do, in order.
        self._stopped: dict[str, list[asyncio.Handle]] = {}
        # The tasks at each kill. They are kept, because collecting those of the dead would run their `finally` blocks.
        self._buried: list[asyncio.Task[Any]] = []
        # What BaseEventLoop._run_once asks of a selector loop:
        self._ready: deque[asyncio.Handle]
        self._selector = self
        self._scheduled: list[asyncio.TimerHandle]
        self._clock_resolution = _RESOLUTION_S

    def time(self) -> float:
        return self._virtual_s

    def select(self, timeout: float | None) -> list[NoReturn]:
        """Move time forward, in place of a selector. Nothing is ever readable."""
        if timeout is None:
            raise DeadlockError(f"nothing is ready and no timer is set: {_names_of(asyncio.all_tasks(self))}")
        if timeout > 0:
            self._move_by(timeout)
            self._turns = 0
        else:
            self._turns += 1
            if self._turns > self._turns_max:
                raise LivelockError(f"{self._turns_max} turns at {self._virtual_s} s")
        if self._dead:
            self._drop_dead(self._ready)
        if self._stopped:
            self._hold_stopped()
        if self._entropy is not None and len(self._ready) > 1:
            _shuffle_tasks(self._ready, self._entropy)
        return []

    def _move_by(self, timeout: float) -> None:
        """Move exactly to the next timer; adding may round to just before it. The loop's resolution must stay wide
        enough to count in these floats, or a timer that is due would never run."""
        when = self._scheduled[0].when() if self._scheduled else 0.0
        self._virtual_s = when if when - self._virtual_s == timeout else self._virtual_s + timeout
        self._clock_resolution = max(_RESOLUTION_S, 2 * math.ulp(self._virtual_s))

    # --- processes

    def kill(self, process: str) -> None:
        """End a process as kill -9 does: no step of its tasks and no callback of it runs any more."""
        self._dead[process] = None
        self._stopped.pop(process, None)
        self._buried += asyncio.all_tasks(self)
        self._drop_dead(self._ready)
        self._drop_dead(self._scheduled)

    def _drop_dead(self, handles: Iterable[asyncio.Handle]) -> None:
        for handle in list(handles):
            if handle._context.get(PROCESS) in self._dead:  # type: ignore[attr-defined]
                handle.cancel()

    def stop_process(self, process: str) -> None:
        """Let nothing of a process run until `continue_process`, as SIGSTOP does. Time goes on for it."""
        self._stopped.setdefault(process, [])
        self._hold_stopped()

    def continue_process(self, process: str) -> None:
        """Run what a stopped process would have done meanwhile, and what it does from now on."""
        for handle in self._stopped.pop(process, ()):
            if handle.cancelled():
                continue
            if isinstance(handle, asyncio.TimerHandle):
                heapq.heappush(self._scheduled, handle)
                handle._scheduled = True  # type: ignore[attr-defined]
            else:
                self._ready.append(handle)

    def _hold_stopped(self) -> None:
        ready = list(self._ready)
        self._ready.clear()
        for handle in ready:
            if self._is_stopped(handle):
                self._stopped[handle._context[PROCESS]].append(handle)  # type: ignore[attr-defined]
            else:
                self._ready.append(handle)
        held = [handle for handle in self._scheduled if self._is_stopped(handle)]
        if held:
            self._scheduled = [handle for handle in self._scheduled if not self._is_stopped(handle)]
            heapq.heapify(self._scheduled)
            for handle in sorted(held):
                handle._scheduled = False  # type: ignore[attr-defined]
                self._stopped[handle._context[PROCESS]].append(handle)  # type: ignore[attr-defined]

    def _is_stopped(self, handle: asyncio.Handle) -> bool:
        return handle._context.get(PROCESS) in self._stopped  # type: ignore[attr-defined]

    def bury_all(self) -> None:
        """Close every task that is left, so that the loop can be closed without waiting for any of them."""
        buried: set[asyncio.Task[Any]] = set()
        asyncio._set_running_loop(self)  # for `finally` blocks, which may start another task
        try:
            while left := asyncio.all_tasks(self) - buried:
                for task in sorted(left, key=lambda task: task.get_name()):
                    task._log_destroy_pending = False  # type: ignore[attr-defined]
                    coroutine = task.get_coro()
                    assert coroutine is not None
                    with contextlib.suppress(RuntimeError):
                        coroutine.close()
                buried |= left
        finally:
            asyncio._set_running_loop(None)

    # --- what BaseEventLoop asks

    def _process_events(self, event_list: list[NoReturn]) -> None:
        """Do nothing: there are no events."""

    def _write_to_self(self) -> None:
        """Do nothing: nobody sleeps in a selector."""

    def run_in_executor(self, executor: Executor | None, func: Callable[[*Ts], T], *args: *Ts) -> asyncio.Future[T]:
        raise RuntimeError("a virtual loop has no threads")


class Trace:
    """What happened, as one hash: equal hashes are equal runs. The last lines are kept to show where two runs
    differ."""

    def __init__(self, now: Callable[[], float], *, kept_max: int = 200) -> None:
        self._now = now
        self._hash = hashlib.sha256()
        self.count = 0
        self.lines: deque[str] = deque(maxlen=kept_max)

    def note(self, *words: object) -> None:
        """Add an event. Its words must print the same in every process: no objects with an address, no sets."""
        line = f"{self._now():.9f} " + " ".join(map(str, words))
        self._hash.update(line.encode() + b"\n")
        self.lines.append(line)
        self.count += 1

    def digest(self) -> str:
        return self._hash.hexdigest()


def run_virtual(
    main: Callable[[VirtualLoop], Coroutine[object, object, T]],
    *,
    seed: int = 0,
    shuffle: bool = False,
    turns_max: int = 1_000_000,
) -> T:
    """Run `main(loop)` to its end on a new virtual loop. Tasks that are left over are cancelled."""
    loop = VirtualLoop(seed=seed, shuffle=shuffle, turns_max=turns_max)
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        return runner.run(main(loop))


def _shuffle_tasks(ready: deque[asyncio.Handle], entropy: SeededEntropy) -> None:
    handles = list(ready)
    places = [place for place, handle in enumerate(handles) if _is_task_step(handle)]
    if len(places) < 2:
        return
    steps = [handles[place] for place in places]
    entropy.shuffle(steps)
    for place, step in zip(places, steps, strict=True):
        handles[place] = step
    ready.clear()
    ready.extend(handles)


def _is_task_step(handle: asyncio.Handle) -> bool:
    callback = getattr(handle, "_callback", None)
    return isinstance(getattr(callback, "__self__", None), asyncio.Task)


def _names_of(tasks: set[asyncio.Task[Any]]) -> str:
    return ", ".join(sorted(task.get_name() for task in tasks)) or "no tasks"
