"""The prompt of `aerobee sql`: it has a history, accepts statements over several lines, and ends with Ctrl-D.

This module owns the history file (`$XDG_STATE_HOME/aerobee/sql_history`) and the division of lines into statements.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from pyspark_rocketmq.jobs.sql import statements

_HISTORY_MAX: Final = 1000
_LEAVE: Final = frozenset({"quit", "exit", "\\q"})
_ALONE: Final = frozenset({"help", "show tables", "show topics"})


def history_path() -> Path:
    """Return the path of this user's history."""
    state = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    return Path(state) / "aerobee" / "sql_history"


def is_whole(text: str) -> bool:
    """Return whether Enter ends the statement: after a semicolon, or for words that need none."""
    word = text.strip().lower()
    return word.endswith(";") or word in _LEAVE or word in _ALONE


@contextlib.contextmanager
def history() -> Iterator[None]:
    """Give the arrow keys the earlier lines of the user, and save the history at the end."""
    try:
        import readline
    except ImportError:  # not on Windows: the prompt works without
        yield
        return
    path = history_path()
    readline.set_history_length(_HISTORY_MAX)
    with contextlib.suppress(OSError):
        readline.read_history_file(path)
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            readline.write_history_file(path)


def typed() -> Iterator[str]:
    """Return each statement that is typed.

    A semicolon or an empty line ends a statement. Ctrl-C discards an incomplete one. Ctrl-D, `quit` and `exit` end the
    prompt.
    """
    while True:
        try:
            text = _one()
        except KeyboardInterrupt:
            sys.stderr.write("\n")
            continue
        except EOFError:
            sys.stderr.write("\n")
            return
        if text.strip().rstrip(";").lower() in _LEAVE:
            return
        yield from statements(text)


def _one() -> str:
    lines: list[str] = []
    while True:
        line = input("...> " if lines else "sql> ")
        if line.strip():
            lines.append(line)
            if is_whole("\n".join(lines)):
                break
        elif lines:
            break
    return "\n".join(lines)
