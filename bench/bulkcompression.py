"""What it would cost and save to compress the answers of bulk pulls (docs/decisions/0011).

    .venv/bin/python bench/bulkcompression.py

Records are stored as a broker stores them, and cut into answers of 4 MB. For each kind of body and each compressor the
table has the CPU time for a message on both sides, what is left of the bytes, and messages a second over three networks
if the broker, the network and one task work at the same time: the slowest of the three counts. What broker and task do
today is taken from docs/spark/performance.md.
"""

from __future__ import annotations

import base64
import json
import random
import statistics
import time
import zlib
from collections.abc import Callable

import lz4.frame
import zstandard

from aerobee.hot.log.lean import PROPERTIES, lean_records
from aerobee.hot.log.record import Draft, encode_records
from pyspark_rocketmq.source.pulling import ANSWER_BYTES

HOST = b"\x7f\x00\x00\x01\x00\x00\x2a\x9f"
TURNS = 7
# CPU time of broker and task for a record with its body, in microseconds (docs/spark/performance.md).
BROKER_US, TASK_US = 0.7, 0.9
# What is left for data of a network, as TCP over Ethernet leaves it.
SHARE = 0.94
NETWORKS = {"100 Mbit/s": 100e6, "1 Gbit/s": 1e9, "10 Gbit/s": 10e9}
Coder = tuple[Callable[[bytes], bytes], Callable[[bytes], bytes]]
CODERS: dict[str, Coder] = {
    "zlib 1": (lambda data: zlib.compress(data, 1), zlib.decompress),
    "lz4": (lz4.frame.compress, lz4.frame.decompress),
    "zstd 1": (
        lambda data: zstandard.ZstdCompressor(level=1).compress(data),
        lambda data: zstandard.ZstdDecompressor().decompress(data),
    ),
}  # fmt: skip


def order(number: int, draw: random.Random) -> bytes:
    lines = [{"sku": f"A-{draw.randrange(10**6)}", "count": draw.randrange(1, 9), "price": draw.randrange(10**4) / 100}]
    place = {"street": f"Storgata {draw.randrange(200)}", "city": draw.choice(("oslo", "bergen", "rome", "kyoto"))}
    made = {"id": number, "customer": f"{draw.randbytes(8).hex()}", "lines": lines * draw.randrange(1, 4), "to": place}
    return json.dumps(made).encode()


def answer(body: Callable[[int, random.Random], bytes], flags: int = 0) -> tuple[bytes, int]:
    """Return an answer of 4 MB, and how many messages it has."""
    draw, drafts, size = random.Random(7), [], 0
    while size < ANSWER_BYTES:
        number = len(drafts)
        properties = (
            f"KEYS\x01order-{number}\x02UNIQ_KEY\x017F00000100002A139A55{number:012X}\x02WAIT\x01true\x02"
            f"TAGS\x01{('PAID', 'NEW')[number % 2]}\x02region\x01{('eu', 'us', 'asia')[number % 3]}\x02"
        ).encode()
        made = body(number, draw)
        one = Draft(b"orders", 0, flags, 0, 1_700_000_000_000 + number, HOST, HOST, 0, 0, made, properties, 0, "", "")
        one.queue_offset = number
        drafts.append(one)
        size += len(made) + len(properties) + 97
    return encode_records(drafts, 0, 1_700_000_000_000, True), len(drafts)


KINDS: dict[str, Callable[[int, random.Random], bytes]] = {
    "JSON, about 230 B": order,
    "base64 text, 1 KB": lambda number, draw: base64.b64encode(draw.randbytes(768)),
    "JSON, 8 KB, compressed by its producer": lambda number, draw: zlib.compress(
        json.dumps([order(number, draw).decode() for _ in range(30)]).encode(), 5
    ),
}


def cpu_us(work: Callable[[bytes], bytes], data: bytes, count: int) -> float:
    """Return the CPU time of this thread for one of `count` messages: the median of some turns."""
    taken = []
    for _ in range(TURNS):
        began = time.thread_time()
        work(data)
        taken.append((time.thread_time() - began) / count * 1e6)
    return statistics.median(taken)


def rates(size: float, broker_us: float, task_us: float) -> str:
    """Return the thousands of messages a second over each network."""
    return " | ".join(
        f"{min(1e6 / broker_us, rate * SHARE / 8 / size, 1e6 / task_us) / 1000:.0f}" for rate in NETWORKS.values()
    )


def main() -> None:
    print(f"| body | answer | B a message | broker us | task us | {' k/s | '.join(NETWORKS)} k/s |")
    print("|---|---|---|---|---|---|---|---|")
    for kind, body in KINDS.items():
        data, count = answer(body)
        size = len(data) / count
        print(f"| {kind} | as stored | {size:.0f} | {BROKER_US} | {TASK_US} | {rates(size, BROKER_US, TASK_US)} |")
        for name, (compress, expand) in CODERS.items():
            small = compress(data)
            assert expand(small) == data
            there, back = cpu_us(compress, data, count), cpu_us(expand, small, count)
            sized = len(small) / count
            shown = rates(sized, BROKER_US + there, TASK_US + back)
            print(f"| | {name} | {sized:.0f} | {BROKER_US} + {there:.2f} | {TASK_US} + {back:.2f} | {shown} |")
        lean = lean_records(data, PROPERTIES)
        print(f"| | `columns` without body | {len(lean) / count:.0f} | | | |")
        print(f"| | `columns` without body and properties | {len(lean_records(data, 0)) / count:.0f} | | | |")


if __name__ == "__main__":
    main()
