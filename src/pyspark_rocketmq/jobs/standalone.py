"""A Spark standalone cluster on this machine from the PySpark wheel: a master and workers as processes.

    python -m pyspark_rocketmq.jobs.standalone --workers 2       # prints spark://127.0.0.1:PORT and runs until Ctrl-C

It serves to try a pipeline on a cluster, and our tests use it. Everything listens on loopback.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from types import TracebackType
from typing import Final

from pyspark_rocketmq.jobs.failures import JobFailedError
from pyspark_rocketmq.session import LOG4J, demand_spark

_HOST: Final = "127.0.0.1"
_MASTER: Final = re.compile(r"(spark://[\w.]+:\d+)")
_REGISTERED: Final = re.compile(r"Successfully registered with master")
_READY_S: Final = 120.0
_INFO: Final = LOG4J.replace("rootLogger.level = warn", "rootLogger.level = info")


class StandaloneCluster:
    """A cluster that leaves no process behind: `with StandaloneCluster(workers=2) as cluster: ...`."""

    def __init__(self, workers: int = 2, *, cores: int = 1, memory: str = "1g", directory: Path | None = None) -> None:
        self.url = ""
        self._workers = workers
        self._cores = cores
        self._memory = memory
        self._temporary = tempfile.TemporaryDirectory(prefix="aerobee-cluster-") if directory is None else None
        self.directory = Path(self._temporary.name) if self._temporary is not None else directory or Path()
        self._processes: list[subprocess.Popen[str]] = []

    def __enter__(self) -> StandaloneCluster:
        demand_spark()
        (self.directory / "log4j2.properties").write_text(_INFO)
        try:
            ports = ("--port", "0", "--webui-port", "0")
            self.url = self._start("master.Master", ("--host", _HOST, *ports), _MASTER)
            for number in range(self._workers):
                work = self.directory / f"worker-{number}"
                size = ("--cores", str(self._cores), "--memory", self._memory, "--work-dir", str(work))
                self._start("worker.Worker", ("--host", _HOST, *ports, *size, self.url), _REGISTERED)
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """End every process, workers first. Their executors end with them."""
        processes, self._processes = self._processes, []
        for process in reversed(processes):
            process.terminate()
        for process in processes:
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        if self._temporary is not None:
            self._temporary.cleanup()

    def wait(self) -> None:
        """Wait until the master ends."""
        self._processes[0].wait()

    def _start(self, name: str, words: tuple[str, ...], ready: re.Pattern[str]) -> str:
        import pyspark

        command = [
            str(Path(pyspark.__file__).parent / "bin" / "spark-class"),
            f"org.apache.spark.deploy.{name}",
            *words,
        ]
        environment = {
            **os.environ,
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_LOCAL_IP": _HOST,
            "SPARK_NO_DAEMONIZE": "1",
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": f"-Dlog4j2.configurationFile={self.directory / 'log4j2.properties'}",
            "SPARK_LOCAL_DIRS": str(self.directory / "local"),
        }
        process = subprocess.Popen(
            command, env=environment, cwd=self.directory, text=True, errors="replace",
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, start_new_session=True,
        )  # fmt: skip
        self._processes.append(process)
        found: list[str] = []
        said = threading.Event()
        reader = threading.Thread(target=_read, args=(process, ready, found, said), daemon=True)
        reader.start()
        if not said.wait(_READY_S) or not found:
            raise JobFailedError(f"the {name} did not start")
        return found[0]


def _read(process: subprocess.Popen[str], ready: re.Pattern[str], found: list[str], said: threading.Event) -> None:
    """Read the log of a process until it ends, since a full pipe would stop it."""
    assert process.stderr is not None
    with process.stderr:
        for line in process.stderr:
            match = ready.search(line)
            if match and not found:
                found.append(match[0])
                said.set()
    said.set()


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m pyspark_rocketmq.jobs.standalone", description=__doc__)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--cores", type=int, default=1, help="for each worker")
    parser.add_argument("--memory", default="1g", help="of each worker")
    given = parser.parse_args()
    try:
        with StandaloneCluster(given.workers, cores=given.cores, memory=given.memory) as cluster:
            sys.stdout.write(f"{cluster.url}\n")
            sys.stdout.flush()
            cluster.wait()
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
