"""`aerobee sql`: queries topics with Spark SQL, by one query or at a prompt."""

from __future__ import annotations

import concurrent.futures
import functools
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict, TypeVar, Unpack

import click
from rich.console import Console
from rich.status import Status

from aerobee.cli.connecting import connection_options, tls_environment
from aerobee.cli.numbers import NumberRange
from aerobee.cli.output import DONE, console, print_json_line, table
from aerobee.cli.spark import conf_option, confs_of, demand_connector, master_option, spark_session
from aerobee.errors import AerobeeError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from pyspark_rocketmq.jobs.sql import TopicSql

T = TypeVar("T")
_CANCEL_AGAIN_S = 0.2

_HELP = """\
A statement ends with a semicolon or an empty line. Ctrl-D leaves the prompt.
  show tables;                                  lists topics, and the tables below
  select tags, count(*) from orders group by tags;
  select * from `my-topic` where store_timestamp > now() - interval 1 hour;
Other tables are lag, trace, trace_latency, slow_consumers, archive with --archive, and store with --store."""


class _Given(TypedDict):
    """The options beside the query."""

    namesrv: str
    as_json: bool
    parquet: str | None
    plot: str | None
    archive: str | None
    store: str | None
    rows_max: int
    timeout_s: float
    yes: bool
    master: str
    confs: tuple[str, ...]


@click.command()
@click.argument("query", nargs=-1)
@click.option(
    "-n",
    "--namesrv",
    envvar="NAMESRV_ADDR",
    default="127.0.0.1:9876",
    show_default=True,
    help="Name servers, separated by semicolons. NAMESRV_ADDR sets them, too.",
)
@connection_options
@click.option("--json", "as_json", is_flag=True, help="Print all rows as JSON lines.")
@click.option(
    "--parquet", "parquet", metavar="FILE", help="Write the rows to a Parquet file, or to a directory if it ends in /."
)
@click.option(
    "--plot", "plot", metavar="FILE", help="Draw the query, or lag and throughput without one, to a .png or .html file."
)
@click.option("--archive", metavar="DIR", help="Read this archive and the live topic as one table.")
@click.option("--store", metavar="DIR", help="Read the log of this store directory as the table store.")
@click.option(
    "--rows", "rows_max", type=click.IntRange(min=1), default=1000, show_default=True, help="Number of rows to show."
)
@click.option(
    "--timeout",
    "timeout_s",
    type=NumberRange(min=0.1),
    default=5.0,
    help="Seconds that the search for topics may take.",
)
@click.option("--yes", is_flag=True, help="Replace an existing file.")
@master_option
@conf_option
def sql(query: tuple[str, ...], **given: Unpack[_Given]) -> int:
    """Query topics with Spark SQL: aerobee sql "select tags, count(*) from orders group by tags".

    Without QUERY, the command opens a prompt, or runs the statements of standard input. Put names with other characters
    than letters, digits and _ in back-ticks. `show tables` lists topics and the special tables.
    """  # fmt: skip
    demand_connector()
    from pyspark_rocketmq.jobs.sql import Places, TopicSql, statements

    text = " ".join(query)
    is_prompt = not text and not given["plot"] and sys.stdin.isatty()
    if not text and not given["plot"] and not is_prompt:
        text = sys.stdin.read()
    wanted = statements(text)
    _refuse_early(given, is_empty=not wanted and not is_prompt)
    answer = functools.partial(_answer, given=given)
    session = functools.partial(spark_session, "aerobee sql", given["master"], confs_of(given["confs"]))
    with tls_environment(), session() as spark:
        places = Places(given["namesrv"], given["archive"], timeout_s=given["timeout_s"], store=given["store"])
        topics = TopicSql(spark, places)
        runner = _Runner(topics)
        if is_prompt:
            return _prompt(runner, answer)
        plot = given["plot"]
        if plot and not wanted:
            runner.run(functools.partial(_plot_flow, topics, Path(plot)))
        for statement in wanted:
            runner.run(functools.partial(answer, runner, statement))
    return DONE


def _refuse_early(given: _Given, *, is_empty: bool) -> None:
    """Raise the errors that need no Spark before Spark starts."""
    from pyspark_rocketmq.jobs import plots
    from pyspark_rocketmq.jobs import sql as jobs

    if is_empty and not given["plot"]:
        raise click.UsageError("there is no query: give one, or start the command in a terminal to get a prompt")
    if given["plot"]:
        plots.require_kind(Path(given["plot"]))
    if given["archive"]:
        jobs.require_archive_at(given["archive"])
    if given["store"]:
        jobs.require_store_at(given["store"])
    if given["parquet"] and not given["parquet"].endswith("/"):
        jobs.require_new(Path(given["parquet"]), replace=given["yes"])


class _Runner:
    """Runs queries in a thread, so that the main thread receives Ctrl-C and can cancel them."""

    def __init__(self, topics: TopicSql) -> None:
        self.topics = topics
        self._status: Status | None = Console(stderr=True).status("running") if sys.stderr.isatty() else None
        # The handler that Spark installs would call the JVM in the middle of another call.
        signal.signal(signal.SIGINT, signal.default_int_handler)

    def run(self, work: Callable[[], T]) -> T:
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            running = pool.submit(work)
            try:
                if self._status is not None:
                    self._status.start()
                return running.result()
            except KeyboardInterrupt:
                self._cancel(running)
                raise
            finally:
                self.quiet()

    def _cancel(self, running: concurrent.futures.Future[T]) -> None:
        """Cancel until the query has ended. A query that is still being planned has no job to cancel yet."""
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)
        try:
            while not concurrent.futures.wait([running], timeout=_CANCEL_AGAIN_S).done:
                self.topics.spark.sparkContext.cancelAllJobs()
        finally:
            signal.signal(signal.SIGINT, before)

    def quiet(self) -> None:
        """Remove the status line before the answer is printed."""
        if self._status is not None:
            self._status.stop()


def _prompt(runner: _Runner, answer: Callable[..., None]) -> int:
    from pyspark_rocketmq.jobs import prompt

    click.echo("Spark SQL over topics. Type `help` for help; Ctrl-D leaves the prompt.", err=True)
    with prompt.history():
        for statement in prompt.typed():
            if statement.lower() == "help":
                click.echo(_HELP)
                continue
            try:
                runner.run(functools.partial(answer, runner, statement))
            except AerobeeError as error:
                click.echo(f"error: {error.message}" + (f"\n{error.hint}" if error.hint else ""), err=True)
            except KeyboardInterrupt:
                click.echo("cancelled", err=True)
    return DONE


def _answer(runner: _Runner, statement: str, *, given: _Given) -> None:
    from pyspark_rocketmq.jobs import sql as jobs

    frame = runner.topics.query(statement)
    if given["parquet"]:
        _to_parquet(frame, given["parquet"], given["yes"])
    elif given["plot"]:
        from pyspark_rocketmq.jobs import plots

        plots.plot_query(frame, Path(given["plot"]), statement)
        click.echo(f"drawn to {given['plot']}", err=True)
    elif given["as_json"]:
        for row in jobs.every_row(frame):
            runner.quiet()
            print_json_line(row)
    elif frame.columns:
        rows, more = jobs.first_rows(frame, given["rows_max"])
        runner.quiet()
        _print_table(frame, rows)
        if more:
            click.echo(
                f"these are the first {given['rows_max']} rows; use --rows to see more, or --json to see all", err=True
            )


def _to_parquet(frame: DataFrame, target: str, replace: bool) -> None:
    from pyspark_rocketmq.jobs import sql as jobs

    if target.endswith("/"):
        jobs.write_parquet_directory(frame, target, replace=replace)
        click.echo(f"written to {target}", err=True)
    else:
        rows = jobs.write_parquet(frame, Path(target), replace=replace)
        click.echo(f"{rows} rows written to {target}", err=True)


def _print_table(frame: DataFrame, rows: list[tuple[object, ...]]) -> None:
    from pyspark_rocketmq.jobs import sql as jobs

    numbers = ("int", "bigint", "double", "float", "smallint", "tinyint", "decimal")
    right = [name for name, kind in frame.dtypes if kind.startswith(numbers)]
    shown = table("", *frame.columns, right=right)
    for row in rows:
        shown.add_row(*(jobs.shown(value) for value in row))
    console().print(shown)


def _plot_flow(topics: TopicSql, target: Path) -> None:
    from pyspark_rocketmq.jobs import plots

    plots.plot_flow(topics, target)
    click.echo(f"drawn to {target}", err=True)
