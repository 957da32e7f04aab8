"""Order by key through faults of real processes.

    python -m aerobee.testing.orderedfaults --rounds 1..10 --seconds 60 --rate 2000 [--replicas 3]

The number of a round is its seed. Each round prints a line when it ends, so a run that was interrupted is continued
with `--rounds` from the next one on. The exit code is 1 if a message was lost or out of order.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from aerobee.model.numbers import parse_int
from aerobee.testing.orderedfaults.round import RoundPlan, RoundResult, play

_SHOWN_MAX = 5


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="orderedfaults", description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", default="1..10", help="first..last")
    parser.add_argument("--seconds", type=float, default=60.0, help="of load in each round")
    parser.add_argument("--rate", type=float, default=2000.0, help="messages a second")
    parser.add_argument("--replicas", type=int, default=1, help="brokers in each of the two groups")
    options = parser.parse_args(arguments)
    first, _, last = options.rounds.partition("..")
    broken = 0
    for seed in range(parse_int(first), parse_int(last or first) + 1):
        plan = RoundPlan(seed=seed, seconds=options.seconds, rate=options.rate, replicas=options.replicas)
        with tempfile.TemporaryDirectory(prefix="aerobee-ordered-") as directory:
            result = asyncio.run(play(plan, Path(directory)))
        sys.stdout.write(told(seed, result) + "\n")
        sys.stdout.flush()
        broken += not result.verdict.is_sound
    return 1 if broken else 0


def told(seed: int, result: RoundResult) -> str:
    """Return the lines about a round."""
    verdict = result.verdict
    lines = [
        f"round {seed}: {verdict.acknowledged} acknowledged, lost {len(verdict.lost)}, "
        f"stored out of order {len(verdict.stored_out_of_order)}, "
        f"handled out of order {len(verdict.handled_out_of_order)}; {verdict.stored} stored, "
        f"{verdict.handled} handled ({verdict.repeats} again), {result.failed_sends} sends raised, "
        f"longest wait {result.longest_wait_s:.1f} s; "
        + ", ".join(f"{count} {name}" for name, count in sorted(result.faults.items()))
    ]
    for found in (verdict.lost, verdict.stored_out_of_order, verdict.handled_out_of_order):
        lines += [f"  {one}" for one in found[:_SHOWN_MAX]]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
