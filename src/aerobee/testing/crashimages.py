"""`python -m aerobee.testing.crashimages`: crash images by the thousand, and one of them again."""

from __future__ import annotations

import sys

import click

from aerobee.testing.crashrun import CrashOutcome, CrashRun, CrashRunError
from aerobee.testing.manyruns import run_until


def run_seed(seed: int) -> CrashOutcome:
    """Check all images of one seed."""
    return CrashRun(seed).run()


@click.command()
@click.option("--images", default=200_000, show_default=True, help="How many to make, at least.")
@click.option("--seed", default=1, show_default=True, help="The first run's.")
@click.option("--image", type=int, help="Of the run of this seed, check only this one.")
@click.option("--processes", default=2, show_default=True)
def main(images: int, seed: int, image: int | None, processes: int) -> None:
    """Recover a store from every state a power cut could leave, and compare with what was promised."""
    try:
        if image is not None:
            CrashRun(seed, only=image).run()
            click.echo(f"image {image} of seed {seed}: as promised")
            return
        click.echo(f"crash images from seed {seed} on")
        found = run_until(
            run_seed,
            lambda outcome: outcome.images,
            images,
            what="crash images",
            first_seed=seed,
            processes=processes,
        )
    except CrashRunError as error:
        click.echo(str(error), err=True)
        sys.exit(1)
    total = CrashOutcome(*map(sum, zip(*found, strict=True)))
    click.echo(
        f"{total.images} images of {len(found)} runs ({total.records} messages, {total.truncations} truncations): "
        "0 acknowledged lost, recovery idempotent"
    )


if __name__ == "__main__":
    main()
