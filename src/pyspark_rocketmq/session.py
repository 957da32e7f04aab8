"""Spark sessions with the right settings: `session()` for scripts, notebooks, commands and tests.

This module owns the settings that the connector needs to be correct and fast, and the places that Spark writes to.
Nothing is written to the home or working directory. The JVM's log goes to a file. All files are removed when the
interpreter ends.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import re
import shutil
import sys
import tempfile
import threading
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final

from aerobee.errors import AerobeeError
from aerobee.model.numbers import parse_int

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PIP_LINE: Final = "pip install 'aerobee[spark]'"
_LOG: Final = "spark.log"
_LOCAL: Final = re.compile(r"local(?:\[(\d+|\*)(?:,\s*\d+)?\])?")

# The settings that source, sink and stateful queries need to be correct and fast, on any master.
SETTINGS: Final = {
    # Without it each Python task waits 40 ms for the JVM's first bytes (Nagle against delayed acknowledgements).
    "spark.python.unix.domain.socket.enabled": "true",
    # This is off by default in Spark, and then the batch source never receives a WHERE.
    "spark.sql.python.filterPushdown.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # transformWithState needs it, and so does large state.
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # When the driver stops, the running micro-batch may end instead of being interrupted.
    "spark.sql.streaming.stopTimeout": "30s",
}


class SparkMissingError(AerobeeError):
    """Spark is not installed, or there is no Java to run it."""

    exit_code = 2


class SparkStartError(AerobeeError):
    """The JVM ended before there was a session, as it does for a master that cannot be used."""

    exit_code = 1


def cores_of(master: str) -> int | None:
    """Return how many cores a `local` master uses, or None if executors run elsewhere."""
    found = _LOCAL.fullmatch(master)
    if found is None:
        return None
    if found[1] == "*":
        return os.cpu_count() or 1
    return parse_int(found[1] or "1")


def why_no_spark() -> str | None:
    """Return a sentence that says what is missing for a session, or None."""
    try:
        import pyspark
    except ImportError:
        return "PySpark is not installed"
    if tuple(parse_int(part) for part in pyspark.__version__.split(".")[:2]) < (4, 2):
        return f"PySpark {pyspark.__version__} is too old, 4.2 is needed"
    for module in ("pyarrow", "numpy"):
        try:
            __import__(module)
        except ImportError:
            return f"{module} is not installed"
    home = os.environ.get("JAVA_HOME")
    if home and not Path(home, "bin", "java").exists():  # Spark's scripts take it, and look no further
        return f"Java is not in JAVA_HOME ({home})"
    if not home and shutil.which("java") is None:
        return "Java is not installed (Spark 4 needs 17 or newer)"
    return None


def demand_spark() -> None:
    """Raise SparkMissingError, with a hint, if something is missing for a session."""
    missing = why_no_spark()
    if missing is not None:
        hint = "install a Java runtime, or set JAVA_HOME" if missing.startswith("Java") else PIP_LINE
        raise SparkMissingError(missing, hint=hint)


def settings(master: str, scratch: Path, confs: dict[str, Any]) -> dict[str, str]:
    """Return every setting of a session on `master` that writes below `scratch`. `confs` take precedence."""
    made = dict(SETTINGS)
    made["spark.sql.warehouse.dir"] = str(scratch / "warehouse")
    made["spark.local.dir"] = str(scratch / "local")
    options = f"-Dderby.system.home={scratch / 'derby'} -Dlog4j2.configurationFile={scratch / 'log4j2.properties'}"
    cores = cores_of(master)
    if cores is not None:
        made["spark.sql.shuffle.partitions"] = str(cores)
        made["spark.driver.host"] = "127.0.0.1"
        made["spark.driver.bindAddress"] = "127.0.0.1"
    made.update({name: _text(value) for name, value in confs.items()})
    made["spark.driver.extraJavaOptions"] = f"{options} {made.get('spark.driver.extraJavaOptions', '')}".strip()
    return made


def _text(value: object) -> str:
    return ("true" if value else "false") if isinstance(value, bool) else str(value)


class _Home:
    """The directory of this process's sessions. It is created once and removed at the end."""

    def __init__(self) -> None:
        self._directory: Path | None = None
        self._log: IO[bytes] | None = None
        # The thread that warms the session up.
        self.warming: threading.Thread | None = None

    def directory(self) -> Path:
        if self._directory is None:
            self._directory = Path(tempfile.mkdtemp(prefix="aerobee-spark-"))
            (self._directory / "log4j2.properties").write_text(LOG4J)
            # We write the console output and the error texts of queries. Everything that Spark itself logs goes here.
            self._log = (self._directory / _LOG).open("ab")
            atexit.register(self.leave)
        return self._directory

    def log(self) -> IO[bytes]:
        self.directory()
        assert self._log is not None
        return self._log

    def leave(self) -> None:
        """End the JVM, then remove what it wrote. A second call does nothing."""
        directory, self._directory = self._directory, None
        if directory is None:
            return
        atexit.unregister(self.leave)
        if self.warming is not None and self.warming.is_alive():
            # Its call ends with the JVM, which is no news to anybody.
            logging.getLogger("py4j").setLevel(logging.CRITICAL + 1)
        _end_jvm()
        self.warming = None
        if self._log is not None:
            self._log.close()
        shutil.rmtree(directory, ignore_errors=True)


LOG4J: Final = """\
rootLogger.level = warn
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d{yyyy-MM-dd'T'HH:mm:ss.SSS} %p %c{1}: %m%n%ex
"""

_home = _Home()


def session(app: str = "aerobee", master: str = "local[*]", **confs: Any) -> SparkSession:
    """Return a session that reads and writes topics: the running one, or a new one.

    `confs` are Spark's own names: `session(**{"spark.driver.memory": "4g"})`. A new local session starts its
    Pythons in the background, so that the first query need not; `warm=False` leaves that out. Raises SparkMissingError
    if PySpark or Java is missing.
    """
    demand_spark()
    _demand_classic(master)
    warm = confs.pop("warm", True)
    from pyspark import SparkConf, SparkContext
    from pyspark.errors import PySparkRuntimeError
    from pyspark.java_gateway import launch_gateway
    from pyspark.logger import PySparkLogger
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    every = settings(master, _home.directory(), confs)
    if cores_of(master) is not None:
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    conf = SparkConf(loadDefaults=False).setMaster(master).setAppName(app).setAll(list(every.items()))
    is_new = SparkContext._active_spark_context is None
    if SparkContext._gateway is None:
        # Errors are raised as exceptions. Spark would also print each, with the JVM's whole stack, on the terminal.
        for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
            PySparkLogger.getLogger(name).setLevel(logging.CRITICAL + 1)
        # In a process session of its own, the JVM and its Python workers do not receive Ctrl-C: we stop them.
        streams = {"start_new_session": True, "stderr": _home.log(), "stdout": _home.log()}
        try:
            gateway = launch_gateway(conf, streams)  # type: ignore[no-untyped-call]
        except PySparkRuntimeError:
            from pyspark_rocketmq.jobs.failures import death_of

            why = death_of(log_path().read_text(errors="replace")) or f"its log is {log_path()}"
            raise SparkStartError(f"Spark did not start: {why}") from None
        SparkContext._ensure_initialized(gateway=gateway)
    made = SparkSession.builder.config(conf=conf).getOrCreate()
    if warm and is_new and cores_of(master) is not None:
        from pyspark_rocketmq.warmup import warm_up

        _home.warming = warm_up(made)
    return made


def _demand_classic(master: str) -> None:
    """Raise SparkStartError where Spark would make a session of Spark Connect, or has made one.

    Without this, the JVM would start first, and would then speak of a wrong master or of a wrong setting.
    """
    from pyspark.sql import is_remote

    if master.startswith("sc://"):
        why = f"{master} is a server of Spark Connect"
    elif is_remote():
        why = "this process has a session of Spark Connect"
    elif "SPARK_REMOTE" in os.environ:
        why = "SPARK_REMOTE names a server of Spark Connect"
    else:
        return
    raise SparkStartError(
        f"this needs Spark's classic API, and {why}",
        hint="Use a master such as local[*] or spark://HOST:7077 in a process of its own, or session.connect().",
    )


def connect(master: str = "local[*]", app: str = "aerobee", **confs: Any) -> SparkSession:
    """Return a session of Spark Connect with the same settings: to a server of its own, or to `sc://host:15002`.

    A server that runs already keeps its settings; start it with those that `settings` returns. A process can have
    either this or `session`. Raises SparkMissingError if PySpark or Java is missing.
    """
    demand_spark()
    from pyspark.sql import SparkSession

    for module in ("grpc", "grpc_status", "google.rpc", "pandas"):
        try:
            __import__(module)
        except ImportError:
            raise SparkMissingError(
                f"Spark Connect needs the package {module}", hint="pip install 'aerobee[pipelines]'"
            ) from None
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    builder = SparkSession.builder.remote(master).appName(app)
    if not master.startswith("sc://"):
        if cores_of(master) is not None:
            os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        for name, value in settings(master, _home.directory(), confs).items():
            builder = builder.config(name, value)
    return builder.getOrCreate()


def log_path() -> Path:
    """Return the path of the log that the JVM of this process writes."""
    return _home.directory() / _LOG


def abandon() -> None:
    """Kill the JVM, if there is one, while another thread waits for it. `close` then cleans up."""
    from pyspark import SparkContext

    process = getattr(SparkContext._gateway, "proc", None)
    if process is not None and process.poll() is None:
        # Otherwise Py4J would log, with a stack, that its JVM is gone.
        logging.getLogger("py4j").setLevel(logging.CRITICAL + 1)
        process.kill()
        process.wait()


def close() -> None:
    """End the Spark of this process, with its JVM and its files. The end of the interpreter does the same."""
    _home.leave()


def _end_jvm() -> None:
    from py4j.protocol import Py4JError
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    gateway = SparkContext._gateway
    if gateway is None:
        return
    process = getattr(gateway, "proc", None)
    # If the JVM has ended already, there is nothing to do.
    if process is None or process.poll() is None:
        with contextlib.suppress(Py4JError, OSError):
            running = SparkSession.getActiveSession() or SparkContext._active_spark_context
            if running is not None:
                running.stop()
            gateway.shutdown()
    SparkContext._gateway = None
    SparkContext._jvm = None
    if process is not None:
        process.stdin.close()
        process.wait()
