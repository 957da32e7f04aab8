"""The brokers that are compared: started with equal settings, asked when they answer, measured from the process."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from aerobee.protocol.codes import RequestCode
from aerobee.protocol.command import encode_command, request
from aerobee.protocol.headers.topic import CreateTopicRequestHeader
from aerobee.testing.apache import free_ports, server_classpath

PROJECT = Path(__file__).parents[1]
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
# What a broker that was stopped catches up with, before it is measured.
SETTLE_S = 1.0
# Apache's own start script: G1, and the reflection it needs; 2 GiB where the script takes 8.
_JVM = [
    "-server", "-Xms2g", "-Xmx2g", "-XX:+UseG1GC", "-XX:G1HeapRegionSize=16m", "-XX:MaxDirectMemorySize=2g",
    *(
        f"--add-opens=java.base/{name}=ALL-UNNAMED"
        for name in ("java.lang", "java.nio", "sun.nio.ch", "java.util", "jdk.internal.ref", "java.util.concurrent")
    ),
]  # fmt: skip


@dataclass(frozen=True)
class Usage:
    """What a process has used so far."""

    cpu_s: float
    resident_mb: float


def usage_of(pid: int) -> Usage:
    stat = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    status = Path(f"/proc/{pid}/status").read_text()
    resident_kb = int(status.partition("VmRSS:")[2].split()[0])
    return Usage((int(stat[11]) + int(stat[12])) / _TICKS_PER_S, resident_kb / 1024)


class Contender:
    """One broker process on its own store; after `stop` or `kill` it can be started again on the same one."""

    def __init__(self, name: str, work: Path, settings: Mapping[str, object]) -> None:
        self.name = name
        self.port = free_ports(-2, 1)
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir(parents=True)
        self._work = work
        self._config = work / "broker.conf"
        store = work / "store"
        keys: dict[str, object] = {
            "brokerClusterName": "DefaultCluster",
            "brokerName": "bench-broker",
            "brokerId": 0,
            "brokerIP1": "127.0.0.1",
            "listenPort": self.port,
            "storePathRootDir": store,
            "autoCreateTopicEnable": "true",
            "defaultTopicQueueNums": 4,
            "diskMaxUsedSpaceRatio": 95,
            "flushDiskType": "ASYNC_FLUSH",
            **settings,
        }
        if name == "apache":
            # Its defaults are for a machine of its own: a port beside, and a name server it would wait for.
            keys |= {"haListenPort": self.port + 1, "storePathCommitLog": store / "commitlog"}
        self._config.write_text("".join(f"{key}={value}\n" for key, value in keys.items()))
        self._output = work / "output.txt"
        self.start()

    def start(self) -> float:
        """Seconds from the start of the process to its first answer."""
        self.started_at = time.monotonic()
        with self._output.open("wb") as sink:
            self.process = subprocess.Popen(
                self._command(self._work),
                stdout=sink, stderr=subprocess.STDOUT, env=self._environment(self._work), cwd=self._work,
            )  # fmt: skip
        self.start_s = self._first_answer() - self.started_at
        return self.start_s

    def _command(self, work: Path) -> list[str]:
        if self.name == "apache":
            jvm = [*_JVM, f"-Duser.home={work}", f"-Djava.io.tmpdir={work}", "-cp", server_classpath()]
            return ["java", *jvm, "org.apache.rocketmq.broker.BrokerStartup", "-c", str(self._config)]
        return [sys.executable, "-m", "aerobee", "broker", "-c", str(self._config), "--lenient-config"]

    def _environment(self, work: Path) -> dict[str, str]:
        environment = {key: value for key, value in os.environ.items() if key != "AEROBEE_PURE"}
        environment["ROCKETMQ_HOME"] = str(work)
        environment["PYTHONPATH"] = str(PROJECT / "src")
        environment["AEROBEE_PURE" if self.name == "interpreted" else "AEROBEE_REQUIRE_COMPILED"] = "1"
        return environment

    def _first_answer(self) -> float:
        """When it first answered a request on its port."""
        ask = encode_command(request(RequestCode.GET_BROKER_RUNTIME_INFO, opaque=1))
        while self.process.poll() is None and time.monotonic() < self.started_at + 180:
            try:
                with socket.create_connection(("127.0.0.1", self.port), timeout=5) as connection:
                    connection.sendall(ask)
                    if connection.recv(1):
                        return time.monotonic()
            except OSError:
                time.sleep(0.005)
        self.stop()
        raise SystemExit(f"{self.name} did not start:\n{self._output.read_text(errors='replace')[-3000:]}")

    def create_topic(self, topic: str, queues: int) -> None:
        header = CreateTopicRequestHeader(
            topic=topic,
            default_topic="TBW102",
            read_queue_nums=queues,
            write_queue_nums=queues,
            perm=6,
            topic_filter_type="SINGLE_TAG",
        )
        with socket.create_connection(("127.0.0.1", self.port), timeout=30) as connection:
            connection.sendall(encode_command(request(RequestCode.UPDATE_AND_CREATE_TOPIC, header, opaque=1)))
            connection.recv(4096)

    def usage(self) -> Usage:
        return usage_of(self.process.pid)

    @contextlib.contextmanager
    def running_alone(self, others: Sequence[Contender]) -> Iterator[None]:
        """The machine for this one: an idle broker still wakes many times a second, and takes caches with it."""
        for other in others:
            other.process.send_signal(signal.SIGCONT if other is self else signal.SIGSTOP)
        time.sleep(SETTLE_S)
        try:
            yield
        finally:
            for other in others:
                other.process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """As kill -9 does."""
        self.process.kill()
        self.process.wait()

    def stop(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(60)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()


def build_loadgen(target: Path, name: str = "loadgen") -> Path:
    """The load generator, compiled where its source is newer."""
    source = PROJECT / "bench" / f"{name}.c"
    newest_s = max(one.stat().st_mtime for one in (source, source.with_name("loadgen.h")))
    if not target.exists() or target.stat().st_mtime < newest_s:
        target.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run([os.environ.get("CC", "cc"), "-O2", "-o", str(target), str(source)], check=True)
    return target
