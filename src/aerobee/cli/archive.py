"""`aerobee archive run|status`: writes closed segments of a store to Parquet, and shows an archive."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict, Unpack

import click

from aerobee.cli.numbers import NumberRange
from aerobee.cli.output import DONE, console, print_json, show_size, show_time, table
from aerobee.cli.spark import NoSparkError, conf_option, confs_of, demand_connector, master_option, spark_session
from aerobee.runtime.clock import SystemClock

if TYPE_CHECKING:
    from pyspark_rocketmq_store.manifest import Archived

_HOUR_MS = 3_600_000


class _Given(TypedDict):
    """The options of `run`."""

    commitlog: str | None
    hours: float
    segments: tuple[int, ...]
    as_json: bool
    dry_run: bool
    master: str
    confs: tuple[str, ...]


@click.group()
def archive() -> None:
    """Archive old segments of the log as Parquet, by topic and day.

    A broker with archivePath deletes only segments that the archive holds and has verified.
    """


@archive.command()
@click.argument("store", metavar="STORE")
@click.argument("target", metavar="ARCHIVE")
@click.option("-b", "--broker", required=True, help="Name of the broker that the store belongs to.")
@click.option("--commitlog", metavar="DIR", help="Directory of the log, if it is not STORE/commitlog.")
@click.option(
    "--older-than",
    "hours",
    type=NumberRange(min=0),
    default=0.0,
    help="Only segments that were closed this many hours ago.",
)
@click.option(
    "--segment",
    "segments",
    type=int,
    multiple=True,
    metavar="OFFSET",
    help="Only the segment that begins at this offset. May be repeated.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text, for errors too.")
@click.option("--dry-run", is_flag=True, help="Only print what would be archived.")
@master_option
@conf_option
def run(store: str, target: str, broker: str, **given: Unpack[_Given]) -> int:
    """Archive every closed segment of STORE that ARCHIVE does not hold yet."""
    demand_connector()
    from pyspark_rocketmq_store import archive as job

    before_ms = SystemClock().now_ms() - int(given["hours"] * _HOUR_MS)
    wanted = list(given["segments"]) or None
    found = job.closed_segments(store, target, broker, log_directory=given["commitlog"])
    todo = [
        one
        for one in found
        if not one.is_archived and one.closed_ms <= before_ms and (wanted is None or one.start in wanted)
    ]
    done: list[Archived] = []
    # Spark takes seconds to start, so it starts only if there is work. `job.run` reports an unknown segment.
    if (todo or wanted) and not given["dry_run"]:
        with spark_session("aerobee archive", given["master"], confs_of(given["confs"])) as spark:
            done = job.run(
                spark, store, target, broker,
                log_directory=given["commitlog"], closed_before_ms=before_ms, segments=wanted,
            )  # fmt: skip
    if given["as_json"]:
        starts = [one.start for one in todo]
        print_json({"todo": starts} if given["dry_run"] else {"archived": [_brief(one) for one in done]})
    elif given["dry_run"]:
        console().print(f"{len(todo)} segments would be archived" + "".join(f"\n  {one.start}" for one in todo))
    else:
        rows = sum(one.rows for one in done)
        left = len(found) - len(todo)
        console().print(f"{len(done)} segments archived, {rows} messages; {left} are archived already or too young")
    return DONE


@archive.command()
@click.argument("target", metavar="ARCHIVE")
@click.option("-b", "--broker", help="Only segments of this broker.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text, for errors too.")
def status(target: str, broker: str | None, as_json: bool) -> int:
    """Show the segments that ARCHIVE holds."""
    try:
        from pyspark_rocketmq_store import archive as job
    except ImportError as missing:
        raise NoSparkError(f"{missing.name} is not installed", hint="pip install 'aerobee[spark]'") from None

    found = job.manifests(target, [broker] if broker else None)
    if as_json:
        print_json({"segments": [_brief(one) for one in found]})
        return DONE
    shown = table(
        target, "broker", "segment", "messages", "topics", "parquet", "first", "last", right=("messages", "topics")
    )
    for one in found:
        shown.add_row(
            one.broker,
            f"{one.start:020d}",
            str(one.rows),
            str(len({file.topic for file in one.files})),
            show_size(sum(file.bytes for file in one.files)),
            show_time(one.first_store_ms),
            show_time(one.last_store_ms),
        )
    console().print(shown if found else f"{target} holds no archived segment")
    return DONE


def _brief(one: Archived) -> dict[str, object]:
    return {
        "broker": one.broker,
        "segment": one.start,
        "end": one.end,
        "records": one.records,
        "rows": one.rows,
        "files": len(one.files),
        "bytes": sum(file.bytes for file in one.files),
        "first_store_timestamp": one.first_store_ms,
        "last_store_timestamp": one.last_store_ms,
    }
