"""Being asked to stop: SIGTERM and Ctrl-C, where the process's main thread can hear them."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType

_STOPS = (signal.SIGINT, signal.SIGTERM)


def on_stop(loop: asyncio.AbstractEventLoop, stop: Callable[[], object]) -> Callable[[], None]:
    """Call `stop` on the loop for each such signal; the function returned puts everything back.

    Does nothing off the main thread, which alone may handle signals.
    """
    if threading.current_thread() is not threading.main_thread():
        return lambda: None

    def heard(number: int, frame: FrameType | None) -> None:
        loop.call_soon_threadsafe(stop)

    before = {number: signal.signal(number, heard) for number in _STOPS}
    # A loop that only waits for sockets is not woken by a Python handler unless a descriptor is written to.
    with contextlib.suppress(NotImplementedError, RuntimeError):
        for number in _STOPS:
            loop.add_signal_handler(number, stop)

    def restore() -> None:
        with contextlib.suppress(NotImplementedError, RuntimeError):
            for number in _STOPS:
                loop.remove_signal_handler(number)
        for number, handler in before.items():
            signal.signal(number, handler)

    return restore


@contextlib.contextmanager
def terminate_interrupts() -> Iterator[None]:
    """SIGTERM as KeyboardInterrupt in the main thread, as Ctrl-C is."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def heard(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, heard)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
