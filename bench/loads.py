"""The command line of benchmarks that put several loads on our servers and on Apache's."""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from bench import table
from bench.peer import Load


class LoadBench(Protocol):
    """Puts loads on servers and keeps every figure."""

    figures: table.Figures

    def run(self, loads: Sequence[Load]) -> None: ...


def run_loads(
    doc: str | None,
    loads: Sequence[Load],
    kept_at: Path,
    bench_of: Callable[[Sequence[str], int, float], LoadBench],
    shown: Callable[[table.Figures, Sequence[str]], str],
) -> None:
    """Measure the loads that the command line names. Keep the figures, and print what `shown` returns for them."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=float, default=1.0, help="messages per run, times this")
    parser.add_argument("--rounds", type=int, default=3, help="alternations")
    parser.add_argument("--alone", action="store_true", help="without Apache's brokers")
    parser.add_argument("--rows", default="", help="only loads whose name holds one of these, separated by ;")
    parser.add_argument("--table", action="store_true", help="measure nothing, print the table of the figures kept")
    chosen = parser.parse_args()
    names = ([] if chosen.alone else [table.APACHE]) + [table.OURS]
    wanted = [load for load in loads if any(word in load.name for word in chosen.rows.split(";"))]
    kept: table.Figures = json.loads(kept_at.read_text()) if kept_at.exists() and (chosen.rows or chosen.table) else {}
    print(f"{os.cpu_count()} CPUs, {platform.platform()}, Python {platform.python_version()}", flush=True)
    bench = bench_of(names, chosen.rounds, chosen.scale)
    try:
        if not chosen.table:
            bench.run(wanted)
    finally:
        shutil.rmtree(kept_at.parent / "work", ignore_errors=True)
        figures = {**kept, **bench.figures}
        kept_at.parent.mkdir(parents=True, exist_ok=True)
        kept_at.write_text(json.dumps(figures, indent=1))
    print("\n" + shown(figures, names))
