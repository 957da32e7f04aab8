"""`aerobee pipeline new|start|run|refresh`: runs projects that process topics with Spark."""

from __future__ import annotations

import contextlib
import dataclasses
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, TypedDict, Unpack

import click
from rich.console import Console

from aerobee.cli.connecting import connection_options, tls_environment
from aerobee.cli.output import DONE, INTERRUPTED, REFUSED, print_json, print_json_line
from aerobee.cli.remote import confirmed, dry_run_option, yes_option
from aerobee.cli.spark import conf_option, confs_of, demand_connector, master_option, spark_session

if TYPE_CHECKING:
    from pyspark_rocketmq.jobs.streaming import BatchProgress

_DIRECTORY = click.argument("directory", metavar="DIR", type=click.Path(path_type=Path), default=Path())
_NAMESRV = click.option(
    "-n", "--namesrv", envvar="NAMESRV_ADDR", default="127.0.0.1:9876", show_default=True,
    help="Name servers, separated by semicolons. NAMESRV_ADDR sets them, too.",
)  # fmt: skip
_OTHER_NAMESRV = click.option(
    "-n", "--namesrv", envvar="NAMESRV_ADDR",
    help="Name servers to use instead of those in the project. NAMESRV_ADDR sets them, too.",
)  # fmt: skip
_JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON lines instead of text.")


class _New(TypedDict):
    """The options of `new` that describe the project."""

    topic: str
    target: str | None
    namesrv: str
    guarantee: str


class _Start(TypedDict):
    """The options of `start` that are for Spark."""

    available_now: bool
    checkpoint: str | None
    master: str
    confs: tuple[str, ...]


@click.group()
def pipeline() -> None:
    """Run pipelines on Spark: `new` creates a project, and `start` keeps it running."""


@pipeline.command()
@click.argument("directory", metavar="DIR", type=click.Path(path_type=Path))
@click.option("-t", "--topic", required=True, help="The topic to read.")
@click.option(
    "--template", type=click.Choice(["table", "aggregate", "delta", "iceberg"]), default="table", show_default=True,
    help="table writes to Parquet, delta and iceberg to such tables; aggregate counts by window into another topic.",
)  # fmt: skip
@click.option("--to", "target", help="The topic that aggregate writes to.  [default: TOPIC-totals]")
@click.option(
    "--guarantee", type=click.Choice(["at-least-once", "exactly-once"]), default="at-least-once", show_default=True,
    help="Guarantee of what is written. exactly-once needs Aerobee brokers.",
)  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text.")
@_NAMESRV
def new(directory: Path, template: str, as_json: bool, **given: Unpack[_New]) -> int:
    """Create a project in DIR."""
    from pyspark_rocketmq.jobs import projects

    topic = given["topic"]
    wanted = projects.TemplateValues(topic, given["target"] or f"{topic}-totals", given["namesrv"], given["guarantee"])
    written = projects.create(directory, template, wanted)
    if as_json:
        print_json({"directory": str(directory), "files": [str(path.relative_to(directory)) for path in written]})
        return DONE
    click.echo(f"created {directory}:")
    for path in written:
        click.echo(f"  {path.relative_to(directory)}")
    click.echo(f"Next:\n  aerobee pipeline start {directory}     runs until Ctrl-C")
    if template not in projects.STREAM_ONLY:
        click.echo(f"  aerobee pipeline run {directory}       runs once, by Spark Declarative Pipelines")
    return DONE


# -- start


@pipeline.command()
@_DIRECTORY
@_OTHER_NAMESRV
@connection_options
@click.option("--available-now", is_flag=True, help="Process the messages that are there now, then end.")
@click.option("--checkpoint", metavar="URL", help="Where progress is saved. On a cluster, all machines must share it.")
@_JSON
@master_option
@conf_option
def start(directory: Path, namesrv: str | None, as_json: bool, **given: Unpack[_Start]) -> int:
    """Run the queries of DIR/stream.py, or of a file, until Ctrl-C. The next start continues from there."""
    demand_connector()
    from pyspark_rocketmq.jobs import projects, streaming

    file = directory / projects.STREAM if directory.is_dir() else directory
    # The code of the project reads the environment. Without -n it uses the name server that `new` wrote there.
    with tls_environment(NAMESRV_ADDR=namesrv):
        function = streaming.load(file)
        project = projects.Project(file.parent)
        checkpoints = given["checkpoint"] or str(project.claim("start") / "checkpoints")
        with spark_session(f"aerobee {project.directory.name}", given["master"], confs_of(given["confs"])) as spark:
            for path in sorted(project.directory.glob("*.py")):
                spark.sparkContext.addPyFile(str(path))
            with _stop_signals() as stopped:
                named = streaming.writers(function, spark, file.stem)
                queries = streaming.start(named, checkpoints, available_now=given["available_now"])
                if not as_json:
                    click.echo(f"started: {', '.join(queries)}  (press Ctrl-C to stop)", err=True)
                try:
                    _watch(streaming.watch(queries, stopped.is_set), as_json)
                finally:
                    streaming.stop(queries)
                if stopped.is_set():
                    click.echo("stopped; the next start continues from here", err=True)
                return stopped.code


class _Stopped(threading.Event):
    """An event that Ctrl-C or SIGTERM sets, with the exit code."""

    code = DONE


@contextlib.contextmanager
def _stop_signals() -> Iterator[_Stopped]:
    """Yield an event that signals set. An exception during a call into the JVM would break the connection to it."""
    stopped = _Stopped()

    def heard(number: int, frame: FrameType | None) -> None:
        stopped.code = INTERRUPTED if number == signal.SIGINT else DONE
        stopped.set()

    before = {number: signal.signal(number, heard) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stopped
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _watch(progress: Iterator[BatchProgress], as_json: bool) -> None:
    from pyspark_rocketmq.jobs.streaming import Pace

    if as_json:
        for one in progress:
            print_json_line(dataclasses.asdict(one))
            sys.stdout.flush()
    elif sys.stderr.isatty():
        with Console(stderr=True).status("waiting for messages") as status:
            for one in progress:
                status.update(one.line())
    else:
        pace = Pace()
        for one in progress:
            if pace.admits(one):
                click.echo(one.line(), err=True)


# -- run and refresh


@pipeline.command()
@_DIRECTORY
@_OTHER_NAMESRV
@connection_options
@click.option("--dry-run", "dry", is_flag=True, help="Only check the definitions.")
@_JSON
@master_option
@conf_option
def run(directory: Path, namesrv: str | None, dry: bool, as_json: bool, master: str, confs: tuple[str, ...]) -> int:
    """Update the tables and sinks of DIR/transformations once, by Spark Declarative Pipelines."""
    demand_connector()
    from pyspark_rocketmq.jobs import pipelines
    from pyspark_rocketmq.jobs.projects import Project

    said: Callable[[str], None] = (lambda line: print_json_line({"event": line})) if as_json else click.echo
    with tls_environment():
        for line in pipelines.run(Project(directory), namesrv, master=master, more=confs_of(confs), dry=dry):
            said(line)
    return DONE


@pipeline.command()
@_DIRECTORY
@click.argument("tables", metavar="[TABLE]...", nargs=-1)
@yes_option
@dry_run_option
@master_option
def refresh(directory: Path, tables: tuple[str, ...], yes: bool, dry_run: bool, master: str) -> int:
    """Delete data and progress of DIR, or of some tables and sinks, so that the next run reads everything again.

    Spark's own --full-refresh keeps the files and the log of a Parquet table, and then skips the batches it replays.
    """
    from pyspark_rocketmq.jobs import pipelines
    from pyspark_rocketmq.jobs.projects import Project, ProjectError

    project = Project(directory)
    unknown = [name for name in tables if not project.leavings((name,))]
    if unknown:
        known = ", ".join(project.known())
        raise ProjectError(
            f"there is no table or sink {unknown[0]} with data or progress",
            hint=f"These have some: {known}." if known else "Nothing has run yet.",
        )
    leavings = project.leavings(tables)
    if not leavings:
        click.echo("there is nothing to delete", err=True)
        return DONE
    for path in leavings:
        click.echo(f"{'would delete' if dry_run else 'will delete'} {path.relative_to(project.directory)}", err=True)
    if dry_run:
        return DONE
    if not yes and not confirmed("Delete it? The next run will write to topics again what it wrote before."):
        return REFUSED
    if tables and (project.state("run") / "metastore_db").exists():
        demand_connector()
        with spark_session("aerobee refresh", master, dict(pipelines.catalog_confs(project))) as spark:
            pipelines.drop_tables(spark, tables)
    project.refresh(tables)
    return DONE
