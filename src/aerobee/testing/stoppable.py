"""A thread with an event loop that can be stopped and continued, as SIGSTOP and SIGCONT do with a process."""

from __future__ import annotations

import threading

from aerobee.runtime.loopthread import LoopThread


class StoppableThread(LoopThread):
    """An event loop on a thread of its own. While it is paused, nothing of it runs."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self._gate: threading.Event | None = None

    @property
    def is_paused(self) -> bool:
        return self._gate is not None

    def pause(self) -> None:
        """Stop the loop between two callbacks and return when it stands still. A second call does nothing."""
        if self._gate is not None:
            return
        gate, stands = threading.Event(), threading.Event()

        def wait() -> None:
            stands.set()
            gate.wait()

        self.loop.call_soon_threadsafe(wait)
        stands.wait()
        self._gate = gate

    def resume(self) -> None:
        """Let the loop go on."""
        gate, self._gate = self._gate, None
        if gate is not None:
            gate.set()
