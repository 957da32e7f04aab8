"""Apache RocketMQ as a test peer: its name server, broker, mqadmin and Java clients, resolved through Maven.

Owns the build of the Java side (once, into `out/interop`), and the processes it starts: each ends with its
context. The Maven projects live in `tests/interop/java`: `servers` (jars only) and `driver` (a command on the
official client).
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from aerobee.errors import AerobeeError
from aerobee.model.dialect import loads_object
from aerobee.model.numbers import parse_int
from aerobee.protocol.codes import RequestCode
from aerobee.protocol.command import Command, decode_frame, encode_command, request

PROJECT = Path(__file__).parents[3]
NEWEST = "5.5.0"
LEGACY = "4.9.8"
POLL_S = 0.1

# Java 8 does not know these and does not read the variable; later ones refuse the broker's reflection without
# them.
_JAVA_OPENS = " ".join(
    f"--add-opens=java.base/{name}=ALL-UNNAMED"
    for name in (
        "java.lang",
        "java.nio",
        "sun.nio.ch",
        "java.util",
        "jdk.internal.ref",
        "java.util.concurrent",
    )
)


class ApacheError(AerobeeError):
    """A Java process did not do what it was started for; the message holds the end of its output."""


def unavailable() -> str | None:
    """Why nothing here can run, or None."""
    missing = [tool for tool in ("java", "javac", "mvn") if shutil.which(tool) is None]
    return f"needs {' and '.join(missing)} on the PATH" if missing else None


def server_classpath(version: str = NEWEST) -> str:
    """Name server, broker and tools of `version`."""
    return _resolve("servers", version, compiled=False)


def driver_classpath(version: str = NEWEST) -> str:
    """Our driver compiled against the client of `version`, first on the path."""
    return _resolve("driver", version, compiled=True)


def _resolve(name: str, version: str, *, compiled: bool) -> str:
    source = PROJECT / "tests" / "interop" / "java" / name
    target = PROJECT / "out" / "interop" / f"{name}-{version}"
    answer = target / "classpath.txt"
    newest_source = max(path.stat().st_mtime for path in source.rglob("*") if path.is_file())
    if not answer.exists() or answer.stat().st_mtime < newest_source:
        target.mkdir(parents=True, exist_ok=True)
        goals = ["compile"] if compiled else []
        command = ["mvn", "-q", "-B", "-f", str(source / "pom.xml"), f"-Drocketmq.version={version}"]
        command += [
            f"-Ddriver.out={target}",
            *goals,
            "dependency:build-classpath",
            f"-Dmdep.outputFile={answer}",
        ]
        done = subprocess.run(command, capture_output=True, text=True, timeout=900, check=False)
        if done.returncode:
            said = (done.stdout + done.stderr)[-3000:]
            raise ApacheError(f"Maven could not build {name} {version}:\n{said}")
        answer.touch()
    jars = answer.read_text().strip()
    return f"{target / 'classes'}{os.pathsep}{jars}" if compiled else jars


def free_ports(*steps: int) -> int:
    """A port that is free together with its neighbours at `steps` from it.

    Below the ports that systems give to outgoing connections: one of those may be taken before Java has started.
    """
    for _ in range(200):
        port = 12_000 + int.from_bytes(os.urandom(2), "big") % 18_000
        if all(_is_free(port + step) for step in (0, *steps)):
            return port
    raise ApacheError("no free neighbouring ports found")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("0.0.0.0", port))
        except OSError:
            return False
    return True


def _asked(address: str, command: Command) -> Command:
    """One request on a connection of its own."""
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, parse_int(port)), timeout=10) as connection:
        connection.sendall(encode_command(command))
        stream = connection.makefile("rb")
        with stream:
            length = stream.read(4)
            return decode_frame(length + stream.read(int.from_bytes(length, "big")))


def registered_brokers(namesrv: str) -> set[str]:
    """The broker addresses a name server knows."""
    answer = _asked(namesrv, request(RequestCode.GET_BROKER_CLUSTER_INFO, opaque=1))
    table = loads_object(answer.body)["brokerAddrTable"]
    return {address for broker in table.values() for address in broker["brokerAddrs"].values()}


class JavaProcess:
    """One JVM: output to a file, killed when its context ends."""

    killed_when_late = True

    def __init__(
        self,
        classpath: str,
        main: str,
        arguments: list[str],
        work: Path,
        *,
        heap_mb: int = 256,
        system: Mapping[str, str] | None = None,
        interactive: bool = False,
    ) -> None:
        work.mkdir(parents=True, exist_ok=True)
        self.output = work / "output.txt"
        properties = {"user.home": str(work), "java.io.tmpdir": str(work), **(system or {})}
        command = [
            "java",
            f"-Xms{heap_mb}m",
            f"-Xmx{heap_mb}m",
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
        ]
        command += [f"-D{key}={value}" for key, value in properties.items()]
        command += ["-cp", classpath, main, *arguments]
        environment = {**os.environ, "ROCKETMQ_HOME": str(work), "JDK_JAVA_OPTIONS": _JAVA_OPENS}
        # The process keeps its own copy of the descriptor.
        with self.output.open("wb") as sink:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE if interactive else subprocess.DEVNULL,
                stdout=sink,
                stderr=subprocess.STDOUT,
                env=environment,
                cwd=work,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process.poll() is None:
            self.kill()

    def text(self) -> str:
        return self.output.read_text(errors="replace")

    def wait_for(self, words: str, timeout_s: float = 60) -> None:
        """Until `words` stand in the output."""
        self.wait_until(lambda: words in self.text(), repr(words), timeout_s)

    def wait_until(self, holds: Callable[[], bool], what: str, timeout_s: float = 60) -> None:
        """Until `holds`. An error when the process ends before, or at the limit, where it is killed."""
        for _ in range(int(timeout_s / POLL_S)):
            if holds():
                return
            if self._ended_within(POLL_S) and not holds():
                raise ApacheError(f"ended with {self.process.returncode}:\n{self.text()[-3000:]}")
        if self.killed_when_late:
            self.kill()
        raise ApacheError(f"no {what} within {timeout_s:.0f} s:\n{self.text()[-3000:]}")

    def wait(self, timeout_s: float = 120) -> int:
        """Its exit status; killed when it takes longer."""
        if not self._ended_within(timeout_s):
            self.kill()
            raise ApacheError(f"still running after {timeout_s:.0f} s:\n{self.text()[-3000:]}")
        return self.process.returncode

    def stop(self, timeout_s: float = 60) -> None:
        """The orderly way (SIGTERM runs Apache's shutdown hooks)."""
        self.process.send_signal(signal.SIGTERM)
        self.wait(timeout_s)

    def kill(self) -> None:
        """kill -9."""
        self.process.kill()
        self.process.wait()

    def _ended_within(self, seconds: float) -> bool:
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        return True


class ApacheNameServer(JavaProcess):
    """Apache's name server on a free port of loopback; returns when it serves."""

    def __init__(self, work: Path, *, version: str = NEWEST) -> None:
        self.port = free_ports()
        self.address = f"127.0.0.1:{self.port}"
        work.mkdir(parents=True, exist_ok=True)
        config = work / "namesrv.conf"
        settings = {"listenPort": self.port, "bindAddress": "127.0.0.1"}
        config.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        main = "org.apache.rocketmq.namesrv.NamesrvStartup"
        super().__init__(server_classpath(version), main, ["-c", str(config)], work)
        self.wait_for("boot success")


# Small files, so that a test crosses their ends; no disk guard, since test machines are often nearly full.
STORE_SETTINGS: dict[str, object] = {
    "mappedFileSizeCommitLog": 1024 * 1024,
    "mappedFileSizeConsumeQueue": 20 * 1000,
    "maxHashSlotNum": 1000,
    "maxIndexNum": 4000,
    "diskMaxUsedSpaceRatio": 95,
    "timerWheelEnable": "false",
    "flushDiskType": "ASYNC_FLUSH",
}


class ApacheBroker(JavaProcess):
    """Apache's broker on `store` (made when missing); returns when it serves.

    `settings` are keys of broker.conf.
    """

    def __init__(
        self,
        work: Path,
        store: Path,
        namesrv: str,
        *,
        name: str = "broker-a",
        settings: Mapping[str, object] | None = None,
        version: str = NEWEST,
    ) -> None:
        # Apache listens on the port itself, the fast one two below, and replication's.
        self.port = free_ports(-2, 1)
        self.address = f"127.0.0.1:{self.port}"
        self.store = store
        work.mkdir(parents=True, exist_ok=True)
        config = work / "broker.conf"
        keys: dict[str, object] = {
            "brokerClusterName": "DefaultCluster",
            "brokerName": name,
            "brokerId": 0,
            "brokerIP1": "127.0.0.1",
            "listenPort": self.port,
            "haListenPort": self.port + 1,
            "namesrvAddr": namesrv,
            "storePathRootDir": store,
            "storePathCommitLog": store / "commitlog",
            "storePathConsumeQueue": store / "consumequeue",
            "autoCreateTopicEnable": "true",
            "defaultTopicQueueNums": 4,
            **STORE_SETTINGS,
            **(settings or {}),
        }
        config.write_text("".join(f"{key}={value}\n" for key, value in keys.items()))
        main = "org.apache.rocketmq.broker.BrokerStartup"
        super().__init__(server_classpath(version), main, ["-c", str(config)], work, heap_mb=512)
        self.wait_for("boot success")
        self._servers = namesrv.split(";")
        self.wait_until(self._is_registered, "registration")

    def _is_registered(self) -> bool:
        """Its first registration is lost when it comes before its own connection, and the next follows in 10 s: so it
        is told its permission, after which it registers at once (where it lets us)."""
        if all(self.address in registered_brokers(server) for server in self._servers):
            return True
        _asked(self.address, request(RequestCode.UPDATE_BROKER_CONFIG, body=b"brokerPermission=6", opaque=1))
        return False


def client_system(codec: str) -> dict[str, str]:
    """Java's system properties for a client: its header codec, and a look for new queues every second.

    Rebalancing every 20 s, the default, would make every test of a new topic wait for it.
    """
    return {"rocketmq.serialize.type": codec, "rocketmq.client.rebalance.waitInterval": "1000"}


def driver_arguments(namesrv: str, options: Mapping[str, object]) -> list[str]:
    """Options as the driver takes them: `_` for `-`."""
    arguments = ["--namesrv", namesrv]
    for key, value in options.items():
        shown = str(value).lower() if isinstance(value, bool) else str(value)
        arguments += [f"--{key.rstrip('_').replace('_', '-')}", shown]
    return arguments


class Driver:
    """The official Java client of one version, as commands (see `tests/interop/java/driver`)."""

    def __init__(self, work: Path, namesrv: str, *, version: str = NEWEST, codec: str = "JSON") -> None:
        self._work = work
        self._namesrv = namesrv
        self._classpath = driver_classpath(version)
        self._system = client_system(codec)
        self._count = 0

    def start(self, command: str, **options: object) -> DriverRun:
        """`options` are the command's, with `_` for `-`: start("produce", topic="T", count=10)."""
        self._count += 1
        arguments = [command, *driver_arguments(self._namesrv, options)]
        work = self._work / f"{command}-{self._count}"
        return DriverRun(self._classpath, "interop.Main", arguments, work, system=self._system)

    def run(self, command: str, *, within_s: float = 120, **options: object) -> list[dict[str, Any]]:
        """Every line it printed, when it ended well."""
        with self.start(command, **options) as run:
            status = run.wait(within_s)
            if status:
                raise ApacheError(f"{command} ended with {status}:\n{run.text()[-3000:]}")
            return run.events()


class DriverRun(JavaProcess):
    """One running command of the driver."""

    def events(self, kind: str | None = None) -> list[dict[str, Any]]:
        """The lines printed so far (whole ones), all or those of one `event`."""
        whole = self.text().rpartition("\n")[0].split("\n")
        events = [json.loads(line) for line in whole if line.startswith('{"event"')]
        return [event for event in events if kind is None or event["event"] == kind]

    def wait_for_events(self, kind: str, count: int = 1, timeout_s: float = 60) -> list[dict[str, Any]]:
        """Until `count` lines of `kind` were printed."""
        self.wait_until(lambda: len(self.events(kind)) >= count, f"{count} {kind} lines", timeout_s)
        return self.events(kind)


def mqadmin(work: Path, *arguments: str, version: str = NEWEST, within_s: float = 60) -> str:
    """Apache's admin command; its output, when it ended well."""
    main = "org.apache.rocketmq.tools.command.MQAdminStartup"
    with JavaProcess(driver_classpath(version), main, list(arguments), work) as run:
        if run.wait(within_s):
            raise ApacheError(f"mqadmin {' '.join(arguments)}:\n{run.text()[-3000:]}")
        # Java and the logging library report on themselves on the same stream.
        lines = run.text().split("\n")
        return "\n".join(line for line in lines if "|-" not in line and not line.startswith("NOTE: "))
