"""Three rounds of `make failovers`: a master is killed, its disk breaks, and the coordination store is killed."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from aerobee.testing.failovers.rounds import KINDS, Round, Rounds

_ROUNDS = [KINDS.index(kind) for kind in ("kill -9", "disk error", "store killed")]


@pytest.mark.timeout(300)
def test_a_group_goes_on_without_its_master_its_disk_and_its_store(tmp_path: Path) -> None:
    async def main() -> list[Round]:
        rounds = Rounds(tmp_path)
        try:
            await rounds.start()
            return [await rounds.run(number) for number in _ROUNDS]
        finally:
            await rounds.close()

    for one in asyncio.run(main()):
        assert one.acknowledged > 100, one
        assert (one.lost, one.reordered) == (0, 0), one
        # A machine under load is slow. `make failovers` tells the time on a quiet one.
        assert one.goes_on_s < 15.0, one
