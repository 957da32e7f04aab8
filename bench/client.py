"""What a message costs its sender: our client beside the official gRPC Python client and Apache's Java client.

python bench/client.py [rounds, 3] [messages of a round, 8000]

All send to one Apache broker: ours and Java's directly, the gRPC client through Apache's proxy (cluster mode). 16
tasks or threads, each waiting for its answer before it sends on; 128-byte bodies. The clients take turns, and the best
round of each counts: the machine is shared, and only slowness is added to the truth. Needs Java and Maven. The gRPC
client lives in an environment of its own, .build/grpc-client.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from aerobee import _pure
from aerobee.testing.apache import (
    PROJECT,
    ApacheBroker,
    ApacheError,
    ApacheNameServer,
    JavaProcess,
    driver_classpath,
    free_ports,
    mqadmin,
    unavailable,
)

GRPC_CLIENT = "rocketmq-python-client==5.1.2"
TOPIC = "bench"
TASKS = 16
BODY_BYTES = 128
TARGET = 5.0
BENCH = Path(__file__).parent


@dataclass
class Sends:
    """One client: a child that sends a round for every line it is given."""

    name: str
    process: subprocess.Popen[str]
    count: int
    seconds: float = float("inf")
    cpu_s: float = float("inf")

    def round(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("go\n")
        self.process.stdin.flush()
        answer = json.loads(self._line())
        self.seconds = min(self.seconds, answer["seconds"])
        self.cpu_s = min(self.cpu_s, answer["cpu_s"])

    def ready(self) -> None:
        while self._line() != "ready\n":
            pass

    def _line(self) -> str:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise ApacheError(f"{self.name} ended with {self.process.wait()}")
        return line

    @property
    def rate(self) -> float:
        return self.count / self.seconds

    @property
    def cpu_us(self) -> float:
        return self.cpu_s / self.count * 1e6


def grpc_python() -> Path:
    """The interpreter that has the official client; made when missing."""
    home = PROJECT / ".build" / "grpc-client"
    python = home / "bin" / "python"
    if not (home / "installed").exists():
        print(f"installing {GRPC_CLIENT} into {home.relative_to(PROJECT)}", flush=True)
        subprocess.run([sys.executable, "-m", "venv", str(home)], check=True)
        command = [str(python), "-m", "pip", "install", "-q", "--disable-pip-version-check", GRPC_CLIENT]
        subprocess.run(command, check=True)
        (home / "installed").touch()
    return python


def proxy_classpath() -> str:
    answer = PROJECT / "out" / "bench" / "proxy-classpath.txt"
    if not answer.exists():
        print("asking Maven for Apache's proxy", flush=True)
        answer.parent.mkdir(parents=True, exist_ok=True)
        command = ["mvn", "-q", "-B", "-f", str(BENCH / "java" / "proxy" / "pom.xml"), "dependency:build-classpath"]
        subprocess.run([*command, f"-Dmdep.outputFile={answer}"], check=True)
    return answer.read_text().strip()


class Proxy(JavaProcess):
    """Apache's proxy before the cluster of a name server."""

    def __init__(self, work: Path, namesrv: str) -> None:
        self.port = free_ports(1)
        work.mkdir()
        config = {
            "rocketMQClusterName": "DefaultCluster",
            "namesrvAddr": namesrv,
            "proxyMode": "CLUSTER",
            "grpcServerPort": self.port,
            "remotingListenPort": free_ports(),
            "localServeAddr": "127.0.0.1",
        }
        (work / "rmq-proxy.json").write_text(json.dumps(config))
        arguments = ["-pc", str(work / "rmq-proxy.json"), "-n", namesrv]
        super().__init__(proxy_classpath(), "org.apache.rocketmq.proxy.ProxyStartup", arguments, work, heap_mb=512)
        self.wait_for("startup successfully", 120)


def broker(work: Path, namesrv: str, settings: dict[str, object]) -> ApacheBroker:
    """Its three ports are chosen before it starts: somebody else may be faster."""
    for i in range(3):
        try:
            return ApacheBroker(work / f"broker-{i}", work / f"store-{i}", namesrv, settings=settings)
        except ApacheError as error:
            if "Address already in use" not in str(error):
                raise
    raise ApacheError("no port for the broker stays free")


def start(name: str, command: list[str], address: str, count: int, work: Path) -> Sends:
    arguments = [*command, address, TOPIC, str(count), str(TASKS), str(BODY_BYTES)]
    errors = work / f"{name.split()[0]}.err"
    with errors.open("w") as sink:
        pipe = subprocess.PIPE
        process = subprocess.Popen(arguments, stdin=pipe, stdout=pipe, stderr=sink, text=True, cwd=work)
    return Sends(name, process, count)


def compare(work: Path, rounds: int, count: int) -> list[Sends]:
    with ExitStack() as stack:
        print("starting Apache's name server, broker and proxy", flush=True)
        names = stack.enter_context(ApacheNameServer(work / "namesrv"))
        settings: dict[str, object] = {
            "mappedFileSizeCommitLog": 1 << 30,
            "maxIndexNum": 400_000,
            "maxHashSlotNum": 100_000,
        }
        stack.enter_context(broker(work, names.address, settings))
        mqadmin(work / "admin", "updateTopic", "-n", names.address, "-t", TOPIC, "-c", "DefaultCluster",
                "-a", "+message.type=NORMAL")  # fmt: skip
        proxy = stack.enter_context(Proxy(work / "proxy", names.address))
        java = [
            "java",
            "-Xmx512m",
            f"-Duser.home={work}",
            "-cp",
            driver_classpath(),
            str(BENCH / "java/ClientSends.java"),
        ]
        clients = [
            start("aerobee", [sys.executable, str(BENCH / "client_ours.py")], names.address, count, work),
            start("java", java, names.address, count, work),
            # Slower by far: fewer messages are enough.
            start(
                "grpc", [str(grpc_python()), str(BENCH / "client_grpc.py")], f"127.0.0.1:{proxy.port}", count // 8, work
            ),
        ]
        for client in clients:
            stack.callback(client.process.wait)
            stack.callback(client.process.kill)
        for client in clients:
            client.ready()
        for i in range(rounds):
            print(f"round {i + 1} of {rounds}", flush=True)
            for client in clients:
                client.round()
        return clients


def main() -> int:
    missing = unavailable()
    if missing:
        print(f"client: not measured, {missing}")
        return 0
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    count = int(sys.argv[2]) if len(sys.argv) > 2 else 8000
    grpc_python()
    with tempfile.TemporaryDirectory(prefix="aerobee-bench-") as directory:
        ours, java, grpc = compare(Path(directory), rounds, count)
    labels = {
        ours.name: f"aerobee, asyncio, hot/ {'compiled' if _pure.is_compiled() else 'interpreted'}",
        java.name: "Apache's Java client 5.5.0",
        grpc.name: f"{GRPC_CLIENT.replace('==', ' ')}, gRPC to Apache's proxy",
    }
    print(f"\nsends of {BODY_BYTES} bytes, {TASKS} at a time, to one Apache broker; best of {rounds} rounds")
    print(f"{'':58}{'sends/s':>10}{'CPU us each':>13}{'rate':>8}")
    for one in (ours, java, grpc):
        print(f"{labels[one.name]:58}{one.rate:10,.0f}{one.cpu_us:13,.0f}{one.rate / grpc.rate:7.1f}x")
    ratio = ours.rate / grpc.rate
    print(f"aerobee is {ratio:.1f} times as fast as the official Python client (target: {TARGET:.0f})")
    return 0 if ratio >= TARGET else 1


if __name__ == "__main__":
    sys.exit(main())
