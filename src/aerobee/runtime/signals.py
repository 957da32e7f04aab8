"""Signals that ask a process to stop: SIGTERM, Ctrl-C and a closed terminal. Only the main thread can handle them."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType

# A closed terminal sends SIGHUP, which Windows does not have. Under nohup it is ignored and stays ignored.
_HANGUP: signal.Signals | None = getattr(signal, "SIGHUP", None)
_STOPS = (signal.SIGINT, signal.SIGTERM)


def stop_signals() -> tuple[signal.Signals, ...]:
    """Return the signals that ask this process to stop."""
    if _HANGUP is None or signal.getsignal(_HANGUP) is signal.SIG_IGN:
        return _STOPS
    return (*_STOPS, _HANGUP)


def on_stop(
    loop: asyncio.AbstractEventLoop, stop: Callable[[], object], *, interrupt: bool = True
) -> Callable[[], None]:
    """Call `stop` on the loop for each such signal. Return a function that restores the handlers.

    Without `interrupt` Ctrl-C keeps its meaning: asyncio cancels the work and raises KeyboardInterrupt. Off the main
    thread, which alone may handle signals, do nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        return lambda: None

    def heard(number: int, frame: FrameType | None) -> None:
        loop.call_soon_threadsafe(stop)

    stops = [number for number in stop_signals() if interrupt or number is not signal.SIGINT]
    before = {number: signal.signal(number, heard) for number in stops}
    # A loop that only waits for sockets is not woken by a Python handler unless a descriptor is written to.
    with contextlib.suppress(NotImplementedError, RuntimeError):
        for number in stops:
            loop.add_signal_handler(number, stop)

    def restore() -> None:
        with contextlib.suppress(NotImplementedError, RuntimeError):
            for number in stops:
                loop.remove_signal_handler(number)
        for number, handler in before.items():
            signal.signal(number, handler)

    return restore


@contextlib.contextmanager
def on_hangup(loop: asyncio.AbstractEventLoop, call: Callable[[], None]) -> Iterator[None]:
    """Call a function on the loop for each SIGHUP, which otherwise stops a server.

    A process with a terminal keeps its meaning: the terminal was closed. So does one that ignores the signal (nohup).
    """
    is_main = threading.current_thread() is threading.main_thread()
    if _HANGUP is None or not is_main or _has_terminal() or signal.getsignal(_HANGUP) is signal.SIG_IGN:
        yield
        return
    loop.add_signal_handler(_HANGUP, call)
    try:
        yield
    finally:
        loop.remove_signal_handler(_HANGUP)


def _has_terminal() -> bool:
    try:
        os.close(os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY))
    except OSError:
        return False
    return True


@contextlib.contextmanager
def stopping(stop: Callable[[], object]) -> Iterator[None]:
    """Call `stop`, from the main thread, for the first such signal. A second one raises KeyboardInterrupt.

    This is for a main thread that only waits. An exception at once could interrupt any line and leave something half
    done.
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

    before = {number: signal.signal(number, heard) for number in stop_signals()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def terminate_interrupts() -> Iterator[None]:
    """Raise KeyboardInterrupt in the main thread for SIGTERM and SIGHUP, as for Ctrl-C."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def heard(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = {number: signal.signal(number, heard) for number in stop_signals() if number is not signal.SIGINT}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
