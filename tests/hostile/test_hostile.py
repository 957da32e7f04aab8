"""What a client can send that it should not, against real servers: nobody else notices, and nothing is lost.

The sample runs with every suite; `make hostile` runs every case (`FROM=` goes on at a case, by its number or a piece of
its name; `ARGS="-k ..."` chooses).
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from aerobee.testing.hostile.cases import CASES
from aerobee.testing.hostile.stage import HurtError, Stage, wait_max_s

NAMES = list(CASES)
# Quick ones, each against another part.
SAMPLE = (
    "plain sends to topics that only the broker writes",
    "flags of inner batches and unknown ones",
    "SQL filters on topics with invalid names",
    "offsets at their extremes",
    "rows of a sink that can never be stored",
    "a half message in a message's body, as the copy of another's transaction",
    "wrong lengths",
    "a name server with registrations of invalid brokers",
    "a topic deleted while it is written, read and committed",
    "HTTP/2: rapid reset",
)


def first() -> int:
    """Return where to go on."""
    asked = os.environ.get("AEROBEE_HOSTILE_FROM", "").strip()
    if asked.isascii() and asked.isdigit():
        return max(0, int(asked) - 1)
    return next(number for number, name in enumerate(NAMES) if asked in name)


class Theatre:
    """A stage for as long as nobody was hurt on it; then a new one."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._stage: Stage | None = None
        self._opened = 0

    def perform(self, name: str) -> None:
        if self._stage is None:
            self._opened += 1
            directory = self._directory / f"stage-{self._opened}"
            directory.mkdir(parents=True)
            self._stage = Stage(directory / "data", wait_max_s=wait_max_s()).__enter__()
        said = f"{NAMES.index(name) + 1:3}/{len(NAMES)} {name}"
        try:
            print(f"{said}: {self._stage.perform(CASES[name])}", flush=True)
        except BaseException as error:
            print(f"{said}: HURT: {error!r}", flush=True)
            self.close()
            raise

    def close(self) -> None:
        stage, self._stage = self._stage, None
        if stage is not None:
            stage.__exit__()


@pytest.fixture(scope="module")
def theatre(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Theatre]:
    opened = Theatre(tmp_path_factory.mktemp("hostile"))
    yield opened
    opened.close()


@pytest.mark.parametrize("name", SAMPLE)
def test_nobody_notices(theatre: Theatre, name: str) -> None:
    theatre.perform(name)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES[first() :], ids=[re.sub(r"\W+", "-", name) for name in NAMES[first() :]])
def test_nobody_notices_any(theatre: Theatre, name: str) -> None:
    theatre.perform(name)


def test_a_case_that_hurts_is_seen(tmp_path: Path) -> None:
    """A broker that ends is noticed by the stage."""
    with Stage(tmp_path / "data") as stage:
        assert stage._up is not None
        process = stage._up.process
        with pytest.raises(HurtError, match=r"ended|cut off"):
            stage.perform(lambda attacker: (process.kill(), process.wait()) and None)
