"""Many seeded runs on several processes, with a progress bar, for the long targets of the fault suites."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from itertools import count
from multiprocessing import get_context
from typing import TypeVar

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

T = TypeVar("T")


def outcomes(work: Callable[[int], T], first_seed: int, processes: int) -> Iterator[tuple[int, T]]:
    """Yield (seed, outcome) of one run after the other without end. With one process they are in order of seeds."""
    if processes <= 1:
        for seed in count(first_seed):
            yield seed, work(seed)
    seeds = count(first_seed)
    running: dict[Future[T], int] = {}
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        try:
            while True:
                while len(running) < processes * 2:
                    seed = next(seeds)
                    running[pool.submit(work, seed)] = seed
                for future in wait(running, return_when=FIRST_COMPLETED).done:
                    yield running.pop(future), future.result()
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def run_until(
    work: Callable[[int], T],
    amount_of: Callable[[T], int],
    total: int,
    *,
    what: str,
    first_seed: int,
    processes: int,
) -> list[T]:
    """Run until the amounts reach `total`. The bar is shown on a terminal only."""
    found: list[T] = []
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(file=sys.stderr), transient=True) as progress:
        task = progress.add_task(what, total=total)
        done = 0
        for _, outcome in outcomes(work, first_seed, processes):
            found.append(outcome)
            done += amount_of(outcome)
            progress.update(task, completed=min(done, total))
            if done >= total:
                break
    return found
