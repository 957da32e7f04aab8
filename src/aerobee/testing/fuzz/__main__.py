"""Fuzz every reader: `python -m aerobee.testing.fuzz --executions 500000 --seed 1`.

Each target runs as many times. The same seed gives the same inputs, so a run that was stopped can go on with
`--from TARGET`. The first fault ends the run and prints its input; `--input HEX --only TARGET` runs that input again.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from aerobee.hot.log import record
from aerobee.runtime.clock import SystemClock
from aerobee.testing.entropy import SeededEntropy
from aerobee.testing.fuzz.mutate import Mutator
from aerobee.testing.fuzz.targets import Target, targets


class FuzzError(Exception):
    """A reader raised an exception that it does not declare. The message says how to see it again."""


def fuzz(target: Target, executions: int, seed: int) -> int:
    """Run a target; return how many inputs it understood. Raise FuzzError for the first fault."""
    mutator = Mutator(target.seeds, SeededEntropy(seed))
    read, declared = target.read, target.declared
    understood = 0
    for one in target.seeds:
        read(one)
    for _ in range(executions):
        data = mutator.next()
        try:
            read(data)
        except declared:
            continue
        except Exception as error:
            raise FuzzError(
                f"{target.name} raised {type(error).__name__}: {str(error)[:200]}\n"
                f"again: python -m aerobee.testing.fuzz --only {target.name!r} --input {data[:4000].hex()}"
            ) from error
        understood += 1
    return understood


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m aerobee.testing.fuzz", description=__doc__)
    parser.add_argument("--executions", type=int, default=500_000, help="of each target (default %(default)s)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", metavar="TARGET", help="one target")
    parser.add_argument("--from", dest="first", metavar="TARGET", help="go on from this target")
    parser.add_argument("--input", metavar="HEX", help="run one input; needs --only")
    given = parser.parse_args(arguments)
    every = targets()
    names = [one.name for one in every]
    for name in (given.only, given.first):
        if name is not None and name not in names:
            parser.error(f"no target {name!r}; there are {', '.join(names)}")
    if given.input is not None:
        every[names.index(given.only)].read(bytes.fromhex(given.input))
        return 0
    chosen = [every[names.index(given.only)]] if given.only else every[names.index(given.first) if given.first else 0 :]
    mode = "compiled" if record.__file__.endswith((".so", ".pyd")) else "interpreted"
    total, clock = 0, SystemClock()
    for target in chosen:
        began_s = clock.monotonic()
        understood = fuzz(target, given.executions, given.seed)
        total += given.executions
        rate = given.executions / max(clock.monotonic() - began_s, 1e-9)
        sys.stdout.write(
            f"{target.name:24} {given.executions:,} executions, {understood:,} understood, {rate:,.0f}/s\n"
        )
        sys.stdout.flush()
    sys.stdout.write(f"{total:,} executions of {len(chosen)} readers, {mode}, seed {given.seed}: no fault\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
