"""What the commands that use Spark share: their options, a session, and errors for missing packages."""

from __future__ import annotations

import concurrent.futures
import contextlib
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, TypeVar

import click
from rich.console import Console

from aerobee.errors import AerobeeError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

T = TypeVar("T")
_LOOK_S = 0.1

master_option = click.option(
    "--master",
    default="local[*]",
    show_default=True,
    metavar="URL",
    help="Where Spark runs, such as spark://HOST:7077 or yarn.",
)
conf_option = click.option(
    "--conf", "confs", multiple=True, metavar="KEY=VALUE", help="A Spark setting. May be repeated."
)


class NoSparkError(AerobeeError):
    """PySpark is not installed."""

    exit_code = 2


def demand_connector() -> None:
    """Raise an error if PySpark, PyArrow or Java is missing."""
    try:
        from pyspark_rocketmq.session import demand_spark
    except ImportError as missing:
        raise NoSparkError(f"{missing.name} is not installed", hint="pip install 'aerobee[spark]'") from None
    demand_spark()


def confs_of(words: tuple[str, ...]) -> dict[str, str]:
    """Return the Spark settings of `--conf KEY=VALUE` options."""
    found = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals or not key.strip():
            raise click.UsageError(f"--conf {word!r} is not KEY=VALUE")
        found[key.strip()] = value
    return found


@contextlib.contextmanager
def spark_session(app: str, master: str, confs: dict[str, str]) -> Iterator[SparkSession]:
    """Yield a Spark session. Its JVM and files are gone when the block ends."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    from pyspark_rocketmq import session
    from pyspark_rocketmq.jobs.failures import JobFailedError, death_of, failure

    try:
        with Console(stderr=True).status("starting Spark") if sys.stderr.isatty() else contextlib.nullcontext():
            started = _off_main_thread(lambda: session.session(app, master, **confs), session.abandon)
    except (Py4JError, PySparkException, RuntimeError, OSError) as error:
        # If the JVM died, its log says why. Py4J only knows that it died.
        why = death_of(session.log_path().read_text(errors="replace")) or failure(error).message
        session.close()
        raise JobFailedError(f"Spark did not start: {why}") from None
    except KeyboardInterrupt:
        session.close()
        raise
    try:
        yield started
    finally:
        session.close()


def _off_main_thread(start: Callable[[], T], abandon: Callable[[], None]) -> T:
    """Return the result of `start`. Ctrl-C takes effect when the JVM can be stopped, so that none is left behind.

    On the main thread, PySpark would install a signal handler that calls the JVM in the middle of another call.
    """
    interrupted = threading.Event()
    before = signal.signal(signal.SIGINT, lambda _number, _frame: interrupted.set())
    try:
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            starting = pool.submit(start)
            while not concurrent.futures.wait([starting], timeout=_LOOK_S).done:
                if interrupted.is_set():
                    abandon()
    finally:
        signal.signal(signal.SIGINT, before)
    if interrupted.is_set():
        raise KeyboardInterrupt
    return starting.result()
