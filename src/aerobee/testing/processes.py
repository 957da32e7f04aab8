"""Servers as child processes, with the faults that only a real process has: kill -9, SIGSTOP, SIGTERM.

    async with ProcessCluster(directory, brokers=2) as cluster:
        cluster.kill(0)
        seconds = await cluster.restart(0)

    async with ProcessCluster(directory, replicas=3) as cluster:
        await cluster.kill(await cluster.master())

Everything listens on loopback. The servers end with the `async with`, and with their parent where that is killed.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType

from aerobee.admin.connection import AdminConnection
from aerobee.coordination.endpoints import EtcdSettings, parse_endpoints
from aerobee.coordination.etcd import EtcdClient
from aerobee.coordination.group import GroupCoordinator
from aerobee.model.numbers import parse_int
from aerobee.model.route import MASTER_ID
from aerobee.runtime.children import Child, start_python
from aerobee.runtime.clock import SystemClock
from aerobee.runtime.net import RealNet

HOST = "127.0.0.1"
CLUSTER = "ProcessCluster"
READY_S = 90.0
_LOOK_S = 0.02
_CLOCK = SystemClock()

# The files are small: a test's store should not reserve gigabytes.
SMALL_STORE: Mapping[str, str] = {
    "mappedFileSizeCommitLog": str(64 << 20),
    "mappedFileSizeConsumeQueue": "300000",
    "maxHashSlotNum": "10000",
    "maxIndexNum": "40000",
}


class ServerProcess:
    """A server process. It starts again with the same settings on the port that it had."""

    def __init__(self, kind: str, settings: Mapping[str, str], log: Path) -> None:
        self.kind = kind
        self.settings = dict(settings)
        self.log = log
        self.port = 0
        self._child: Child | None = None

    @property
    def address(self) -> str:
        return f"{HOST}:{self.port}"

    async def start(self) -> float:
        """Start the server; return the seconds from exec until it serves."""
        began_s = _CLOCK.monotonic()
        settings = [f"{key}={value}" for key, value in {**self.settings, "listenPort": str(self.port)}.items()]
        with self.log.open("ab") as log:
            self._child = await start_python("aerobee.testing.serve", [self.kind, *settings], log)
        async with asyncio.timeout(READY_S):
            line = await self._child.line()
        if not line.startswith(b"ready "):
            await self._child.ended()
            raise RuntimeError(f"the {self.kind} did not start:\n{self.log_text()[-2000:]}")
        self.port = parse_int(line.rpartition(b":")[2].strip(), 1, 65535)
        return _CLOCK.monotonic() - began_s

    @property
    def pid(self) -> int:
        return self._started().pid

    def signal(self, number: signal.Signals) -> None:
        self._started().signal(number)

    async def kill(self) -> None:
        """Send SIGKILL and wait for the end."""
        if self._child is not None:
            await self._child.kill()

    async def stop(self) -> int:
        """Send SIGTERM and wait for the end; return the exit code."""
        child = self._started()
        child.signal(signal.SIGTERM)
        async with asyncio.timeout(READY_S):
            return await child.ended()

    @property
    def is_running(self) -> bool:
        return self._child is not None and self._child.is_running

    def _started(self) -> Child:
        assert self._child is not None, "it was never started"
        return self._child

    def rss_bytes(self) -> int:
        """Return the resident memory without mapped files."""
        fields = dict(line.split(":", 1) for line in Path(f"/proc/{self.pid}/status").read_text().splitlines())
        return (parse_int(fields["VmRSS"].split()[0]) - parse_int(fields["RssFile"].split()[0])) * 1024

    def cpu_s(self) -> float:
        """Return the processor time used, user and system."""
        parts = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (parse_int(parts[11]) + parse_int(parts[12])) / os.sysconf("SC_CLK_TCK")

    def log_text(self) -> str:
        return self.log.read_text(errors="replace") if self.log.exists() else ""


class ProcessCluster:
    """A name server and `brokers` broker groups of `replicas` brokers each, every one in a process of its own.

    Brokers are counted through: those of the first group come first. With replicas there is a coordination store too.
    """

    def __init__(
        self, directory: Path, brokers: int = 1, settings: Mapping[str, str] | None = None, *, replicas: int = 1
    ) -> None:
        self.directory = directory
        self.namesrv = ServerProcess(
            "namesrv", {"kvConfigPath": str(directory / "kvConfig.json")}, directory / "namesrv.log"
        )
        self.replicas = replicas
        self.coordination: ServerProcess | None = None
        if replicas > 1:
            file = {"file": str(directory / "coordination.json")}
            self.coordination = ServerProcess("coordination", file, directory / "coordination.log")
        self._settings = {**SMALL_STORE, **(settings or {})}
        self.brokers = [self._broker(index) for index in range(brokers * replicas)]

    def broker_name(self, index: int) -> str:
        """Return the name of the group that a broker belongs to."""
        return f"broker-{chr(ord('a') + index // self.replicas)}"

    def store_path(self, index: int) -> Path:
        replica = f"-{index % self.replicas + 1}" if self.replicas > 1 else ""
        return self.directory / f"{self.broker_name(index)}{replica}"

    def _broker(self, index: int) -> ServerProcess:
        settings = {
            "brokerClusterName": CLUSTER,
            "brokerName": self.broker_name(index),
            "brokerIP1": HOST,
            "storePathRootDir": str(self.store_path(index)),
            # The neighbour of a free port may have been taken meanwhile, by a client's connection.
            **({"haListenPort": "0"} if self.replicas > 1 else {}),
            **self._settings,
        }
        return ServerProcess("broker", settings, self.store_path(index).with_suffix(".log"))

    async def __aenter__(self) -> ProcessCluster:
        try:
            await self.namesrv.start()
            shared = {"namesrvAddr": self.namesrv.address}
            if self.coordination is not None:
                await self.coordination.start()
                shared["coordinatorAddr"] = f"http://{self.coordination.address}"
            for broker in self.brokers:
                broker.settings.update(shared)
            await asyncio.gather(*(broker.start() for broker in self.brokers))
            for group in range(len(self.brokers) // self.replicas):
                await self.master(group)
                await self._until_in_sync(group)
        except BaseException:
            await self._kill_all()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._kill_all()

    async def _kill_all(self) -> None:
        servers = [self.namesrv, *self.brokers, *([self.coordination] if self.coordination is not None else [])]
        await asyncio.gather(*(server.kill() for server in servers))

    async def master(self, group: int = 0) -> int:
        """Return which broker is the master of a group, as the name server says. Wait until there is one."""
        name = self.broker_name(group * self.replicas)
        addresses = {broker.address: index for index, broker in enumerate(self.brokers)}
        async with asyncio.timeout(READY_S), AdminConnection(self.namesrv.address) as admin:
            while True:
                for broker in await admin.brokers():
                    if (broker.name, broker.broker_id) == (name, MASTER_ID):
                        return addresses[broker.address]
                await asyncio.sleep(_LOOK_S)

    async def _until_in_sync(self, group: int) -> None:
        """Wait until all replicas of a group are in sync: before, it may refuse what is asked."""
        if self.coordination is None:
            return
        name = self.broker_name(group * self.replicas)
        client = EtcdClient(EtcdSettings(endpoints=parse_endpoints(self.coordination.address)), RealNet(), _CLOCK)
        agreed = GroupCoordinator(client, CLUSTER, name, _CLOCK)
        try:
            async with asyncio.timeout(READY_S):
                while len((await agreed.view()).state.in_sync) < self.replicas:  # noqa: ASYNC110 - nobody tells
                    await asyncio.sleep(_LOOK_S)
        finally:
            await agreed.close()

    async def kill(self, broker: int) -> None:
        await self.brokers[broker].kill()

    async def restart(self, broker: int) -> float:
        """Start a broker that was killed or stopped; return the seconds until it serves."""
        return await self.brokers[broker].start()

    def pause(self, broker: int) -> None:
        self.brokers[broker].signal(signal.SIGSTOP)

    def resume(self, broker: int) -> None:
        self.brokers[broker].signal(signal.SIGCONT)


def log_lines(text: str, level: str) -> Sequence[str]:
    """Return the lines of one level of a server's log."""
    return [line for line in text.splitlines() if f" {level} " in line]
