"""A sample of `make fuzz`: every reader of what comes from outside meets some thousand mutated inputs."""

from __future__ import annotations

import pytest

from aerobee.testing.fuzz.__main__ import FuzzError, fuzz
from aerobee.testing.fuzz.targets import Target, targets


@pytest.mark.parametrize("target", targets(), ids=lambda target: target.name)
def test_a_reader_raises_nothing_but_what_it_declares(target: Target) -> None:
    fuzz(target, 2_000, seed=7)


def test_a_fault_is_found_and_can_be_seen_again() -> None:
    def read(data: bytes) -> None:
        data.decode("ascii")

    with pytest.raises(FuzzError, match="--only 'planted' --input"):
        fuzz(Target("planted", [b"text"], read), 1_000, seed=1)
