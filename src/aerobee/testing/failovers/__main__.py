"""`make failovers ROUNDS=0..199`: run rounds on one group of three processes, and print what clients were told."""

from __future__ import annotations

import asyncio
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import click

from aerobee.model.numbers import parse_int
from aerobee.testing.apache import unavailable
from aerobee.testing.failovers.apacherounds import ApacheRounds
from aerobee.testing.failovers.rounds import Round, Rounds, summary


@click.command()
@click.option("--rounds", default="0..9", show_default=True, help="The first and the last round, as in 0..199.")
@click.option("--results", type=click.Path(path_type=Path), default=Path(".build/failovers.jsonl"), show_default=True)
@click.option("--apache", is_flag=True, help="Break three of Apache's brokers with a controller, for comparison.")
@click.option("--min-in-sync", default=2, show_default=True, type=click.IntRange(1, 3), help="For --apache only.")
@click.option("--keep", type=click.Path(path_type=Path), help="Use this directory, and leave it with stores and logs.")
@click.option("--sync-flush", is_flag=True, help="Use SYNC_FLUSH in place of ASYNC_FLUSH.")
def main(rounds: str, results: Path, apache: bool, min_in_sync: int, keep: Path | None, sync_flush: bool) -> None:
    """Break a real cluster again and again. Results are appended to a file, so that a run can be continued."""
    found = re.fullmatch(r"(\d+)(?:\.\.(\d+))?", rounds)
    if found is None:
        raise click.BadParameter(f"{rounds!r} is not like 0..199", param_hint="--rounds")
    first, last = parse_int(found[1]), parse_int(found[2] or found[1])
    results.parent.mkdir(parents=True, exist_ok=True)
    why = unavailable() if apache else None
    if why is not None:
        raise click.ClickException(f"--apache {why}")

    def made(directory: Path) -> Rounds | ApacheRounds:
        if apache:
            return ApacheRounds(directory, min_in_sync=min_in_sync)
        return Rounds(directory, sync_flush=sync_flush)

    said = f"min {min_in_sync}, ASYNC_FLUSH" if apache else f"min 2, {'SYNC' if sync_flush else 'ASYNC'}_FLUSH"
    sys.exit(asyncio.run(_run(first, last, results, keep, made, said)))


async def _run(
    first: int, last: int, results: Path, keep: Path | None, made: Callable[[Path], Rounds | ApacheRounds], said: str
) -> int:
    done: list[Round] = []
    with TemporaryDirectory(prefix="aerobee-failovers-") as temporary:
        directory = keep or Path(temporary)
        directory.mkdir(parents=True, exist_ok=True)
        cluster = made(directory)
        try:
            await cluster.start()
            click.echo(f"three replicas, {said}, {cluster.store_kind}")
            for number in range(first, last + 1):
                one = await cluster.run(number)
                done.append(one)
                with results.open("a") as file:
                    file.write(json.dumps(one.as_dict()) + "\n")
                click.echo(
                    f"round {number} {one.kind}: sends go on after {one.goes_on_s:.2f} s, "
                    f"{one.acknowledged} acknowledged, {one.lost} lost, {one.reordered} out of order, "
                    f"whole again after {one.whole_s:.1f} s"
                )
        finally:
            await cluster.close()
            for line in summary(done):
                click.echo(line)
            if len(done) <= last - first:
                click.echo(f"stopped; go on with: make failovers ROUNDS={first + len(done)}..{last}", err=True)
    return 1 if any(one.lost or one.reordered for one in done) else 0


if __name__ == "__main__":
    main()
