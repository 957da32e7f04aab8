"""The process's own output streams."""

from __future__ import annotations

import contextlib
import os
import sys
from typing import TextIO


def open_closed_streams() -> None:
    """Open what the caller has closed of the standard streams, so that what is written there is dropped.

    Python has no stream in its place (None), and the next file that is opened would get its number.
    """
    while (opened := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(opened)
    sys.stdin = sys.stdin or open(os.devnull)
    sys.stdout = sys.stdout or open(os.devnull, "w")
    sys.stderr = sys.stderr or open(os.devnull, "w")


def silence(stream: TextIO) -> None:
    """Drop what is still written. After a closed pipe Python would complain when it flushes at its end."""
    with contextlib.suppress(OSError, ValueError):  # a stream that is no file needs nothing
        target = stream.fileno()
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, target)
        os.close(nowhere)
