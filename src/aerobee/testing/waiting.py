"""Waiting, without asyncio, for what another process or thread brings about and no event tells."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar

from aerobee.runtime.clock import SystemClock

PATIENCE_S: Final = 60.0
_POLL_S: Final = 0.02
_CLOCK: Final = SystemClock()

T = TypeVar("T")


def wait_until(holds: Callable[[], T], what: str | Callable[[], str] = "", within_s: float = PATIENCE_S) -> T:
    """Ask until the answer is true, and return it. Raise AssertionError with `what` where it never is."""
    pause = threading.Event()
    until_s = _CLOCK.monotonic() + within_s
    while not (found := holds()):
        if _CLOCK.monotonic() >= until_s:
            said = what() if callable(what) else what
            raise AssertionError(f"it did not come to hold within {within_s:g} s: {said or found!r}")
        pause.wait(_POLL_S)
    return found


def wait_for_words(path: Path, words: str, within_s: float = PATIENCE_S) -> None:
    """Wait until a file that another process writes has the words."""
    wait_until(lambda: words in path.read_text(), lambda: f"{words!r} in {path.read_text()}", within_s)
