"""What a client must know of its own process: id, address, environment, forks, and the start of the month."""

from __future__ import annotations

import contextlib
import gc
import os
import signal
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
    """Return how many forks lie between the first process and this one. What was opened at another count belongs to
    another process."""
    return _forks


def process_id() -> int:
    return os.getpid()


def ask_to_end(pid: int) -> None:
    """Send SIGTERM to another process. Raise OSError where that is not allowed or there is none."""
    os.kill(pid, signal.SIGTERM)


def is_running(pid: int) -> bool:
    """Tell whether another process runs. One that has ended and waits for its parent does not."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    with contextlib.suppress(OSError), open(f"/proc/{pid}/stat", "rb") as file:
        return not file.read().rpartition(b")")[2].lstrip().startswith(b"Z")
    return True


def environment() -> Mapping[str, str]:
    return os.environ


@contextlib.contextmanager
def set_environment(values: Mapping[str, str | None]) -> Iterator[None]:
    """Set variables of this process and of its children for a while. None removes one."""
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


# The time between two collections of everything.
FULL_COLLECTION_S = 120.0
# The time between two checks of what the C library keeps.
MEMORY_LOOK_S = 1.0
_KEPT_MAX: Final = 16 << 20
_PAUSE_MAX: Final = 63
_PAGE_SIZE: Final = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096


def spare_from_collection() -> None:
    """Tell the collector that the objects alive now (modules, tables) live as long as the process, so that it need
    not look at them again.

    The collector does not look either at everything else whenever there is a quarter more of it: that takes 0.1 s
    for 300,000 objects, and what clients bring (subscriptions, held pulls, topics) makes as many. See `collect_all`.
    """
    gc.freeze()
    young, middle, _ = gc.get_threshold()
    gc.set_threshold(young, middle, 1_000_000)


def collect_all() -> None:
    """Do the collection that `spare_from_collection` puts off. A server calls this every FULL_COLLECTION_S."""
    gc.collect()


def keep_freed_memory() -> None:
    """Let the C library keep the memory of freed buffers (up to 128 MiB) for the next ones.

    By default it gives their pages back each time, and faulting them in again costs many times what filling them
    does. This is for processes that read in bulk. It has an effect with glibc only.
    """
    if not sys.platform.startswith("linux"):
        return
    import ctypes

    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, 32 << 20)
        mallopt(_M_TRIM_THRESHOLD, 128 << 20)


class FreedMemory:
    """Gives freed memory that the C library keeps back to the system when there is much of it.

    Large buffers that were freed between small live ones stay with the process, often for ever: after a peak of a
    hundred megabytes the process would keep that much. It has an effect with glibc only.
    """

    def __init__(self) -> None:
        self._trim: Callable[[int], int] | None = None
        if sys.platform.startswith("linux"):
            import ctypes

            self._trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
        # The smallest size ever seen, the size at the last check, and how many checks to skip before the next try.
        self._least = self._before = _anonymous_bytes()
        self._pause = self._wait = 0

    def look(self) -> None:
        """Give memory back if there is much more of it than at the lowest point. 300 MB take 20 ms.

        Wait while the size changes, because what is given back then is soon needed again. Try ever more rarely while
        there is much: freed memory does not show in the size of the process, so it can only be tried.
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
    """Return how much memory of this process belongs to no file, or 0 if the system does not say."""
    try:
        with open("/proc/self/statm", encoding="ascii") as statm:
            _, resident, shared = statm.read().split()[:3]
    except (OSError, ValueError):
        return 0
    return (parse_int(resident) - parse_int(shared)) * _PAGE_SIZE


def nanoseconds() -> int:
    """Return a counter that two starts of a process do not share."""
    return time.monotonic_ns()


def month_bounds_ms(now_ms: int) -> tuple[int, int]:
    """Return the first millisecond of this month and of the next, in local time. RocketMQ: MessageClientIDSetter."""
    now = time.localtime(now_ms / 1000)
    year, month = (now.tm_year + 1, 1) if now.tm_mon == 12 else (now.tm_year, now.tm_mon + 1)
    first = time.mktime((now.tm_year, now.tm_mon, 1, 0, 0, 0, 0, 0, -1))
    following = time.mktime((year, month, 1, 0, 0, 0, 0, 0, -1))
    return round(first) * 1000, round(following) * 1000


def local_address() -> str:
    """Return the address that other machines would see, or loopback if there is no network. Nothing is sent."""
    for family, peer in ((socket.AF_INET, "192.0.2.1"), (socket.AF_INET6, "2001:db8::1")):
        try:
            # Connecting a datagram socket only chooses a route. The addresses are reserved for documentation.
            with socket.socket(family, socket.SOCK_DGRAM) as probe:
                probe.connect((peer, 9))
                return str(probe.getsockname()[0]).partition("%")[0]
        except OSError:
            continue
    return "127.0.0.1"
