"""`aerobee archive run|status`: closed segments of a store into Parquet, and what an archive holds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from aerobee.cli.output import DONE, console, print_json, show_size, show_time, table
from aerobee.cli.spark import NoSparkError, conf_option, confs_of, demand_connector, master_option, spark_session
from aerobee.runtime.clock import SystemClock

if TYPE_CHECKING:
    from pyspark_rocketmq_store.manifest import Archived

_HOUR_MS = 3_600_000


@click.group()
def archive() -> None:
    """Old segments of the log as Parquet, by topic and day, verified before a broker may delete them."""


@archive.command()
@click.argument("store", metavar="STORE")
@click.argument("target", metavar="ARCHIVE")
@click.option("-b", "--broker", required=True, help="The broker's name: its archivePath looks for its own segments.")
@click.option("--commitlog", metavar="DIR", help="The log's directory, where it is not STORE/commitlog.")
@click.option("--older-than", "hours", type=click.FloatRange(min=0), default=0.0, help="Only if closed so many hours.")
@click.option("--segment", "segments", type=int, multiple=True, metavar="OFFSET", help="Only the one that begins here.")
@click.option("--json", "as_json", is_flag=True, help="Answer in JSON, errors too.")
@click.option("--dry-run", is_flag=True, help="Tell what would be archived.")
@master_option
@conf_option
def run(store: str, target: str, broker: str, **given: Any) -> int:
    """Archive every closed segment of STORE that ARCHIVE does not hold yet; running again does what is missing."""
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
    # Spark takes seconds to start: not for nothing. A segment that does not exist is its error to tell.
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
        console().print(f"{len(done)} segments archived, {rows} messages; {left} were there already or are too young")
    return DONE


@archive.command()
@click.argument("target", metavar="ARCHIVE")
@click.option("-b", "--broker", help="Only this broker's.")
@click.option("--json", "as_json", is_flag=True, help="Answer in JSON, errors too.")
def status(target: str, broker: str | None, as_json: bool) -> int:
    """What ARCHIVE holds: segments, messages and days of each broker."""
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


def _brief(one: Archived) -> dict[str, Any]:
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
