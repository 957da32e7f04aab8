"""SIGTERM under load: everybody is answered or sees the connection close, and the store is closed as a whole."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from aerobee.errors import RequestTimeoutError, TransportError
from aerobee.protocol.codes import ResponseCode
from aerobee.runtime.clock import SystemClock
from aerobee.testing.processes import ProcessCluster
from aerobee.testing.workload import RawClient

CLOCK = SystemClock()
SENDERS = 10
INTERVAL_S = 0.1
HELD = 20
LOAD_S = 1.0


class Load:
    """Senders at 100 a second and pulls that are held, until the broker is gone."""

    def __init__(self, address: str) -> None:
        self.acked: list[tuple[int, str]] = []  # queue offset, body
        self.problems: list[str] = []
        self.pulled = 0
        self._address = address

    async def send(self, number: int) -> None:
        client = RawClient(self._address)
        sequence = 0
        try:
            while True:
                body = f"{number}-{sequence}"
                answer = await client.send("stop", 0, body.encode())
                if answer.code == ResponseCode.SUCCESS:
                    self.acked.append((int(answer.ext["queueOffset"]), body))
                sequence += 1
                await asyncio.sleep(INTERVAL_S)
        except RequestTimeoutError as error:
            self.problems.append(f"sender {number} was left waiting: {error}")
        except TransportError:
            pass  # closed: what was not answered may be stored or not
        await client.close()

    async def hold(self, number: int) -> None:
        """A pull of a queue that stays empty: held for 15 s, unless the broker stops."""
        client = RawClient(self._address)
        try:
            code, _, _ = await client.pull("stop", 1, 0, group=f"held-{number}", hold_ms=15_000)
            self.pulled += code == ResponseCode.PULL_NOT_FOUND
        except RequestTimeoutError as error:
            self.problems.append(f"pull {number} was left waiting: {error}")
        except TransportError:
            pass
        await client.close()


async def stop_under_load(directory: Path, flush: str) -> None:
    async with ProcessCluster(directory, settings={"flushDiskType": flush}) as cluster:
        broker = cluster.brokers[0]
        admin = RawClient(broker.address)
        await admin.create_topic("stop", 2)
        await admin.close()
        load = Load(broker.address)
        pulls = [asyncio.ensure_future(load.hold(number)) for number in range(HELD)]
        sends = [asyncio.ensure_future(load.send(number)) for number in range(SENDERS)]
        await asyncio.sleep(LOAD_S)
        began_s = CLOCK.monotonic()
        code = await broker.stop()
        stopped_s = CLOCK.monotonic() - began_s
        _, left = await asyncio.wait([*pulls, *sends], timeout=60)
        assert not left, "somebody still waits for a broker that is gone"
        aborted = (cluster.store_path(0) / "abort").exists()
        started_s = await cluster.restart(0)
        reader = RawClient(broker.address)
        found: dict[int, str] = {}
        while True:
            _, _, more = await reader.pull("stop", 0, len(found), hold_ms=0)
            if not more:
                break
            found.update(more)
        await reader.close()
        print(
            f"\n{flush}: SIGTERM with {len(load.acked)} sends behind it and {HELD} pulls held: stopped in "
            f"{stopped_s * 1000:.0f} ms, {load.pulled} held pulls answered; {len(found)} messages after the restart, "
            f"which took {started_s * 1000:.0f} ms"
        )
        assert (code, aborted) == (0, False)
        assert load.problems == []
        assert load.pulled == HELD
        assert [(offset, body) for offset, body in load.acked if found.get(offset) != body] == []
        assert "Traceback" not in broker.log_text()


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
def test_sigterm_under_load_answers_everybody_and_closes_the_store(tmp_path: Path, flush: str) -> None:
    asyncio.run(stop_under_load(tmp_path, flush))
