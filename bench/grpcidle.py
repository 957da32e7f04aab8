"""Idle gRPC clients at our broker: memory and CPU of 1,000 consumers, each with its telemetry stream and heartbeats.

python bench/grpcidle.py [--clients 1000] [--seconds 30]

Each client has a connection of its own, tells its settings on a telemetry stream that stays open, and sends a heartbeat
every ten seconds, as the official clients do.
"""

from __future__ import annotations

import argparse
import selectors
import shutil
import socket
import sys
import time

import hpack
from bench import table
from bench.proxy import GROUP, OUT, QUEUES, TOPIC, Front

from aerobee.hot.h2 import frames
from aerobee.protocol.grpc import prefixed
from aerobee.protocol.v2 import calls, enums
from aerobee.protocol.v2.fields import encode
from aerobee.testing.grpckit import SERVICE, consumer_settings, topic_named

_BEAT_S = 10.0


class Idle:
    """One client."""

    def __init__(self, port: int, number: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=60)
        self._encoder = hpack.Encoder()
        self._client_id = f"host@{number}@0@idle"
        self._stream = 1
        settings = consumer_settings(GROUP, [TOPIC], enums.PUSH_CONSUMER)
        told = encode(calls.PbTelemetryCommand(settings=settings))
        begin = frames.PREFACE + frames.frame(frames.SETTINGS, 0, 0)
        self.socket.sendall(begin + self._head("Telemetry") + frames.frame(frames.DATA, 0, 1, prefixed(told)))

    def _head(self, method: str) -> bytes:
        block = self._encoder.encode(
            [
                (":method", "POST"), (":scheme", "http"), (":path", SERVICE + method), (":authority", "localhost"),
                ("content-type", "application/grpc"), ("te", "trailers"), ("x-mq-client-id", self._client_id),
                ("x-mq-language", "JAVA"),
            ]
        )  # fmt: skip
        return frames.frame(frames.HEADERS, frames.END_HEADERS, self._stream, block)

    def settled(self) -> None:
        """Wait for the server's settings."""
        data = b""
        while GROUP.encode() not in data:
            data += self.socket.recv(65536)

    def beat(self) -> None:
        """Send a heartbeat."""
        self._stream += 2
        beat = encode(calls.PbHeartbeatRequest(topic_named(GROUP), enums.PUSH_CONSUMER))
        head = self._head("Heartbeat")
        self.socket.sendall(head + frames.frame(frames.DATA, frames.END_STREAM, self._stream, prefixed(beat)))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", type=int, default=1_000)
    parser.add_argument("--seconds", type=float, default=30.0)
    given = parser.parse_args()
    front = Front(table.OURS, OUT / "grpcidle", "")
    try:
        front.create_topic(TOPIC, QUEUES)
        front.create_group(GROUP)
        empty = front.usage()
        clients = [Idle(front.grpc_port, number) for number in range(given.clients)]
        waiting = selectors.DefaultSelector()
        for one in clients:
            one.settled()
            waiting.register(one.socket, selectors.EVENT_READ, one)
        joined = front.usage()
        began_s = time.monotonic()
        beats = 0
        while (passed_s := time.monotonic() - began_s) < given.seconds:
            due = min(len(clients) * (passed_s / _BEAT_S), 1e9)
            while beats < due:
                clients[beats % len(clients)].beat()
                beats += 1
            for key, _ in waiting.select(0.01):
                assert key.data.socket.recv(65536), "the server closed a connection"
        after = front.usage()
    finally:
        front.stop()
        shutil.rmtree(OUT / "grpcidle", ignore_errors=True)
    kb = (after.resident_mb - empty.resident_mb) * 1024 / given.clients
    cpu = (after.cpu_s - joined.cpu_s) / passed_s * 100
    print(f"{given.clients} clients with telemetry streams, {beats} heartbeats in {passed_s:.0f} s")
    print(f"resident {empty.resident_mb:.1f} MB before, {after.resident_mb:.1f} MB with them: {kb:.1f} KB a client")
    print(
        f"CPU to join {(joined.cpu_s - empty.cpu_s) * 1e3 / given.clients:.2f} ms a client; idle {cpu:.2f} % of a core"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
