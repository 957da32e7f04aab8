"""What access control costs: the check of one signed send, and sends with it and without in the same run.

    python bench/access.py [--sends 20000] [--size 128]

Both brokers run in memory on a simulated disk in one process: the ratio counts, not the rate. CPU time, best of five.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable

from aerobee._pure import is_compiled
from aerobee.access.gate import PassBook, SendGate
from aerobee.hot.wire.frame import Frame, scan_frames
from aerobee.hot.wire.signed import SigningKey, scan_signed
from aerobee.net.channel import Channel
from aerobee.net.server import Server
from aerobee.protocol.codes import JSON, RequestCode
from aerobee.protocol.command import Command, encode_command
from aerobee.protocol.signing import signer
from aerobee.runtime.clock import SystemClock
from aerobee.testing.accesskit import ROOT_USER, access_config
from aerobee.testing.brokerkit import BrokerKit, run_broker

ROUNDS = 5
BATCH = 32


def send_frame(opaque: int, size: int, codec: int = JSON) -> bytes:
    """Return a signed send as Java's client writes it."""
    ext = {
        "a": "producers", "b": "orders", "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "1700000000000", "h": "0",
        "i": "UNIQ_KEY\x01C0000201000000000000000000000001\x02TAGS\x01PAID\x02WAIT\x01true\x02", "j": "0", "k": "false",
        "m": "false", "n": "broker-a",
    }  # fmt: skip
    command = Command(RequestCode.SEND_MESSAGE_V2, opaque, 0, ext, b"x" * size, codec=codec)
    signer(*ROOT_USER)(command)
    return encode_command(command)


def best(work: Callable[[], None], count: int) -> float:
    """Return the microseconds of CPU for one of `count`, the best of several rounds."""
    found = []
    for _ in range(ROUNDS):
        began = time.process_time()
        work()
        found.append(time.process_time() - began)
    return min(found) / count * 1e6


def check_us(size: int, codec: int, count: int = 20_000) -> float:
    """Return what the whole check of one send costs: signature, user, address, right."""
    frame = scan_frames(send_frame(1, size, codec))[0][0]
    passed: list[int] = [0]

    def handler(channel: Channel, given: Frame) -> None:
        passed[0] += 1

    def slowly(channel: Channel, given: Frame) -> None:
        raise AssertionError("a signed send took the general way")

    book = PassBook()
    book.allow_send(*ROOT_USER, "10.0.0.9", "orders")
    gate = SendGate(book, handler, slowly, second_version=True)
    channel = Channel(Server("bench", {}, clock=SystemClock()))
    channel.user, channel.source = ROOT_USER[0], "10.0.0.9"

    def loop(serve: Callable[[Channel, Frame], None]) -> Callable[[], None]:
        def work() -> None:
            for _ in range(count):
                serve(channel, frame)

        return work

    checked, empty = best(loop(gate.on_frame), count), best(loop(handler), count)
    assert passed[0] == 2 * ROUNDS * count
    return checked - empty


def parts_us(size: int, count: int = 20_000) -> tuple[float, float]:
    """Return what reading the fields costs, and what the digest costs."""
    frame = scan_frames(send_frame(1, size))[0][0]
    key, found = SigningKey(ROOT_USER[1].encode()), scan_signed(frame, True)
    assert found is not None

    def scans() -> None:
        for _ in range(count):
            scan_signed(frame, True)

    def digests() -> None:
        for _ in range(count):
            found.is_by(key, frame)

    return best(scans, count), best(digests, count)


def sends_us(sends: int, size: int, *, access: bool) -> float:
    """Return the CPU of one send through a whole broker, in batches as a pipelining client sends them."""
    data = [b"".join(send_frame(n * BATCH + i, size) for i in range(BATCH)) for n in range(sends // BATCH)]
    found: list[float] = []

    async def main(kit: BrokerKit) -> None:
        client = kit.connect()
        client.channel.data_received(send_frame(0, size))
        await client.answers()
        for _ in range(ROUNDS):
            began = time.process_time()
            for piece in data:
                client.channel.data_received(piece)
                await asyncio.sleep(0)
            found.append(time.process_time() - began)
            answers = await client.answers()
            assert {one.code for one in answers} == {0}

    run_broker(main, access=access_config() if access else None)
    return min(found) / (len(data) * BATCH) * 1e6


def main(arguments: list[str]) -> int:
    """Print the table."""
    sends = int(arguments[arguments.index("--sends") + 1]) if "--sends" in arguments else 4_096
    size = int(arguments[arguments.index("--size") + 1]) if "--size" in arguments else 128
    print(f"access control, {'compiled' if is_compiled() else 'interpreted'}, bodies of {size} bytes")
    for name, codec in (("JSON", JSON), ("binary", 1)):
        print(f"  whole check of a send, {name} header   {check_us(size, codec):6.2f} us")
    scan, digest = parts_us(size)
    print(f"    reading fields {scan:.2f} us, digest {digest:.2f} us")
    off, on = sends_us(sends, size, access=False), sends_us(sends, size, access=True)
    print(
        f"  a send through a broker in memory: off {off:.2f} us, on {on:.2f} us, {on / off:.2f}x, rate {off / on:.2f}"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
