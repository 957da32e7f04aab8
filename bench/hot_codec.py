"""What the record codec costs per message, beside the floor no codec can go below: one copy and one crc32.

python bench/hot_codec.py [seconds per cell, 0.3]      AEROBEE_PURE=1 for the interpreted figures
"""

import sys
import time
import zlib
from collections.abc import Callable

from aerobee import _pure
from aerobee.hot.log.record import (
    VERIFY_BODY,
    VERIFY_NONE,
    VERIFY_SEALED,
    Draft,
    check_record,
    decode_records,
    encode_records,
)
from aerobee.hot.log.scan import scan_columns, scan_records
from aerobee.hot.log.units import encode_units, select_units

HOST = b"\x7f\x00\x00\x01\x00\x00\x2a\x9f"
PROPERTIES = (
    b"KEYS\x01order-4711\x02UNIQ_KEY\x017F0000010E2818B4AAC2118F2B5A0000\x02CLUSTER\x01DefaultCluster\x02"
    b"TAGS\x01PAID\x02WAIT\x01true\x02"
)
BATCH = 64


def drafts(body_size: int) -> list[Draft]:
    body = bytes(i * 7 & 0xFF for i in range(body_size))
    return [
        Draft(
            b"orders",
            i & 7,
            0,
            0,
            1_700_000_000_000,
            HOST,
            HOST,
            0,
            0,
            body,
            PROPERTIES,
            2448015,
            "order-4711",
            "",
        )
        for i in range(BATCH)
    ]


def cost_us(call: Callable[[], object], seconds: float) -> float:
    """Least of five rounds: the machine is shared, and only slowness is added to the truth."""
    call()
    best = float("inf")
    for _ in range(5):
        calls = 0
        begin = time.perf_counter()
        while (spent := time.perf_counter() - begin) < seconds / 5:
            call()
            calls += 1
        best = min(best, spent / calls)
    return best / BATCH * 1e6


def check_each(log: bytes, offsets: list[int]) -> None:
    for offset in offsets:
        if check_record(log, offset, offset, VERIFY_SEALED) <= 0:
            raise SystemExit("the benchmark wrote a bad record")


def floor(log: bytes, size: int) -> None:
    """The same bytes copied once and summed once; records of a batch are equally long."""
    for at in range(0, len(log), size):
        zlib.crc32(log[at : at + size])


def main() -> None:
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 0.3
    print(f"us per message, batches of {BATCH}, hot/ {'compiled' if _pure.is_compiled() else 'interpreted'}")
    print(f"{'':34}{'128 B':>10}{'1 KB':>10}")
    rows: dict[str, list[float]] = {}
    for body_size in (128, 1024):
        batch = drafts(body_size)
        plain = encode_records(batch, 0, 1_700_000_000_001, False)
        log = encode_records(batch, 0, 1_700_000_000_001, True)
        offsets = [d.physical_offset for d in batch]
        size = batch[0].size
        units = encode_units(batch)
        cells: dict[str, Callable[[], object]] = {
            "floor: copy + crc32": lambda log=log, size=size: floor(log, size),  # type: ignore[misc]
            "encode, no record CRC": lambda b=batch: encode_records(b, 0, 1, False),  # type: ignore[misc]
            "encode, record CRC": lambda b=batch: encode_records(b, 0, 1, True),  # type: ignore[misc]
            "scan, structure only": lambda log=log: scan_records(log, 0, VERIFY_NONE),  # type: ignore[misc]
            "scan, body CRC": lambda log=plain: scan_records(log, 0, VERIFY_BODY),  # type: ignore[misc]
            "scan, record CRC": lambda log=log: scan_records(log, 0, VERIFY_SEALED),  # type: ignore[misc]
            "scan columns, record CRC": lambda log=log: scan_columns(log, 0, VERIFY_SEALED),  # type: ignore[misc]
            "check one by one, record CRC": lambda log=log, o=offsets: check_each(log, o),  # type: ignore[misc]
            "decode whole records": lambda log=log: decode_records(log),  # type: ignore[misc]
            "encode units": lambda b=batch: encode_units(b),  # type: ignore[misc]
            "select units by tag": lambda u=units: select_units(u, 0, {2448015}, BATCH, 1 << 30),  # type: ignore[misc]
        }
        for name, call in cells.items():
            rows.setdefault(name, []).append(cost_us(call, seconds))
    for name, figures in rows.items():
        print(f"{name:34}" + "".join(f"{us:10.2f}" for us in figures))


if __name__ == "__main__":
    main()
