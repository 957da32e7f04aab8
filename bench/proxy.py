"""gRPC at our broker beside Apache's proxy: sends, receives and acknowledgements of 1 KB. `make bench-proxy` runs it.

python bench/proxy.py [--scale 1.0] [--rounds 2] [--alone] [--rows WORDS]

Ours is a broker with the service in its process; Apache's is its proxy in LOCAL mode, which has the broker in its
process too. Both are up at the same time, and the one that is not measured is stopped. Each is warmed by sends,
receives and acknowledgements before. CPU is that of the process (/proc), for each message. Frames are made beforehand,
so the load generator (grpcload.c) costs little.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import grpc
import hpack
from bench import table
from bench.contenders import _JVM, PROJECT, Contender, build_loadgen

from aerobee.protocol.codes import RequestCode
from aerobee.protocol.command import encode_command, request
from aerobee.protocol.v2 import calls, enums
from aerobee.protocol.v2.fields import decode, encode
from aerobee.protocol.v2.values import (
    PbBroker,
    PbDigest,
    PbDuration,
    PbFilterExpression,
    PbMessageQueue,
    PbSystemProperties,
    PbTimestamp,
)
from aerobee.protocol.v2.values import PbMessage as Message
from aerobee.testing.apache import free_ports, proxy_classpath
from aerobee.testing.grpckit import SERVICE, GrpcPeer, consumer_settings, producer_settings, topic_named

OUT = PROJECT / "out" / "bench"
TOPIC, GROUP, QUEUES = "bench-grpc", "bench-grpc-group", 8
CLIENT = "host@1@0@bench"
BODY = b"x" * 1024
WARM, COUNT, RATE = 150_000, 60_000, 2_000
SECONDS_MAX = 240
_CRC32 = 1


class Front(Contender):
    """A process with a broker and the gRPC service."""

    def __init__(self, name: str, work: Path, namesrv: str) -> None:
        self.grpc_port = free_ports(0)
        self._namesrv = namesrv
        settings = {"autoCreateSubscriptionGroup": "true", "brokerFastFailureEnable": "false"}
        if namesrv:
            settings["namesrvAddr"] = namesrv
        if name != table.APACHE:
            settings["grpcServerPort"] = str(self.grpc_port)
        super().__init__(name, work, settings)
        for _ in range(600):
            with socket.socket() as probe:
                if not probe.connect_ex(("127.0.0.1", self.grpc_port)):
                    return
            time.sleep(0.1)
        raise SystemExit(f"{name} does not serve gRPC")

    def _command(self, work: Path) -> list[str]:
        if self.name != table.APACHE:
            return super()._command(work)
        proxy = {
            "rocketMQClusterName": "DefaultCluster", "proxyMode": "LOCAL", "grpcServerPort": self.grpc_port,
            "remotingListenPort": free_ports(0), "namesrvAddr": self._namesrv,
        }  # fmt: skip
        (work / "proxy.json").write_text(json.dumps(proxy))
        jvm = [*_JVM, f"-Duser.home={work}", f"-Djava.io.tmpdir={work}", "-cp", proxy_classpath()]
        return [
            "java", *jvm, "org.apache.rocketmq.proxy.ProxyStartup", "-pm", "local", "-n", self._namesrv,
            "-bc", str(self._config), "-pc", str(work / "proxy.json"),
        ]  # fmt: skip

    def create_group(self, group: str) -> None:
        body = json.dumps({"groupName": group, "consumeEnable": True, "retryMaxTimes": 16, "retryQueueNums": 1})
        ask = encode_command(request(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=body.encode(), opaque=1))
        with socket.create_connection(("127.0.0.1", self.port), timeout=30) as connection:
            connection.sendall(ask)
            connection.recv(4096)


# -- requests


def headers(method: str) -> tuple[bytes, bytes]:
    """Return the header blocks of a connection's first call, and of the others: what rocketmq-client-java sends."""
    stays = [
        (":method", "POST"), (":scheme", "http"), (":path", SERVICE + method), (":authority", "127.0.0.1:8081"),
        ("content-type", "application/grpc"), ("te", "trailers"), ("user-agent", "grpc-java-netty/1.50.0"),
        ("x-mq-language", "JAVA"), ("x-mq-protocol", "v2"), ("x-mq-client-version", "5.2.0"),
        ("x-mq-client-id", CLIENT), ("x-mq-namespace", ""), ("grpc-accept-encoding", "gzip"),
    ]  # fmt: skip
    # New with each call: a client would not find them in the table.
    changes = [
        hpack.NeverIndexedHeaderTuple("x-mq-date-time", "20261118T214500Z"),
        hpack.NeverIndexedHeaderTuple("x-mq-request-id", "8e5b3cb2-9ef8-4a5e-b4c8-2ab9e7d3f011"),
        hpack.NeverIndexedHeaderTuple("grpc-timeout", "29998342u"),
    ]
    encoder = hpack.Encoder()
    return encoder.encode([*stays, *changes]), encoder.encode([*stays, *changes])


def _written(path: Path, method: str, requests: Iterator[object]) -> Path:
    with path.open("wb") as out:
        for block in headers(method):
            out.write(struct.pack("<i", len(block)) + block)
        for one in requests:
            data = encode(one)
            out.write(struct.pack("<i", len(data) + 5) + b"\0" + struct.pack(">I", len(data)) + data)
    return path


def sends() -> Iterator[object]:
    for number in range(64):
        system = PbSystemProperties(
            tag="TagA", keys=[f"order-{number:04}"], message_id=f"01CA5F5C8B1D7C9A3E04F2A1B3{number:08X}",
            body_digest=PbDigest(_CRC32, "DEADBEEF"), body_encoding=enums.IDENTITY, message_type=enums.NORMAL,
            born_timestamp=PbTimestamp(1_795_000_000, 5_000_000), born_host="client-7.example", queue_id=0,
        )  # fmt: skip
        yield calls.PbSendMessageRequest([Message(topic_named(TOPIC), {"region": "eu", "n": "1"}, system, BODY)])


def receives() -> Iterator[object]:
    place = PbMessageQueue(topic_named(TOPIC), -1, enums.READ, PbBroker("bench-broker"), [])
    yield calls.PbReceiveMessageRequest(
        group=topic_named(GROUP), message_queue=place, filter_expression=PbFilterExpression(enums.TAG, "*"),
        batch_size=32, invisible_duration=PbDuration(1800), long_polling_timeout=PbDuration(5),
    )  # fmt: skip


def _acks(saved: Path) -> list[object]:
    """Return an acknowledgement of each message that was received."""
    data, at, found = saved.read_bytes(), 0, []
    while at < len(data):
        size = struct.unpack_from("<i", data, at)[0]
        one = decode(calls.PbReceiveMessageResponse, data[at + 4 : at + 4 + size]).message
        at += 4 + size
        if one is not None and one.system_properties is not None:
            entry = calls.PbAckMessageEntry(
                one.system_properties.message_id, one.system_properties.receipt_handle or ""
            )
            found.append(calls.PbAckMessageRequest(topic_named(GROUP), topic_named(TOPIC), [entry]))
    return found


# -- runs


class Bench:
    """Both fronts, and what was measured of them."""

    def __init__(self, names: list[str], namesrv: str, scale: float) -> None:
        self.scale = scale
        self.loadgen = build_loadgen(OUT / "grpcload", "grpcload")
        self.fronts = [Front(name, OUT / "proxy" / name, namesrv) for name in names]
        self.figures: table.Figures = {}

    def run(self, front: Front, *, warm: int) -> None:
        # Streams of before have ended, because this front was stopped. The other one must run: settings are told to all
        # brokers.
        streams = _settled(front)
        with front.running_alone(self.fronts):
            count = round(COUNT * self.scale)
            if warm:
                self._load(front, "SendMessage", sends(), warm, 1, 32)
                self._consume(front, "", min(warm, count))
            self._row(front, "gRPC send 1 KB, 1 x 32", "SendMessage", sends(), count, 1, 32)
            self._row(front, "gRPC send 1 KB, 16 x 1", "SendMessage", sends(), count // 2, 16, 1)
            self._row(front, "gRPC send, fixed 2,000/s", "SendMessage", sends(), count // 4, 16, 1, RATE)
            self._consume(front, "gRPC", count)
            streams.clear()

    def _consume(self, front: Front, row: str, count: int) -> None:
        """Receive, and acknowledge half of it as fast as that goes and half at a fixed rate."""
        saved = OUT / "proxy" / "received"
        every = []
        for words, rate in (("1 x 2", 0), ("fixed 2,000/s", RATE / 32)):
            name = row and f"{row} receive 1 KB, 32 a call, {words}"
            part = count * 3 // 4 if not rate else count // 4
            self._row(front, name, "ReceiveMessage", receives(), part // 32, 1, 2 if not rate else 8, rate, saved)
            every += _acks(saved)
        for words, rate, share in (
            ("1 x 32", 0, every[: len(every) * 3 // 4]),
            ("fixed 2,000/s", RATE, every[len(every) * 3 // 4 :]),
        ):
            name = row and f"{row} ack, {words}"
            self._row(
                front, name, "AckMessage", iter(share), len(share), 1 if not rate else 16, 32 if not rate else 1, rate
            )

    def _row(
        self, front: Front, row: str, method: str, requests: Iterator[object], count: int, connections: int,
        window: int, rate: float = 0, saved: Path | None = None,
    ) -> None:  # fmt: skip
        before = front.usage().cpu_s
        told = self._load(front, method, requests, count, connections, window, rate, saved)
        cpu_s = front.usage().cpu_s - before
        messages = told["messages"] or told["answers"]
        if not row:
            return
        found = self.figures.setdefault(row, {}).setdefault(front.name, {})
        figures = {"cpu_us": cpu_s * 1e6 / messages}
        if rate:
            figures |= {"p50_ms": told["p50_ms"], "p99_ms": told["p99_ms"]}
        else:
            figures |= {"per_second": messages / told["seconds"], "p99_ms": told["p99_ms"]}
        for name, value in figures.items():
            found.setdefault(name, []).append(value)
        words = ", ".join(f"{name} {value:,.2f}" for name, value in figures.items())
        print(f"{front.name}: {row}: {words}", flush=True)

    def _load(
        self, front: Front, method: str, requests: Iterator[object], count: int, connections: int, window: int,
        rate: float = 0, saved: Path | None = None,
    ) -> Mapping[str, float]:  # fmt: skip
        path = _written(OUT / "proxy" / "requests", method, requests)
        command = [
            str(self.loadgen), "127.0.0.1", str(front.grpc_port), str(path), str(connections), str(window), str(count),
            str(rate), str(SECONDS_MAX), *([str(saved)] if saved is not None else []),
        ]  # fmt: skip
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(f"{front.name}: {method}: {done.stdout} {done.stderr}")
        told: dict[str, float] = json.loads(done.stdout)
        # A pop that comes too late on a busy machine is an error at Apache's broker; it brings no message, and costs.
        if told["refused"] > count * (0.05 if method != "ReceiveMessage" else 0.8):
            raise SystemExit(f"{front.name}: {method}: {told['refused']} of {count} refused, {told['refused_code']}")
        return told


def _settled(front: Front) -> list[object]:
    """Return the telemetry streams of the client that the load generator acts for: Apache's proxy wants settings.

    A front that was stopped until now may refuse the first ones.
    """
    for last in (False, False, False, True):
        found: list[object] = []
        try:
            for settings in (producer_settings(TOPIC), consumer_settings(GROUP, [TOPIC])):
                stream = GrpcPeer(f"127.0.0.1:{front.grpc_port}", CLIENT).telemetry()
                stream.settle(settings)
                found.append(stream)
        except grpc.RpcError:
            if last:
                raise
            time.sleep(1)
        else:
            break
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--alone", action="store_true", help="measure our broker only")
    parser.add_argument("--warm", type=int, default=WARM, help="sends before anything is measured")
    given = parser.parse_args()
    names = [*([] if given.alone else [table.APACHE]), table.OURS]
    print(f"{os.cpu_count()} CPUs, {platform.platform()}, Python {platform.python_version()}", flush=True)
    (OUT / "proxy").mkdir(parents=True, exist_ok=True)
    if not given.alone:
        proxy_classpath()  # resolved before any process waits for it
    port = free_ports(0)
    namesrv = subprocess.Popen(
        [sys.executable, "-m", "aerobee", "namesrv", "--set", f"listenPort={port}"], stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )  # fmt: skip
    bench: Bench | None = None
    try:
        bench = Bench(names, f"127.0.0.1:{port}", given.scale)
        for front in bench.fronts:
            front.create_topic(TOPIC, QUEUES)
            front.create_group(GROUP)
        for number in range(given.rounds):
            for front in bench.fronts:
                bench.run(front, warm=given.warm if not number else 0)
    finally:
        for front in bench.fronts if bench is not None else []:
            front.stop()
        namesrv.terminate()
        namesrv.wait(30)
    (OUT / "proxy.json").write_text(json.dumps(bench.figures, indent=1))
    print("\n" + table.whole(bench.figures, names))
    return 0


if __name__ == "__main__":
    sys.exit(main())
