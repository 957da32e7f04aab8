"""`make simulate`: run seeds of the simulated cluster, tell every broken promise, and add up what was tried."""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Callable

import click

from aerobee.model.numbers import parse_int
from aerobee.runtime.clock import SystemClock
from aerobee.testing.manyruns import outcomes
from aerobee.testing.simulation.grouprun import run_group_seed
from aerobee.testing.simulation.popgroup import run_pop_group
from aerobee.testing.simulation.pops import run_pops
from aerobee.testing.simulation.replicas.run import run_replicas
from aerobee.testing.simulation.run import RunOutcome, run_seed

_PROGRESS_S = 10.0
CHECKED = (
    "no acknowledged message lost beyond what its flush allows, every message handled by every group, order by key and "
    "in ordered queues, one consumer of an ordered queue at a time, one copy of an idempotent message, no hole and no "
    "change in a queue, no offset ahead of the handlers, no delayed message early, no half message readable, "
    "no route of a killed broker, no unexpected error"
)

CHECKED_OF_REPLICAS = (
    ", one master an epoch, equal logs up to the confirmed offset, the same state on all replicas, "
    "nothing acknowledged lost with any one replica, "
    "a group that serves again"
)

CHECKED_OF_BARE_REPLICAS = (
    "every acknowledged record is on everyone who can be elected and in every log at the end, one acknowledging master "
    "an epoch, one replica with authority at a time, equal logs, nothing that was seen is taken back, every state of "
    "the group follows from the one before, a failed master resigns, the group serves again"
)
CHECKED_OF_POPS = (
    "nothing acknowledged with an answer comes again, everything else does, nobody gets what another holds, nothing "
    "comes late, tries are counted right, no saved offset is ahead of what is held"
)
CHECKED_OF_POP_GROUPS = (
    ", all of it through failovers; all replicas know the same leases, and a new master brings them back in time, with "
    "their tries"
)
# What runs and what is checked, by the option that asks for it.
WORK: dict[str, Callable[[int], RunOutcome]] = {
    "": run_seed,
    "--replicas": run_group_seed,
    "--bare-replicas": run_replicas,
    "--pops": run_pops,
    "--pops --replicas": run_pop_group,
}
_CHECKED = {"": CHECKED, "--replicas": CHECKED + CHECKED_OF_REPLICAS, "--bare-replicas": CHECKED_OF_BARE_REPLICAS}
_CHECKED["--pops"] = CHECKED_OF_POPS
_CHECKED["--pops --replicas"] = CHECKED_OF_POPS + CHECKED_OF_POP_GROUPS


@click.command()
@click.option("--seeds", default="0..99", show_default=True, help="The first and the last seed, as in 0..99.")
@click.option("--processes", default=2, show_default=True, help="How many seeds run at the same time.")
@click.option("--trace", is_flag=True, help="Print the last events of each seed.")
@click.option("--replicas", is_flag=True, help="Run a group of three replicas in place of two groups of one broker.")
@click.option("--bare-replicas", is_flag=True, help="Run three replicas without brokers.")
@click.option(
    "--pops",
    is_flag=True,
    help="Run POP at one broker that is killed and cut off power, or with --replicas at a group.",
)
def main(seeds: str, processes: int, trace: bool, replicas: bool, bare_replicas: bool, pops: bool) -> None:
    """Run a simulated cluster from each seed and check what it promises."""
    found = re.fullmatch(r"(\d+)(?:\.\.(\d+))?", seeds)
    if found is None:
        raise click.BadParameter(f"{seeds!r} is not like 0..99", param_hint="--seeds")
    first = parse_int(found[1])
    last = parse_int(found[2] or found[1])
    if last < first:
        raise click.BadParameter(f"{seeds!r} ends before it begins", param_hint="--seeds")
    kind = "--bare-replicas" if bare_replicas else " ".join(["--pops"] * pops + ["--replicas"] * replicas)
    sys.exit(_run(first, last, processes if last > first else 1, trace, kind))


def _run(first: int, last: int, processes: int, trace: bool, kind: str) -> int:
    clock = SystemClock()
    began_s = told_s = clock.monotonic()
    # Done are all seeds below `lowest`, and those that ended before it.
    lowest, early = first, set[int]()
    faults: Counter[str] = Counter()
    counts: Counter[str] = Counter()
    virtual_s, broken = 0.0, 0
    try:
        for seed, outcome in outcomes(WORK[kind], first, processes):
            if seed > last:
                continue
            early.add(seed)
            while lowest in early:
                early.remove(lowest)
                lowest += 1
            faults += outcome.faults
            counts += outcome.counts
            virtual_s += outcome.virtual_s
            broken += bool(outcome.problems)
            if outcome.problems or trace:
                _tell(outcome, trace, f"'{kind} --trace'" if kind else "--trace")
            if lowest > last:
                break
            if clock.monotonic() - told_s > _PROGRESS_S:
                told_s = clock.monotonic()
                done = lowest - first + len(early)
                rate = done / (told_s - began_s)
                click.echo(f"{done} of {last + 1 - first} seeds, {broken} broken, {rate:.1f} a second", err=True)
    except KeyboardInterrupt:
        click.echo(
            f"stopped; go on with: make simulate SEEDS={lowest}..{last}{f' ARGS={kind!r}' if kind else ''}",
            err=True,
        )
        return 130
    click.echo(f"seeds {first}..{last}: {broken} broken, {virtual_s:.0f} virtual seconds")
    click.echo("messages: " + ", ".join(f"{count} {name}" for name, count in counts.items()))
    click.echo("faults: " + ", ".join(f"{count} {name}" for name, count in sorted(faults.items())))
    click.echo(f"checked: {_CHECKED[kind]}")
    return 1 if broken else 0


def _tell(outcome: RunOutcome, trace: bool, option: str) -> None:
    for line in outcome.last_lines if trace else ():
        click.echo(line)
    click.echo(f"seed {outcome.seed}: {outcome.events} events, digest {outcome.digest}")
    for problem in outcome.problems:
        click.echo(f"  {problem}")
    if outcome.problems:
        click.echo(f"  replay: make simulate SEEDS={outcome.seed} ARGS={option}")


if __name__ == "__main__":
    main()
