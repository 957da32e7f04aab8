"""The main thread waits for a coroutine, and hears signals meanwhile."""

from __future__ import annotations

import concurrent.futures
import signal
import sys
import threading

import pytest

from aerobee.runtime.loopthread import LoopThread


@pytest.mark.skipif(sys.platform == "win32", reason="no signal can be sent to a thread")
def test_a_signal_that_does_not_end_the_wait_is_heard() -> None:
    """One that comes just before the main thread blocks does not wake it, as one that another thread takes does not."""
    future: concurrent.futures.Future[str] = concurrent.futures.Future()
    before = signal.signal(signal.SIGUSR1, lambda number, frame: future.set_result("heard"))
    unheard = threading.Timer(30, future.set_result, ("not heard",))

    def take() -> None:
        signal.pthread_kill(threading.get_ident(), signal.SIGUSR1)

    taking = threading.Timer(0.1, take)
    unheard.start()
    taking.start()
    try:
        assert LoopThread.wait(future) == "heard"
    finally:
        unheard.cancel()
        taking.join()
        signal.signal(signal.SIGUSR1, before)
