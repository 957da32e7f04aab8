"""The process's own output streams."""

from __future__ import annotations

import contextlib
import os
from typing import TextIO


def silence(stream: TextIO) -> None:
    """Drop what is still written. After a closed pipe Python would complain when it flushes at its end."""
    with contextlib.suppress(OSError, ValueError):  # a stream that is no file needs nothing
        target = stream.fileno()
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, target)
        os.close(nowhere)
