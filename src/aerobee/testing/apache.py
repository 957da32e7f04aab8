"""Apache RocketMQ as a test peer: its name server, broker, mqadmin and Java clients, resolved through Maven.

The Java side is built once, into `out/interop`. Each Java process ends with its context. The Maven projects are in
`tests/interop/java`: `servers` (jars only) and `driver` (a command on the official client).
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
from aerobee.testing.secrets import FOREIGN

PROJECT = Path(__file__).parents[3]
NEWEST = "5.5.0"
LEGACY = "4.9.8"
POLL_S = 0.1

# Later versions of Java refuse the broker's reflection without these options. Java 8 does not read the variable.
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
    """A Java process failed. The message holds the end of its output."""


def unavailable() -> str | None:
    """Return why Java processes cannot run here, or None."""
    missing = [tool for tool in ("java", "javac", "mvn") if shutil.which(tool) is None]
    return f"needs {' and '.join(missing)} on the PATH" if missing else None


def server_classpath(version: str = NEWEST) -> str:
    """Return the class path of the name server, broker and tools of `version`."""
    return _resolve("servers", version, compiled=False)


def driver_classpath(version: str = NEWEST) -> str:
    """Return the class path of the driver and the client of `version`. The driver is compiled against that client."""
    return _resolve("driver", version, compiled=True)


def proxy_classpath(version: str = NEWEST) -> str:
    """Return the class path of the gRPC proxy of `version`, which contains a broker."""
    return _resolve("proxy", version, compiled=False)


def grpc_client_classpath(version: str = "5.2.0") -> str:
    """Return the class path of the program on the 5.x client, which speaks gRPC."""
    return _resolve("grpcclient", version, compiled=True)


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
    """Return a port that is free together with its neighbours at `steps` from it.

    The port is below those of outgoing connections: one of those may be taken before Java has started.
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
    """Send one request on a connection of its own."""
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, parse_int(port)), timeout=10) as connection:
        connection.sendall(encode_command(command))
        stream = connection.makefile("rb")
        with stream:
            length = stream.read(4)
            return decode_frame(length + stream.read(int.from_bytes(length, "big")))


def registered_brokers(namesrv: str) -> set[str]:
    """Return the broker addresses that a name server knows."""
    answer = _asked(namesrv, request(RequestCode.GET_BROKER_CLUSTER_INFO, opaque=1))
    table = loads_object(answer.body)["brokerAddrTable"]
    return {address for broker in table.values() for address in broker["brokerAddrs"].values()}


class JavaProcess:
    """A JVM. Its output goes to a file; it is killed when its context ends."""

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
        # Apache's programs write secrets down, and tests of ours need not search what they write.
        (work / FOREIGN).touch()
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
        # The process has its own copy of the descriptor.
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
        """Wait until the output contains `words`."""
        self.wait_until(lambda: words in self.text(), repr(words), timeout_s)

    def wait_until(self, holds: Callable[[], bool], what: str, timeout_s: float = 60) -> None:
        """Wait until `holds`; raise an error where the process ends before, or at the limit, where it is killed."""
        for _ in range(int(timeout_s / POLL_S)):
            if holds():
                return
            if self._ended_within(POLL_S) and not holds():
                raise ApacheError(f"ended with {self.process.returncode}:\n{self.text()[-3000:]}")
        if self.killed_when_late:
            self.kill()
        raise ApacheError(f"no {what} within {timeout_s:.0f} s:\n{self.text()[-3000:]}")

    def wait(self, timeout_s: float = 120) -> int:
        """Wait for the end and return the exit status. A process that takes longer is killed."""
        if not self._ended_within(timeout_s):
            self.kill()
            raise ApacheError(f"still running after {timeout_s:.0f} s:\n{self.text()[-3000:]}")
        return self.process.returncode

    def stop(self, timeout_s: float = 60) -> None:
        """Stop the process by SIGTERM, which runs Apache's shutdown hooks."""
        self.process.send_signal(signal.SIGTERM)
        self.wait(timeout_s)

    def kill(self) -> None:
        """Kill the process by SIGKILL."""
        self.process.kill()
        self.process.wait()

    def _ended_within(self, seconds: float) -> bool:
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        return True


class ApacheNameServer(JavaProcess):
    """Apache's name server on a free port of loopback. It serves once it is made.

    With `controlled` it holds a controller, too, which elects masters: `controller` is its address.
    """

    def __init__(self, work: Path, *, version: str = NEWEST, controlled: bool = False) -> None:
        self.port = free_ports()
        self.address = f"127.0.0.1:{self.port}"
        work.mkdir(parents=True, exist_ok=True)
        config = work / "namesrv.conf"
        settings: dict[str, object] = {"listenPort": self.port, "bindAddress": "127.0.0.1"}
        self.controller = f"127.0.0.1:{free_ports()}" if controlled else ""
        if controlled:
            settings |= {
                "enableControllerInNamesrv": "true",
                "controllerDLegerGroup": "group1",
                "controllerDLegerPeers": f"n0-{self.controller}",
                "controllerDLegerSelfId": "n0",
                "controllerStorePath": work / "controller",
            }
        config.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        main = "org.apache.rocketmq.namesrv.NamesrvStartup"
        super().__init__(server_classpath(version), main, ["-c", str(config)], work)
        self.wait_for("boot success")


# The files are small, so that a test crosses their ends. Test machines are often nearly full, so no ratio is checked.
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
    """Apache's broker on `store` (created when missing). It serves once it is made.

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
        port: int | None = None,
    ) -> None:
        # Apache listens on the port itself, on the fast one two below, and on that of replication.
        self.port = free_ports(-2, 1) if port is None else port
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
        if "authenticationEnabled" in keys:
            store.mkdir(parents=True, exist_ok=True)
            (store / FOREIGN).touch()
        main = "org.apache.rocketmq.broker.BrokerStartup"
        super().__init__(server_classpath(version), main, ["-c", str(config)], work, heap_mb=512)
        self.wait_for("boot success")
        self._servers = namesrv.split(";")
        self.wait_until(self._is_registered, "registration")

    def _is_registered(self) -> bool:
        """Return whether the broker is registered.

        Its first registration is lost when it comes before its own connection, and the next follows after 10 s. So its
        permission is set, after which it registers at once (where it allows that).
        """
        if all(self.address in registered_brokers(server) for server in self._servers):
            return True
        _asked(self.address, request(RequestCode.UPDATE_BROKER_CONFIG, body=b"brokerPermission=6", opaque=1))
        return False


class ApacheProxy(JavaProcess):
    """Apache's proxy in CLUSTER mode, before the brokers of `cluster`. It serves gRPC and remoting once it is made.

    `settings` are keys of rmq-proxy.json.
    """

    def __init__(
        self,
        work: Path,
        namesrv: str,
        cluster: str,
        *,
        settings: Mapping[str, object] | None = None,
        version: str = NEWEST,
    ) -> None:
        port = free_ports(1)
        self.grpc = f"127.0.0.1:{port}"
        self.remoting = f"127.0.0.1:{port + 1}"
        work.mkdir(parents=True, exist_ok=True)
        config = work / "rmq-proxy.json"
        keys: dict[str, object] = {
            "proxyMode": "CLUSTER",
            "rocketMQClusterName": cluster,
            "namesrvAddr": namesrv,
            "grpcServerPort": port,
            "remotingListenPort": port + 1,
            "localServeAddr": "127.0.0.1",
            "remotingAccessAddr": "127.0.0.1",
            # Brokers ask about half messages only producers that they heard of, by default every 20 s.
            "transactionHeartbeatPeriodSecond": 1,
            **(settings or {}),
        }
        config.write_text(json.dumps(keys))
        main = "org.apache.rocketmq.proxy.ProxyStartup"
        super().__init__(proxy_classpath(version), main, ["-pc", str(config)], work, heap_mb=512)
        self.wait_for("startup successfully", 180)


def client_system(codec: str) -> dict[str, str]:
    """Return Java's system properties for a client: its header codec, and a look for new queues every second.

    The default of 20 s would make every test of a new topic wait for it.
    """
    return {"rocketmq.serialize.type": codec, "rocketmq.client.rebalance.waitInterval": "1000"}


def driver_arguments(namesrv: str, options: Mapping[str, object]) -> list[str]:
    """Return options as the driver's command line has them: `_` becomes `-`."""
    arguments = ["--namesrv", namesrv]
    for key, value in options.items():
        shown = str(value).lower() if isinstance(value, bool) else str(value)
        arguments += [f"--{key.rstrip('_').replace('_', '-')}", shown]
    return arguments


class JavaDriver:
    """The commands of the official Java client of one version (see `tests/interop/java/driver`)."""

    def __init__(self, work: Path, namesrv: str, *, version: str = NEWEST, codec: str = "JSON") -> None:
        self._work = work
        self._namesrv = namesrv
        self._classpath = driver_classpath(version)
        self._system = client_system(codec)
        self._count = 0

    def start(self, command: str, **options: object) -> DriverRun:
        """Start a command. `options` are its own, with `_` for `-`: start("produce", topic="T", count=10)."""
        self._count += 1
        arguments = [command, *driver_arguments(self._namesrv, options)]
        work = self._work / f"{command}-{self._count}"
        return DriverRun(self._classpath, "interop.Main", arguments, work, system=self._system)

    def run(self, command: str, *, within_s: float = 120, **options: object) -> list[dict[str, Any]]:
        """Run a command, which must succeed; return every line that it printed."""
        with self.start(command, **options) as run:
            status = run.wait(within_s)
            if status:
                raise ApacheError(f"{command} ended with {status}:\n{run.text()[-3000:]}")
            return run.events()


class DriverRun(JavaProcess):
    """A running command of the driver."""

    def events(self, kind: str | None = None) -> list[dict[str, Any]]:
        """Return the whole lines printed so far, all or those of one `event`."""
        whole = self.text().rpartition("\n")[0].split("\n")
        events = [json.loads(line) for line in whole if line.startswith('{"event"')]
        return [event for event in events if kind is None or event["event"] == kind]

    def wait_for_events(self, kind: str, count: int = 1, timeout_s: float = 60) -> list[dict[str, Any]]:
        """Wait until `count` lines of `kind` were printed."""
        self.wait_until(lambda: len(self.events(kind)) >= count, f"{count} {kind} lines", timeout_s)
        return self.events(kind)


def mqadmin(work: Path, *arguments: str, version: str = NEWEST, within_s: float = 60) -> str:
    """Run Apache's admin command, which must succeed; return its output."""
    main = "org.apache.rocketmq.tools.command.MQAdminStartup"
    with JavaProcess(driver_classpath(version), main, list(arguments), work) as run:
        if run.wait(within_s):
            raise ApacheError(f"mqadmin {' '.join(arguments)}:\n{run.text()[-3000:]}")
        # Java and the logging library write about themselves to the same stream.
        lines = run.text().split("\n")
        return "\n".join(line for line in lines if "|-" not in line and not line.startswith("NOTE: "))
