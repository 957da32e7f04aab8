"""Fuzz a connection of gRPC by frames: `python -m aerobee.testing.fuzz.grpcframes --frames 10000000 --seed 1`.

Whole conversations (calls of several methods, with real messages) are changed at random and given to the machine of a
connection; each message that comes out goes to the scanners of the short way and to the tables. One input of four is
changed byte by byte, so its frames lose their bounds, and the connection mostly ends soon. The others are changed frame
by frame: a frame is left out, repeated, moved, or has another type, flags, stream or payload, with the right length.

Only frames that the machine has read count: those after the end of a connection do not. Each chunk of inputs has a seed
of its own, so a run that was stopped goes on with `--from CHUNK`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
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


def split(data: bytes) -> list[bytes]:
    """Return the frames of the bytes, the last one perhaps without its end."""
    found, at = [], 0
    while at < len(data):
        end = at + frames.HEAD_SIZE + int.from_bytes(data[at : at + 3], "big")
        found.append(data[at:end])
        at = end
    return found


class FrameMutator:
    """A maker of conversations whose frames are whole, but not those that a client would send."""

    def __init__(self, seeds: Sequence[bytes], entropy: SeededEntropy) -> None:
        self._seeds = [split(one) for one in seeds]
        self._payloads = Mutator([one[frames.HEAD_SIZE :] for seed in self._seeds for one in seed], entropy)
        self._below = entropy.below

    def next(self) -> list[bytes]:
        """Return the frames of the next input."""
        below = self._below
        found = list(self._seeds[below(len(self._seeds))])
        for _ in range(1 + below(4)):
            at = below(len(found)) if found else 0
            kind = below(8)
            if kind == 0:
                del found[at : at + 1]
            elif kind == 1:
                found[at:at] = found[at : at + 1 + below(3)] * (1 + below(3))
            elif kind == 2 and found:
                found.insert(below(len(found)), found.pop(at))
            elif kind == 3:
                other = self._seeds[below(len(self._seeds))]
                found.insert(at, other[below(len(other))])
            elif found:
                found[at] = self._changed(found[at])
        return found

    def _changed(self, one: bytes) -> bytes:
        below = self._below
        kind, flags, stream = one[3], one[4], int.from_bytes(one[5:9], "big")
        payload = one[frames.HEAD_SIZE :]
        what = below(4)
        if what == 0:
            kind = below(12)
        elif what == 1:
            flags ^= 1 << below(8)
        elif what == 2:
            stream = below(12)
        else:
            payload = self._payloads.next()[: frames.PAYLOAD_MAX]
        return frames.frame(kind, flags, stream, payload)


def give(parts: Sequence[bytes]) -> int:
    """Give bytes to a connection, part by part, and what comes out of it to all that reads messages.

    Return how many parts were read before the connection ended.
    """
    machine = GrpcConnection()
    read = 0
    machine.receive(_BEGIN, 1.0)
    for part in parts:
        for event in machine.receive(part, 1.0):
            if event.kind == MESSAGE:
                scan_grpc_send(event.message, _NAMES)
                scan_grpc_ack(event.message)
                for kind in (calls.PbSendMessageRequest, calls.PbAckMessageRequest):
                    try:
                        decode(kind, event.message)
                    except RemoteProtocolError:
                        continue
            machine.answer(event.call, b"answer")
        read += 1
        if machine.http.error is not None:
            break
    machine.http.output()
    return read


def chunk_of(seeds: Sequence[bytes], entropy: SeededEntropy) -> Iterator[list[bytes]]:
    """Yield the inputs of one chunk, as the parts in which they come."""
    by_bytes, by_frames, below = Mutator(seeds, entropy), FrameMutator(seeds, entropy), entropy.below
    for number in range(_CHUNK):
        if number % 4 == 0:
            data = by_bytes.next()
            # A read ends anywhere.
            cut = below(len(data) + 1)
            yield [data] if below(2) else [data[:cut], data[cut:]]
        elif number % 4 == 1:
            yield [b"".join(by_frames.next())]
        else:
            yield by_frames.next()


def run(target_frames: int, seed: int, first: int) -> int:
    """Run chunk after chunk until so many frames were read; return their number."""
    read, chunk, seeds = 0, first, _conversations()
    for one in seeds:
        give(split(one))
    while read < target_frames:
        for parts in chunk_of(seeds, SeededEntropy(seed * 1_000_003 + chunk)):
            try:
                found = give(parts)
            except Exception as error:
                words = " ".join(part.hex() for part in parts)
                sys.stdout.write(f"chunk {chunk}: {type(error).__name__}: {error}\n{words}\n")
                raise
            # An input that comes as one part may have ended at its first frame: it counts as one.
            read += found
        chunk += 1
        sys.stdout.write(f"{read:,} frames, no fault; go on with --from {chunk}\n")
        sys.stdout.flush()
    return read


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
