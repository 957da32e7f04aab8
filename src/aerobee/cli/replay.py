"""`aerobee replay`: copies a time span of a topic to another. And what all commands that copy share."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from aerobee.admin import replay as copying
from aerobee.admin.connection import AdminConnection
from aerobee.admin.messages import Span
from aerobee.admin.replay import CopyReport
from aerobee.cli.numbers import NumberRange
from aerobee.cli.output import DONE, REFUSED, print_json, show_time, time_option
from aerobee.cli.remote import converse, dry_run_option, options

rate_option = click.option("--rate", type=NumberRange(min=0.1), help="Send at most this many messages a second.")
target_option = click.option("--to", "target", required=True, metavar="TOPIC", help="The topic to copy to.")
_LONG_MAX = (1 << 63) - 1


@contextlib.contextmanager
def count_bar(label: str) -> Iterator[Callable[[int, int], None]]:
    """Show a progress bar on stderr if it is a terminal. Yield a function that takes messages done and in all."""
    if not sys.stderr.isatty():
        yield lambda done, total: None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(label, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def span_of(begin_ms: int | None, end_ms: int | None) -> Span:
    """Return the time span of the options. Raise UsageError if it is empty."""
    span = Span(begin_ms or 0, _LONG_MAX if end_ms is None else end_ms)
    if span.begin_ms >= span.end_ms:
        raise click.UsageError(f"--from {show_time(span.begin_ms)} is not before the end {show_time(span.end_ms)}")
    return span


def say_copied(report: CopyReport, as_json: bool, where: str) -> int:
    """Print the result of a copy. Return the exit code: 1 if it stopped early."""
    if as_json:
        print_json(report.to_json())
        return DONE if report.problem is None else REFUSED
    skipped = f", {report.skipped} skipped" if report.skipped else ""
    click.echo(f"{report.copied} of {report.total} messages {where} ({report.bytes} bytes){skipped}")
    if report.problem is None:
        return DONE
    click.echo(f"error: the copy stopped: {report.problem}", err=True)
    if report.resume_ms is not None:
        click.echo(f"Continue with --from {show_time(report.resume_ms)}. Some messages may be copied twice.", err=True)
    return REFUSED


@click.command()
@options(
    dry_run_option,
    rate_option,
    click.option("--until", "end_ms", callback=time_option, metavar="TIME", help="Only messages stored before it."),
    click.option(
        "--from", "begin_ms", callback=time_option, required=True, metavar="TIME",
        help="Only messages stored at this time or later: milliseconds, or 2026-11-15T10:00:00.",
    ),
    target_option,
    click.option("-t", "--topic", "source", required=True, help="The topic to copy from."),
)  # fmt: skip
def replay(
    namesrv: str,
    timeout_s: float,
    as_json: bool,
    source: str,
    target: str,
    begin_ms: int,
    end_ms: int | None,
    rate: float | None,
    dry_run: bool,
) -> int:
    """Copy the messages of a time span to another topic, in the order in which they were stored.

    A copy keeps body, keys, tags, sharding key and properties. It has a new id, and no delay or retries. The source
    topic and its groups are not changed.
    """
    span = span_of(begin_ms, end_ms)
    if dry_run:

        async def count(admin: AdminConnection) -> int:
            await copying.require_target(admin, source, target)
            return await copying.count_range(admin, source, span)

        found = converse(namesrv, timeout_s, count)
        if as_json:
            print_json({"dry_run": True, "source": source, "target": target, "total": found})
        else:
            click.echo(f"would copy {found} messages of {source} to {target}")
        return DONE
    with count_bar(f"{source} to {target}") as progress:
        report = converse(
            namesrv,
            timeout_s,
            lambda admin: copying.replay(admin, source, target, span, rate=rate, progress=progress),
        )
    return say_copied(report, as_json, f"of {source} copied to {target}")
