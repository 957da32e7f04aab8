"""Fuzz a connection of gRPC by frames: `python -m aerobee.testing.fuzz.grpcframes --frames 10000000 --seed 1`.

Whole conversations (calls of several methods, with real messages) are changed at random and given to the machine of a
connection; each message that comes out goes to the scanners of the short way and to the tables. Frames that the machine
is given are counted. Each chunk of inputs has a seed of its own, so a run that was stopped goes on with `--from CHUNK`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Final

from aerobee.errors import RemoteProtocolError
from aerobee.hot.h2 import frames
from aerobee.hot.h2.hpack import literal
from aerobee.hot.wire.grpcsend import scan_grpc_ack, scan_grpc_send
from aerobee.model.sysproperties import RESERVED
from aerobee.protocol.grpc import MESSAGE, GrpcConnection, prefixed
from aerobee.protocol.v2 import calls
from aerobee.protocol.v2.fields import decode, encode
from aerobee.protocol.v2.values import PbDigest, PbMessage, PbResource, PbSystemProperties, PbTimestamp
from aerobee.testing.entropy import SeededEntropy
from aerobee.testing.fuzz.mutate import Mutator

_CHUNK: Final = 20_000
_NAMES: Final = frozenset(name.encode() for name in RESERVED)
_BEGIN: Final = frames.PREFACE + frames.frame(frames.SETTINGS, 0, 0, b"\x00\x04\x00\x00\x00\x09")


def _call(stream: int, method: bytes, message: bytes, *, split: bool = False) -> bytes:
    block = b"\x83\x86" + literal(b":path", b"/apache.rocketmq.v2.MessagingService/" + method)
    block += literal(b"content-type", b"application/grpc") + literal(b"x-mq-client-id", b"fuzz")
    data = prefixed(message)
    if not split:
        head = frames.frame(frames.HEADERS, frames.END_HEADERS, stream, block)
        return head + frames.frame(frames.DATA, frames.END_STREAM, stream, data)
    return b"".join(
        (
            frames.frame(frames.HEADERS, 0, stream, block[:20]),
            frames.frame(frames.CONTINUATION, frames.END_HEADERS, stream, block[20:]),
            frames.frame(frames.DATA, 0, stream, data[:7]),
            frames.frame(frames.PING, 0, 0, bytes(8)),
            frames.frame(frames.DATA, 0, stream, data[7:]),
            frames.frame(frames.WINDOW_UPDATE, 0, stream, frames.word(9)),
            frames.frame(frames.HEADERS, frames.END_HEADERS | frames.END_STREAM, stream, literal(b"a", b"b")),
        )
    )


def _conversations() -> list[bytes]:
    system = PbSystemProperties(
        tag="T", keys=["k", "l"], message_id="0102", body_digest=PbDigest(1, "AB"), message_type=1,
        born_timestamp=PbTimestamp(1_795_000_000, 5_000_000), born_host="h", message_group="g", trace_context="t",
    )  # fmt: skip
    send = encode(calls.PbSendMessageRequest([PbMessage(PbResource("", "orders"), {"n": "v"}, system, b"body")]))
    handle = "0 1794799288586 15000 2 0 broker-a 1 0 383"
    entry = calls.PbAckMessageEntry("id", handle)
    ack = encode(calls.PbAckMessageRequest(PbResource("", "g"), PbResource("", "orders"), [entry]))
    several = _call(1, b"SendMessage", send) + _call(3, b"AckMessage", ack) + _call(5, b"SendMessage", send, split=True)
    odd = b"".join(
        (
            frames.frame(frames.SETTINGS, 0, 0, b"\x00\x04\x00\x00\xff\xff"),
            frames.frame(frames.RST_STREAM, 0, 1, frames.word(8)),
            frames.frame(frames.PRIORITY, 0, 3, bytes(5)),
            frames.frame(frames.WINDOW_UPDATE, 0, 0, frames.word(1 << 20)),
            frames.frame(frames.GOAWAY, 0, 0, bytes(8)),
        )
    )
    return [several, several + odd, _call(1, b"AckMessage", ack, split=True) + odd + _call(7, b"SendMessage", send)]


def count_frames(data: bytes) -> int:
    """Return how many frames the bytes begin with, whole ones and the one that breaks off."""
    at = count = 0
    while at < len(data):
        count += 1
        at += 9 + int.from_bytes(data[at : at + 3], "big")
    return count


def give(data: bytes) -> None:
    """Give bytes to a connection, and what comes out of it to all that reads messages."""
    machine = GrpcConnection()
    for event in machine.receive(_BEGIN + data, 1.0):
        if event.kind == MESSAGE:
            scan_grpc_send(event.message, _NAMES)
            scan_grpc_ack(event.message)
            for kind in (calls.PbSendMessageRequest, calls.PbAckMessageRequest):
                try:
                    decode(kind, event.message)
                except RemoteProtocolError:
                    continue
        machine.answer(event.call, b"answer")
    machine.receive(data[:7], 2.0)
    machine.http.output()


def run(target_frames: int, seed: int, first: int) -> int:
    """Run chunk after chunk until so many frames were given; return their number."""
    given, chunk, seeds = 0, first, _conversations()
    for one in seeds:
        give(one)
    while given < target_frames:
        mutator = Mutator(seeds, SeededEntropy(seed * 1_000_003 + chunk))
        for _ in range(_CHUNK):
            data = mutator.next()
            try:
                give(data)
            except Exception as error:
                sys.stdout.write(f"chunk {chunk}: {type(error).__name__}: {error}\n{data.hex()}\n")
                raise
            given += count_frames(data)
            if given >= target_frames:
                break
        chunk += 1
        sys.stdout.write(f"{given:,} frames, no fault; go on with --from {chunk}\n")
        sys.stdout.flush()
    return given


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m aerobee.testing.fuzz.grpcframes", description=__doc__)
    parser.add_argument("--frames", type=int, default=10_000_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--from", dest="first", type=int, default=0, metavar="CHUNK", help="go on with this chunk")
    told = parser.parse_args(arguments)
    run(told.frames, told.seed, told.first)
    return 0


if __name__ == "__main__":
    sys.exit(main())
