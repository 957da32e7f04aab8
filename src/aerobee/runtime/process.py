"""What a client must know of its own process: id, address, environment, forks, and where the month began."""

from __future__ import annotations

import contextlib
import gc
import os
import socket
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from aerobee.model.numbers import parse_int

# glibc's malloc.h
_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3
_forks = 0


def _forked() -> None:
    global _forks
    _forks += 1


if hasattr(os, "register_at_fork"):  # not on Windows, which does not fork
    os.register_at_fork(after_in_child=_forked)


def fork_count() -> int:
    """How many forks lie between the first process and this one: what was opened at another count is not
    ours."""
    return _forks


def process_id() -> int:
    return os.getpid()


def environment() -> Mapping[str, str]:
    return os.environ


@contextlib.contextmanager
def set_environment(values: Mapping[str, str | None]) -> Iterator[None]:
    """Variables of this process and of those it starts, for a while; None takes one away."""
    before = {name: os.environ.get(name) for name in values}
    _put(values)
    try:
        yield
    finally:
        _put(before)


def _put(values: Mapping[str, str | None]) -> None:
    for name, value in values.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


# Between two collections that look at everything.
FULL_COLLECTION_S = 120.0
# Between two looks at what the C library keeps.
MEMORY_LOOK_S = 1.0
_KEPT_MAX: Final = 16 << 20
_PAUSE_MAX: Final = 63
_PAGE_SIZE: Final = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096


def spare_from_collection() -> None:
    """What lives now (modules, tables) lives as long as the process: the collector need not look at it again.

    Nor does it look at everything else whenever there is a quarter more of it: that takes 0.1 s for 300,000 objects,
    and what clients bring (subscriptions, held pulls, topics) makes as many. See `collect_all`.
    """
    gc.freeze()
    young, middle, _ = gc.get_threshold()
    gc.set_threshold(young, middle, 1_000_000)


def collect_all() -> None:
    """The collection that `spare_from_collection` puts off: for whoever serves, every FULL_COLLECTION_S."""
    gc.collect()


def keep_freed_memory() -> None:
    """Let the C library keep what buffers of megabytes leave (up to 128 MiB) for the next ones.

    By default it gives their pages back each time, and to fault them in again costs many times what filling them does.
    For processes that read in bulk; glibc alone, elsewhere nothing happens.
    """
    if not sys.platform.startswith("linux"):
        return
    import ctypes

    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, 32 << 20)
        mallopt(_M_TRIM_THRESHOLD, 128 << 20)


class FreedMemory:
    """Gives back to the system what the C library keeps of freed memory, whenever that has become much.

    Large buffers that were freed between small ones that live stay with the process, often for ever: a peak of a
    hundred megabytes would be what it needs from then on. glibc alone; elsewhere nothing happens.
    """

    def __init__(self) -> None:
        self._trim: Callable[[int], int] | None = None
        if sys.platform.startswith("linux"):
            import ctypes

            self._trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
        # The least that was ever needed, what the last look saw, and looks to let pass before the next try.
        self._least = self._before = _anonymous_bytes()
        self._pause = self._wait = 0

    def look(self) -> None:
        """Give back where there is much more than there once was: 300 MB take 20 ms.

        Not while the size changes: what is given back then is asked for again, page by page. And ever more rarely, as
        long as there is much: what was freed does not show in the process's size, so it can only be tried.
        """
        now, before = _anonymous_bytes(), self._before
        self._before = now
        self._least = min(self._least, now)
        if self._trim is None or now <= self._least + _KEPT_MAX:
            self._pause = self._wait = 0
        elif abs(now - before) <= _KEPT_MAX // 4:
            if self._wait > 0:
                self._wait -= 1
                return
            self._trim(0)
            self._before = _anonymous_bytes()
            self._pause = self._wait = min(2 * self._pause + 1, _PAUSE_MAX)
        else:
            # Something happened since the last try: it failed for reasons that may be over.
            self._pause = self._wait = 0


def _anonymous_bytes() -> int:
    """What of our memory is no file's; 0 where the system does not say."""
    try:
        with open("/proc/self/statm", encoding="ascii") as statm:
            _, resident, shared = statm.read().split()[:3]
    except (OSError, ValueError):
        return 0
    return (parse_int(resident) - parse_int(shared)) * _PAGE_SIZE


def nanoseconds() -> int:
    """A counter that two starts of a process do not share."""
    return time.monotonic_ns()


def month_bounds_ms(now_ms: int) -> tuple[int, int]:
    """First millisecond of this month and of the next, in local time. RocketMQ: MessageClientIDSetter."""
    now = time.localtime(now_ms / 1000)
    year, month = (now.tm_year + 1, 1) if now.tm_mon == 12 else (now.tm_year, now.tm_mon + 1)
    first = time.mktime((now.tm_year, now.tm_mon, 1, 0, 0, 0, 0, 0, -1))
    following = time.mktime((year, month, 1, 0, 0, 0, 0, 0, -1))
    return round(first) * 1000, round(following) * 1000


def local_address() -> str:
    """The address other machines would see, without sending anything; loopback where there is no network."""
    for family, peer in ((socket.AF_INET, "192.0.2.1"), (socket.AF_INET6, "2001:db8::1")):
        try:
            # A datagram socket only picks its route on connect; the addresses are set aside for examples.
            with socket.socket(family, socket.SOCK_DGRAM) as probe:
                probe.connect((peer, 9))
                return str(probe.getsockname()[0]).partition("%")[0]
        except OSError:
            continue
    return "127.0.0.1"
