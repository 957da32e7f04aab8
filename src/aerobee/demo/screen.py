"""The output of the demo: progress bars on a terminal, lines elsewhere, and the table at the end."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from aerobee.demo.shop import TOTALS
from aerobee.demo.story import Aggregates, DemoOutcome
from aerobee.runtime.clock import SystemClock

# Where there is no terminal, a line is printed this often.
_LINE_S = 2.0
_WIDE = 120


class Screen:
    """Standard output, as bars or as lines."""

    def __init__(self, orders: int) -> None:
        self._orders = orders
        self._terminal = sys.stdout.isatty()
        self._console = Console(highlight=False, emoji=False, markup=False, width=None if self._terminal else _WIDE)
        self._clock = SystemClock()
        self._began_s = self._line_s = self._clock.monotonic()
        bars = (TextColumn("  {task.description:13}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        self._progress = Progress(*bars, console=self._console, transient=True, disable=not self._terminal)
        self._acknowledged = self._progress.add_task("acknowledged", total=orders)
        self._consumed = self._progress.add_task("consumed", total=orders)
        self._spark = self._progress.add_task("through Spark", total=orders, visible=False)

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def say(self, text: str = "") -> None:
        self._line_s = self._clock.monotonic()
        self._console.print(text, soft_wrap=True)

    def tell(self, event: str) -> None:
        """Print an event with its time."""
        self.say(f"{self._clock.monotonic() - self._began_s:6.1f} s  {event}")

    @asynccontextmanager
    async def waiting(self, what: str) -> AsyncIterator[None]:
        """Print `what` now and then as long as the block runs."""

        async def keep_saying() -> None:
            while True:
                await asyncio.sleep(_LINE_S)
                self.tell(what)

        saying = asyncio.create_task(keep_saying())
        try:
            yield
        finally:
            saying.cancel()

    def show(self, acknowledged: int, consumed: int, spark: int | None) -> None:
        """Show the counts. `spark` is None before Spark has joined."""
        self._progress.update(self._acknowledged, completed=acknowledged)
        self._progress.update(self._consumed, completed=consumed)
        self._progress.update(self._spark, completed=spark or 0, visible=spark is not None)
        if not self._terminal and self._clock.monotonic() - self._line_s >= _LINE_S:
            read = "" if spark is None else f", {spark:,} through Spark"
            self.tell(f"{acknowledged:,} of {self._orders:,} acknowledged, {consumed:,} consumed{read}")

    def result(self, outcome: DemoOutcome) -> None:
        totals = outcome.totals
        table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
        cells = {
            "sent": f"{totals.sent:,}",
            "acknowledged": f"{totals.acknowledged:,}",
            "consumed": f"{totals.consumed:,}",
            "lost": f"{totals.lost:,}",
            "seen twice": f"{totals.seen_twice:,}",
            "take-over": f"{outcome.takeover_s:.2f} s",
            "recovery": f"{outcome.recovery_s:.2f} s",
            "sent/s": f"{outcome.sent_per_s:,.0f}",
            "consumed/s": f"{outcome.consumed_per_s:,.0f}",
        }
        for name in cells:
            lost = ("bold green" if totals.sound else "bold red") if name == "lost" else None
            table.add_column(name, justify="right", no_wrap=True, style=lost)
        table.add_row(*cells.values())
        self.say()
        self._console.print(table)
        self.say()
        for line in outcome.timeline.lines():
            self.say(line)
        if outcome.aggregates is not None:
            self._compare(outcome.aggregates)

    def _compare(self, aggregates: Aggregates) -> None:
        """Print the sums that Spark computed beside those of Python."""
        made = {"Python": aggregates.python, f"topic {TOTALS}": aggregates.topic, "Parquet": aggregates.table}
        shown = made if not aggregates.equal else {"Spark": aggregates.topic}
        table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
        table.add_column("shop")
        for name in shown:
            table.add_column(f"{name}: orders", justify="right")
            table.add_column("sum", justify="right")
        for shop in sorted({shop for shops in made.values() for shop in shops}):
            cells = [shops.get(shop, (0, 0)) for shops in shown.values()]
            table.add_row(shop, *(cell for count, cents in cells for cell in (f"{count:,}", f"{cents / 100:,.2f}")))
        self.say()
        self._console.print(table)
        sign = "==" if aggregates.equal else "!="
        self.say(
            f"Spark totals {sign} Python totals: {aggregates.messages} aggregates from topic {TOTALS!r}, sent exactly"
            f" once, and {aggregates.table_rows} rows of a Parquet table"
        )
