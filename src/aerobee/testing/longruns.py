"""The long runs in rounds (`make spark-kills`, `make spark-faults`): a file remembers what was done, so that an
interrupted run goes on, and a table tells at the end what was found.

The file belongs to one state of the source. `FRESH=1` begins anew; so does another commit.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aerobee.runtime.clock import SystemClock

ROOT = Path(__file__).parents[3]


def state_of_source() -> str:
    """Return the commit, and a checksum of what was changed since."""
    commit = _git("rev-parse", "--short=12", "HEAD").strip()
    changes = _git("diff", "HEAD", "--", "src", "tests/spark")
    return commit + (f"+{hashlib.sha256(changes.encode()).hexdigest()[:8]}" if changes else "")


def _git(*words: str) -> str:
    done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout if done.returncode == 0 else "unknown"


@dataclass
class LongRun:
    """What was done of one kind of rounds. Without a file, it is forgotten at the end."""

    path: Path | None
    source: str = field(default_factory=state_of_source)
    done: dict[str, dict[str, Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.path is None or not self.path.exists() or os.environ.get("FRESH"):
            return
        kept = json.loads(self.path.read_text())
        if kept["source"] == self.source:
            self.done = kept["done"]
        else:
            sys.stdout.write(f"{self.path} is of {kept['source']}, and this is {self.source}: all rounds are run\n")

    def is_done(self, name: str) -> bool:
        """Return whether a round ended well in an earlier run or in this one."""
        return name in self.done

    @contextmanager
    def noted(self, name: str) -> Iterator[dict[str, Any]]:
        """Yield a dict for what a round finds. It is kept if the round ends without an error."""
        found: dict[str, Any] = {}
        clock = SystemClock()
        began_s = clock.monotonic()
        yield found
        found["seconds"] = round(clock.monotonic() - began_s, 1)
        self.done[name] = found
        if self.path is not None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            fresh = self.path.with_suffix(".new")
            fresh.write_text(json.dumps({"source": self.source, "done": self.done}, indent=1))
            os.replace(fresh, self.path)


def rounds_of(name: str) -> LongRun:
    """Return the rounds whose file the variable names, or rounds without a file."""
    path = os.environ.get(name)
    return LongRun(None if path is None else Path(path))


def table(head: tuple[str, ...], rows: list[tuple[Any, ...]]) -> str:
    """Return lines of markdown."""
    lines = [head, ("---",) * len(head), *rows]
    return "\n".join(f"| {' | '.join(str(one) for one in line)} |" for line in lines)
