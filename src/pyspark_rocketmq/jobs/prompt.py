"""Lines typed at `aerobee sql`: a prompt with history, statements over several lines, ended by Ctrl-D.

Owns where the history lives (`$XDG_STATE_HOME/aerobee/sql_history`) and how lines become statements.
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
    """The history of this user."""
    state = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    return Path(state) / "aerobee" / "sql_history"


def is_whole(text: str) -> bool:
    """Whether Enter ends it: at a semicolon, or where the words need none."""
    word = text.strip().lower()
    return word.endswith(";") or word in _LEAVE or word in _ALONE


@contextlib.contextmanager
def history() -> Iterator[None]:
    """The arrow keys know earlier lines while this is open; kept where the user's own state is kept."""
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
    """Each statement typed. An empty line ends one as a semicolon does; Ctrl-C forgets a half one; Ctrl-D, `quit`
    and `exit` end it all."""
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
