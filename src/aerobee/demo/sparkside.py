"""The Spark process of the demo as its parent sees it: it starts while messages flow, and joins later."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from aerobee.demo.ledger import Shops
from aerobee.errors import AerobeeError

_LEAVE_S = 15.0
# When no report came for this time, none will come.
_STUCK_S = 120.0


class SparkFailedError(AerobeeError):
    """The Spark process started and failed."""


@dataclass(frozen=True, slots=True)
class Batch:
    """The rows of one batch and the time at which Spark worked on it."""

    rows: int
    began_ms: int
    took_ms: int


@dataclass(frozen=True, slots=True)
class ParquetTable:
    """The content of the table that Spark wrote."""

    rows: int
    shops: Shops


class SparkSide:
    """The process and its reports. The process ends with the `async with`."""

    def __init__(self, directory: Path, rows_per_batch: int, tell: Callable[[str], None]) -> None:
        self.batches: list[Batch] = []
        self.skipped: str | None = None
        self._directory = directory
        self._rows_per_batch = rows_per_batch
        self._tell = tell
        self._process: asyncio.subprocess.Process | None = None
        self._reading: asyncio.Task[None] | None = None
        self._joined = asyncio.Event()
        self._over = asyncio.Event()
        self._table: ParquetTable | None = None
        self._failure: str | None = None
        self._reports = 0

    async def start(self, namesrv: str) -> None:
        """Start the process. Its reports arrive in the background."""
        self._directory.mkdir()
        arguments = ("-m", "aerobee.demo.pipeline", namesrv, str(self._directory), str(self._rows_per_batch))
        # The process has a session of its own, so that Ctrl-C on a terminal reaches only its parent, which stops it.
        with (self._directory / "python.log").open("wb") as log:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                *arguments,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
                cwd=self._directory,
                env={**os.environ, "TMPDIR": str(self._directory)},
                start_new_session=True,
            )
        self._reading = asyncio.create_task(self._read())

    @property
    def rows(self) -> int:
        return sum(batch.rows for batch in self.batches)

    @property
    def is_reading(self) -> bool:
        return self._joined.is_set() and self.skipped is None

    async def joined(self) -> bool:
        """Wait until the query runs; return False where there will be none."""
        await self._until(self._joined)
        return self.skipped is None

    async def finish(self, stored: int) -> ParquetTable:
        """Let Spark read as many messages as the topic holds; return what its table holds then."""
        assert self._process is not None and self._process.stdin is not None
        self._process.stdin.write(f"finish {stored}\n".encode())
        await self._until(self._over)
        if self._table is None:
            raise SparkFailedError(f"Spark failed: {self._failure}")
        return self._table

    async def _until(self, event: asyncio.Event) -> None:
        while not event.is_set():
            before = self._reports
            try:
                async with asyncio.timeout(_STUCK_S):
                    await event.wait()
            except TimeoutError:
                if self._reports == before:
                    raise SparkFailedError(f"Spark has not reported anything for {_STUCK_S:.0f} s") from None

    # -- reports

    async def _read(self) -> None:
        process = self._process
        assert process is not None and process.stdout is not None
        async for line in process.stdout:
            self._heard(json.loads(line))
        if self._table is None and self._failure is None and self.skipped is None:
            self._fail(self._last_words(await process.wait()))

    def _heard(self, report: dict[str, Any]) -> None:
        self._reports += 1
        event = report.pop("event")
        if event == "skipped":
            self.skipped = report["why"]
            self._tell(f"the Spark half is skipped: {self.skipped}")
            self._joined.set()
        elif event == "session":
            self._tell(f"a Spark session is up after {report['seconds']:.1f} s")
        elif event == "query":
            self._tell("Spark reads the topic as a stream from its first message, each order counted once")
            self._joined.set()
        elif event == "batch":
            self.batches.append(Batch(**report))
        elif event == "table":
            self._table = ParquetTable(report["rows"], {shop: tuple(sums) for shop, sums in report["shops"].items()})
            self._over.set()
        else:
            self._fail(report["why"])

    def _fail(self, why: str) -> None:
        self._failure = why
        self._joined.set()
        self._over.set()

    def _last_words(self, code: int) -> str:
        text = (self._directory / "python.log").read_text(errors="replace").strip()
        return text.splitlines()[-1] if text else f"its process ended with {code}"

    # -- the end

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._reading is not None:
            self._reading.cancel()
        process = self._process
        if process is None:
            return
        if process.returncode is None:
            process.terminate()
            try:
                async with asyncio.timeout(_LEAVE_S):
                    await process.wait()
            except TimeoutError:
                process.kill()
                await process.wait()
