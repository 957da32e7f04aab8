"""What every thread and every task of this process is doing now, as text."""

from __future__ import annotations

import asyncio
import sys
import threading
import traceback
from typing import Final

_SIZE_MAX: Final = 256_000
_DEPTH_MAX: Final = 50


def stacks() -> str:
    """Return the stack of each thread, and of each task of the running loop. Very long texts are cut."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    parts = []
    for ident, frame in sys._current_frames().items():
        parts.append(f"Thread {names.get(ident, ident)}\n{''.join(traceback.format_stack(frame, _DEPTH_MAX))}")
    for task in _tasks():
        lines = [
            f'  File "{frame.f_code.co_filename}", line {frame.f_lineno}, in {frame.f_code.co_name}\n'
            for frame in task.get_stack(limit=_DEPTH_MAX)
        ]
        parts.append(f"Task {task.get_name()}\n{''.join(lines)}")
    return "\n".join(parts)[:_SIZE_MAX]


def _tasks() -> list[asyncio.Task[object]]:
    try:
        return sorted(asyncio.all_tasks(), key=lambda task: task.get_name())
    except RuntimeError:
        return []
