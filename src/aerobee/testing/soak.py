"""A soak: servers with metrics, quotas, POP and gRPC on, all kinds of clients at work, and memory that must stay flat.

    python -m aerobee.testing.soak [--minutes 20] [--rate 200]

Name server, broker and clients are three processes. After a time to warm up, their own memory (anonymous pages) is
looked at sixteen times. It is flat where the median of the last four looks is above that of the first four by no more
than an allowance. What was acknowledged must have been received, too. The exit code is 1 where either fails.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import statistics
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.request import urlopen

from aerobee import Message, sync
from aerobee.errors import AerobeeError, TransportError
from aerobee.model.numbers import parse_float, parse_int
from aerobee.model.sysproperties import UNIQ_KEY
from aerobee.runtime.clock import SystemClock
from aerobee.testing.commands import environment
from aerobee.testing.waiting import wait_until

LOOKS: Final = 16
_QUARTER: Final = LOOKS // 4
# Rings of statistics, caches and the allocator's own fill for a while.
ALLOWANCE: Final = 8 << 20
# A machine that stands still for some seconds leaves some calls without an answer.
_UNANSWERED_MAX: Final = 0.01
_MIB: Final = 1 << 20
_HOST: Final = "127.0.0.1"
_CLOCK: Final = SystemClock()
_BROKER: Final = (
    "mappedFileSizeCommitLog=16777216", "logMaxBytes=67108864", "cleanResourceInterval=1000",
    "mappedFileSizeConsumeQueue=200000", "maxIndexNum=40000", "maxHashSlotNum=10000", "listenPort=0",
    "brokerName=broker-a", "brokerIP1=127.0.0.1", "transactionCheckInterval=5000", "metricsExporterType=PROM",
    "quotas=topic:bounded messages=50", "brokerFastFailureEnable=false",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class MemoryLook:
    """The anonymous memory of each process at one moment, and what the clients had done by then."""

    at_s: float
    memory: dict[str, int]
    done: dict[str, int]


class Traffic:
    """One kind of traffic in a thread of its own. Its counts are what it did so far."""

    def __init__(self, name: str, work: Callable[[Traffic], None]) -> None:
        self.name = name
        self.sent = self.received = self.refused = self.unanswered = 0
        self.stop = threading.Event()
        self.problem = ""
        self._thread = threading.Thread(target=self._run, args=(work,), name=name, daemon=True)
        self._thread.start()

    def _run(self, work: Callable[[Traffic], None]) -> None:
        try:
            work(self)
        except Exception as error:  # noqa: BLE001 - a thread's failure is told in the table
            self.problem = f"{type(error).__name__}: {error}"

    @contextlib.contextmanager
    def passing(self, *more: type[Exception]) -> Iterator[None]:
        """Count a call that got no answer in time, and go on: a machine may stand still for some seconds."""
        passing: tuple[type[Exception], ...] = (TransportError, *more)
        try:
            yield
        except passing:
            self.unanswered += 1

    def paced(self, rate: float) -> Iterator[int]:
        """Yield numbers at a rate until the part is stopped."""
        began_s, number = _CLOCK.monotonic(), 0
        while not self.stop.wait(max(0.0, began_s + number / rate - _CLOCK.monotonic())):
            yield number
            number += 1

    def end(self) -> None:
        self.stop.set()
        self._thread.join(60)
        if self._thread.is_alive():
            self.problem = self.problem or "it did not stop within 60 s"


def _pushed(namesrv: str, rate: float) -> Callable[[Traffic], None]:
    """Send to a push consumer, with keys, tags, delays and transactions among the messages."""

    def work(part: Traffic) -> None:
        consumer = sync.PushConsumer(namesrv, group="soak-push", consume_from="first")

        @consumer.listener("pushed")
        def handle(message: Message) -> None:
            part.received += 1

        with consumer, sync.Producer(namesrv, group="soak-tx", on_check=lambda message: True) as producer:
            for number in part.paced(rate):
                with part.passing():
                    if number % 50 == 0:
                        with producer.transaction("pushed", b"in a transaction"):
                            pass
                    else:
                        delay = 1 if number % 20 == 1 else None
                        producer.send("pushed", b"x" * 512, keys=f"k{number}", tags="T", delay_level=delay)
                    part.sent += 1
            _drain(part)

    return work


def _popped(namesrv: str, rate: float) -> Callable[[Traffic], None]:
    """Send to a simple consumer, which pops and acknowledges."""

    def work(part: Traffic) -> None:
        import asyncio

        import aerobee

        all_sent = threading.Event()

        async def consume() -> None:
            async with aerobee.SimpleConsumer(
                namesrv, group="soak-pop", subscribe={"popped": "*"}, consume_from="first"
            ) as consumer:
                while not all_sent.is_set() or part.received < part.sent:
                    with part.passing():
                        for message in await consumer.receive(max_messages=16, invisible=30.0, wait=1.0):
                            await consumer.ack(message)
                            part.received += 1

        popper = threading.Thread(target=lambda: asyncio.run(consume()), daemon=True)
        with sync.Producer(namesrv, group="soak-popped") as producer:
            popper.start()
            for _ in part.paced(rate):
                with part.passing():
                    producer.send("popped", b"x" * 256)
                    part.sent += 1
        all_sent.set()
        popper.join(40)

    return work


def _by_grpc(address: str, rate: float) -> Callable[[Traffic], None]:
    """Send and receive as a client of RocketMQ 5 does."""

    def work(part: Traffic) -> None:
        from grpc import RpcError  # type: ignore[import-untyped, unused-ignore]

        from aerobee.testing.grpckit import GrpcPeer, consumer_settings, message

        with GrpcPeer(address, "soak@1") as peer:
            stream = peer.telemetry()
            stream.settle(consumer_settings("soak-grpc", ["by-grpc"]))
            for number in part.paced(rate / 4):
                with part.passing(RpcError):
                    peer.send(*(message("by-grpc", b"x" * 128, f"{UNIQ_KEY}-{number}-{one}") for one in range(4)))
                    part.sent += 4
                    found = peer.messages("by-grpc", "soak-grpc", wait_s=0)
                    if found:
                        systems = [one.system_properties for one in found]
                        handles = [one.receipt_handle for one in systems if one is not None]
                        peer.ack("by-grpc", "soak-grpc", *(handle for handle in handles if handle is not None))
                    part.received += len(found)
            wait_until(lambda: _take(part, peer.messages("by-grpc", "soak-grpc", wait_s=1)), within_s=30)
            stream.close()

    def _take(part: Traffic, found: Sequence[object]) -> bool:
        part.received += len(found)
        return part.received >= part.sent

    return work


def _bounded(namesrv: str) -> Callable[[Traffic], None]:
    """Send to a topic beyond its quota: it is slowed down or refused."""

    def work(part: Traffic) -> None:
        with sync.Producer(namesrv, group="soak-bounded", retries=0) as producer:
            for _ in part.paced(100):
                try:
                    producer.send("bounded", b"x")
                    part.sent += 1
                except TransportError:
                    part.unanswered += 1
                except AerobeeError:
                    part.refused += 1

    return work


def _comers(namesrv: str, metrics: str) -> Callable[[Traffic], None]:
    """Come and go: clients, groups and scrapes of the metrics page."""

    def work(part: Traffic) -> None:
        for number in part.paced(1):
            with part.passing(OSError):
                with sync.Producer(namesrv, group=f"soak-comer-{number % 5}") as producer:
                    producer.send("visited", b"x", keys=f"{number}")
                    part.sent += 1
                with sync.LitePullConsumer(namesrv, group=f"soak-visitor-{number % 5}") as consumer:
                    consumer.queues("visited")
                with urlopen(f"http://{metrics}/metrics", timeout=20) as page:
                    part.received += bool(page.read())

    return work


def _drain(part: Traffic) -> None:
    """Wait for what is on its way. A delay of the first level takes a second."""
    with contextlib.suppress(AssertionError):
        wait_until(lambda: part.received >= part.sent, within_s=30)


def clients(namesrv: str, grpc: str, metrics: str, rate: float) -> int:
    """Run the clients until standard input ends; answer each line with the counts."""
    with sync.Admin(namesrv) as admin:
        for topic in ("pushed", "popped", "by-grpc", "bounded", "visited"):
            admin.topics.create(topic, queues=4)
        for group in ("soak-push", "soak-pop", "soak-grpc"):
            admin.groups.create(group)
    parts = [
        Traffic("pushed", _pushed(namesrv, rate)),
        Traffic("popped", _popped(namesrv, rate / 4)),
        Traffic("by gRPC", _by_grpc(grpc, rate / 4)),
        Traffic("bounded", _bounded(namesrv)),
        Traffic("comers", _comers(namesrv, metrics)),
    ]
    for line in sys.stdin:
        if line.strip() == "end":
            break
        _tell(parts)
    for part in parts:
        part.end()
    _tell(parts)
    return 0


def _tell(parts: Sequence[Traffic]) -> None:
    counts = {one.name: [one.sent, one.received, one.refused, one.unanswered, one.problem] for one in parts}
    sys.stdout.write(json.dumps(counts) + "\n")
    sys.stdout.flush()


class SoakProcess:
    """A process of the soak."""

    def __init__(self, log: Path, *words: str) -> None:
        pipe = subprocess.PIPE
        with log.open("ab") as said:
            self.process = subprocess.Popen(
                [sys.executable, "-m", *words], stdin=pipe, stdout=pipe, stderr=said, text=True, env=environment()
            )

    def line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline()

    def ask(self, text: str) -> dict[str, list[object]]:
        assert self.process.stdin is not None
        self.process.stdin.write(text + "\n")
        self.process.stdin.flush()
        found: dict[str, list[object]] = json.loads(self.line())
        return found

    @property
    def memory(self) -> int:
        """Return the anonymous memory in bytes."""
        text = Path(f"/proc/{self.process.pid}/status").read_text()
        return parse_int(next(line.split()[1] for line in text.splitlines() if line.startswith("RssAnon:"))) * 1024

    def close(self) -> None:
        self.process.terminate()
        try:
            self.process.communicate(timeout=60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.communicate()


def soak(minutes: float, rate: float, allowance: int) -> list[str]:
    """Run the soak and print its table. Return what is wrong."""
    with tempfile.TemporaryDirectory(prefix="aerobee-soak-") as work, contextlib.ExitStack() as stack:
        place = Path(work)

        def start(*words: str) -> SoakProcess:
            child = SoakProcess(place / "log", *words)
            stack.callback(child.close)
            return child

        serve = "aerobee.testing.serve"
        names = start(serve, "namesrv", "listenPort=0")
        namesrv = names.line().split()[1]
        metrics, grpc = f"{_HOST}:{_free_port()}", f"{_HOST}:{_free_port()}"
        broker = start(
            serve, "broker", f"namesrvAddr={namesrv}", f"storePathRootDir={place / 'store'}",
            f"metricsPromExporterPort={metrics.rpartition(':')[2]}", f"grpcServerPort={grpc.rpartition(':')[2]}",
            *_BROKER,
        )  # fmt: skip
        broker.line()
        worker = start("aerobee.testing.soak", "clients", namesrv, grpc, metrics, str(rate))
        processes = {"name server": names, "broker": broker, "clients": worker}
        total_s = minutes * 60
        looks: list[MemoryLook] = []
        began_s = _CLOCK.monotonic()
        pause = threading.Event()
        _say(f"{'minute':>7} " + " ".join(f"{name:>12}" for name in processes) + "   MiB; messages received")
        for number in range(LOOKS):
            # A quarter of the time is for warming up.
            due_s = began_s + total_s * (0.25 + 0.75 * (number + 1) / LOOKS)
            pause.wait(max(0.0, due_s - _CLOCK.monotonic()))
            told = worker.ask("look")
            done = {name: parse_int(str(counts[1])) for name, counts in told.items()}
            if ended := [f"{name}: {counts[-1]}" for name, counts in told.items() if counts[-1]]:
                return ended
            looks.append(MemoryLook(_CLOCK.monotonic() - began_s, {n: c.memory for n, c in processes.items()}, done))
            shown = " ".join(f"{size / _MIB:12.1f}" for size in looks[-1].memory.values())
            _say(f"{looks[-1].at_s / 60:7.1f} {shown}   {sum(done.values()):,}")
        counts = worker.ask("end")
        problems = grown(looks, allowance) + _lost(counts)
        for name, (sent, received, refused, unanswered, _) in counts.items():
            _say(f"{name:>12}: {sent:,} sent, {received:,} received, {refused:,} refused, {unanswered:,} unanswered")
        said = (place / "log").read_text(errors="replace")
        if "Traceback" in said:
            problems.append(f"a traceback in the log: {said[said.index('Traceback') :][:2000]}")
    return problems


def grown(looks: Sequence[MemoryLook], allowance: int) -> list[str]:
    """Return which processes' memory grew by more than the allowance."""
    problems = []
    for name in looks[0].memory:
        first = statistics.median(look.memory[name] for look in looks[:_QUARTER])
        last = statistics.median(look.memory[name] for look in looks[-_QUARTER:])
        _say(f"{name:>12}: {first / _MIB:.1f} MiB, then {last / _MIB:.1f} MiB: {(last - first) / _MIB:+.1f}")
        if last - first > allowance:
            problems.append(f"the memory of the {name} grew by {(last - first) / _MIB:.1f} MiB")
    return problems


def _lost(counts: dict[str, list[object]]) -> list[str]:
    problems = [f"{name}: {one[-1]}" for name, one in counts.items() if one[-1]]
    for name in ("pushed", "popped", "by gRPC"):
        sent, received, _, unanswered = (parse_int(str(number)) for number in counts[name][:4])
        if unanswered > sent * _UNANSWERED_MAX:
            problems.append(f"{name}: {unanswered} calls beside {sent} messages got no answer in time")
        if not 0 < sent <= received:
            problems.append(f"{name}: {received} of {sent} messages were received")
    return problems


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def _free_port() -> int:
    import socket

    with socket.socket() as probe:
        probe.bind((_HOST, 0))
        port: int = probe.getsockname()[1]
        return port


def main(arguments: Sequence[str]) -> int:
    if arguments and arguments[0] == "clients":
        return clients(arguments[1], arguments[2], arguments[3], parse_float(arguments[4]))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=parse_float, default=20.0)
    parser.add_argument("--rate", type=parse_float, default=200.0, help="messages a second to the push consumer")
    parser.add_argument("--allowance-mib", type=parse_float, default=ALLOWANCE / _MIB)
    given = parser.parse_args(arguments)
    problems = soak(given.minutes, given.rate, round(given.allowance_mib * _MIB))
    for problem in problems:
        _say(f"soak: {problem}")
    _say("soak: " + ("failed" if problems else "memory is flat, and every message came"))
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
