"""What the commands that run on Spark share: their options, a session with a sign of life, and what is missing."""

from __future__ import annotations

import concurrent.futures
import contextlib
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

import click
from rich.console import Console

from aerobee.errors import AerobeeError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

T = TypeVar("T")
_LOOK_S = 0.1

master_option = click.option(
    "--master", default="local[*]", show_default=True, metavar="URL", help="Where Spark runs: spark://HOST:7077, yarn."
)
conf_option = click.option("--conf", "confs", multiple=True, metavar="KEY=VALUE", help="A setting of Spark.")


class NoSparkError(AerobeeError):
    """PySpark is not there."""

    exit_code = 2


def demand_connector() -> None:
    """Refuse in words where PySpark, PyArrow or Java is missing."""
    try:
        from pyspark_rocketmq.session import demand_spark
    except ImportError as missing:
        raise NoSparkError(f"{missing.name} is not installed", hint="pip install 'aerobee[spark]'") from None
    demand_spark()


def confs_of(words: tuple[str, ...]) -> dict[str, str]:
    """`--conf KEY=VALUE` words as a table."""
    found = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals or not key.strip():
            raise click.UsageError(f"--conf {word!r} is not KEY=VALUE")
        found[key.strip()] = value
    return found


@contextlib.contextmanager
def spark_session(app: str, master: str, confs: dict[str, Any]) -> Iterator[SparkSession]:
    """A session that is gone, with its JVM and files, when the block is left."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    from pyspark_rocketmq import session
    from pyspark_rocketmq.jobs.failures import JobFailedError, death_of, failure

    try:
        with Console(stderr=True).status("starting Spark") if sys.stderr.isatty() else contextlib.nullcontext():
            started = _off_main_thread(lambda: session.session(app, master, **confs), session.abandon)
    except (Py4JError, PySparkException, RuntimeError, OSError) as error:
        # Where the JVM died its own last words say why; Py4J only knows that it did.
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
    """What `start` gives. Ctrl-C goes when the JVM can be told to: one that is half up would be left behind.

    On the main thread PySpark would also put its own handler in, which calls the JVM in the middle of another call.
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
