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
def stopping(stop: Callable[[], object]) -> Iterator[None]:
    """Call `stop`, from the main thread, for the first such signal; a second one is a KeyboardInterrupt.

    For a main thread that only waits: an exception at once could hit any line, also one that half made something.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    heard_before = False

    def heard(number: int, frame: FrameType | None) -> None:
        nonlocal heard_before
        if heard_before:
            raise KeyboardInterrupt
        heard_before = True
        stop()

    before = {number: signal.signal(number, heard) for number in _STOPS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


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
