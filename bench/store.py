"""What the store costs per message, beside the floor: the same bytes copied once and summed once in the same run.

python bench/store.py [--count 200000]      AEROBEE_PURE=1 for the interpreted figures

append  64 messages a call into a store on this disk, answers not counted: encode, write, queue units, index, no sync
scan    every record of the log read, checked and handed over, as recovery does
verify  MB/s of `aerobee store verify` (every record, queue unit and index entry) beside a plain read of the same files
"""

from __future__ import annotations

import argparse
import resource
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from aerobee import _pure
from aerobee.hot.log.checksum import crc32
from aerobee.hot.log.record import VERIFY_RECORD, Draft
from aerobee.runtime.clock import SystemClock
from aerobee.runtime.disk import InlineDisk
from aerobee.store.config import StoreConfig
from aerobee.store.index import MessageIndex
from aerobee.store.messagestore import MessageStore
from aerobee.store.offline.directory import look_at
from aerobee.store.offline.verify import verify
from aerobee.store.segment import PieceKind, scan

HOST = b"\x7f\x00\x00\x01\x00\x00\x2a\x9f"
BATCH = 64


def cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def cost(call: Callable[[], object]) -> tuple[float, float]:
    """(CPU seconds, seconds by the clock)"""
    cpu, begin = cpu_s(), time.perf_counter()
    call()
    return cpu_s() - cpu, time.perf_counter() - begin


def drafts(number: int, body: bytes) -> list[Draft]:
    made = []
    for i in range(number, number + BATCH):
        unique = f"7F00000100002A139A55{i:012X}"
        block = f"KEYS\x01key-1\x02UNIQ_KEY\x01{unique}\x02WAIT\x01true\x02TAGS\x01TagA\x02CLUSTER\x01c\x02".encode()
        made.append(Draft(b"bench", i & 3, 0, 0, 1, HOST, HOST, 0, 0, body, block, 2598919, "key-1", unique))
    return made


def measure(root: Path, size: int, count: int) -> dict[str, float]:
    """Figures of one body size."""
    config = StoreConfig(store_path_root_dir=str(root))
    disk = InlineDisk()
    store = MessageStore(str(root), config, disk, SystemClock(), [MessageIndex(disk, str(root), config)])
    store.open()
    body = bytes(i * 7 & 0xFF for i in range(size))
    made = [drafts(number, body) for number in range(0, count, BATCH)]
    messages = len(made) * BATCH

    def append() -> None:
        for batch in made:
            store.append(batch)

    append_s, _ = cost(append)
    record = made[0][0].size
    log_bytes = store.log_end

    def walk() -> None:
        found = 0
        for piece in scan(store.log.segments, 0, log_bytes, verify=VERIFY_RECORD):
            if piece.kind is PieceKind.DAMAGE:
                raise SystemExit("the benchmark wrote a bad record")
            found += len(piece.drafts)
        if found != messages:
            raise SystemExit(f"{found} records of {messages} found")

    chunks = [store.log.segments.read(at, 1 << 20) for at in range(0, log_bytes - (1 << 20), 1 << 20)]

    def floor() -> None:
        for chunk in chunks:
            for at in range(0, len(chunk) - record, record):
                crc32(chunk[at : at + record])

    def read() -> None:
        for at in range(0, log_bytes, 1 << 20):
            store.log.segments.read(at, min(1 << 20, log_bytes - at))

    scan_s, scan_wall_s = cost(walk)
    floor_s, _ = cost(floor)
    _, read_wall_s = cost(read)
    store.close()
    whole_s, whole_wall_s = cost(lambda: whole_verify(root, messages))
    files = [path for path in root.rglob("*") if path.is_file()]
    _, files_wall_s = cost(lambda: [path.read_bytes()[:log_bytes] for path in files if "commitlog" not in path.parts])
    summed = len(chunks) * ((1 << 20) // record)
    return {
        "append, us a message": append_s / messages * 1e6,
        "scan and check, us a message": scan_s / messages * 1e6,
        "floor (copy + crc32), us a message": floor_s / summed * 1e6,
        "scan and check, MB/s": log_bytes / scan_wall_s / 1e6,
        "plain read, MB/s": log_bytes / read_wall_s / 1e6,
        "whole verify, us a message": whole_s / messages * 1e6,
        "whole verify, MB/s of log": log_bytes / whole_wall_s / 1e6,
        "plain read of all its files, MB/s of log": log_bytes / (read_wall_s + files_wall_s) / 1e6,
    }


def whole_verify(root: Path, messages: int) -> None:
    report = verify(look_at(InlineDisk(), str(root)))
    if report.findings.exit_code or report.records != messages:
        raise SystemExit(f"verify found {report.records} of {messages} records: {report.findings}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=200_000)
    count = parser.parse_args().count
    columns: list[dict[str, float]] = []
    for size in (128, 1024):
        work = Path(tempfile.mkdtemp(prefix="aerobee-bench-"))
        try:
            columns.append(measure(work, size, count))
        finally:
            shutil.rmtree(work)
    print(f"{'compiled' if _pure.is_compiled() else 'interpreted':42}{'128 B':>10}{'1 KB':>10}")
    for name in columns[0]:
        print(f"{name:42}" + "".join(f"{column[name]:10.2f}" for column in columns))


if __name__ == "__main__":
    main()
