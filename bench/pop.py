"""POP at our broker beside Apache's: pops of 32, acknowledgements one by one and together. `make bench-pop` runs it.

python bench/pop.py [--count 512000] [--rounds 3] [--interpreted] [--alone]

Both brokers are up at the same time, and the one that is not measured is stopped. CPU is that of the broker's process
(/proc), for each message. All requests come from a load generator in C (bench/loadgen.c), the same bytes for both. A
pop never meets another one of its queue: Apache's broker refuses the second of two. The first round is not
counted: it lets Java compile what it runs. The log's growth is what the broker says of its end (RocketMQ:
commitLogMaxOffset), two seconds later.
"""

from __future__ import annotations

import argparse
import json
import re
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from bench.contenders import PROJECT, Contender, build_loadgen
from bench.frames import OPAQUE, once_templates, pop_templates

from aerobee.hot.log.properties import encode_properties
from aerobee.protocol.bodies.pop import BatchAck, BatchAckMessageRequestBody, bits_of
from aerobee.protocol.codes import RequestCode
from aerobee.protocol.command import encode_command, request
from aerobee.protocol.headers.pop import AckMessageRequestHeader
from aerobee.protocol.headers.send import SendMessageRequestHeaderV2

OUT = PROJECT / "out" / "bench"
TOPIC, GROUP = "bench-pop", "bench-pop-group"
CONNECTIONS = 4
# Requests in flight on each connection. Each pop in flight has a queue of its own, as those of one consumer have.
POPS, ACKS, BATCHES = 4, 32, 4
QUEUES = CONNECTIONS * POPS
BATCH = 32
# Of so many messages one is acknowledged by itself, and the others a pop at a time.
SINGLY = 4
POP_ROW, ACK_ROW, BATCH_ROW = "pop, 32 a pop", "ack, one by one, 4 x 32 in flight", "batch ack, a pop at a time"
_SETTLE_S = 2.0
_INFO = re.compile(rb'"(popTime|invisibleTime|reviveQid|startOffsetInfo|msgOffsetInfo)":"?([^",}]*)')


def _sends() -> list[bytes]:
    frames = []
    for queue_id in range(QUEUES):
        properties = encode_properties({"UNIQ_KEY": f"7F00000100002A139A55{queue_id:012X}", "WAIT": "true"})
        header = SendMessageRequestHeaderV2(
            producer_group="p", topic=TOPIC, default_topic="TBW102", default_topic_queue_nums=4, queue_id=queue_id,
            sys_flag=0, born_timestamp=1_763_200_000_000, flag=0, properties=properties.decode(), reconsume_times=0,
            unit_mode=False, batch=False,
        )  # fmt: skip
        frames.append(encode_command(request(RequestCode.SEND_MESSAGE_V2, header, b"x" * 128, opaque=OPAQUE)))
    return frames


class Bench:
    """Both brokers, and what was measured of them."""

    def __init__(self, names: list[str]) -> None:
        settings = {"autoCreateSubscriptionGroup": "true", "brokerFastFailureEnable": "false"}
        self.brokers = [Contender(name, OUT / "pop" / name, settings) for name in names]
        self.loadgen = build_loadgen(OUT / "loadgen")
        # Of each row and broker: CPU in us, messages a second and bytes of log for each message.
        self.figures: dict[str, dict[str, list[tuple[float, float, float]]]] = {}

    def run(self, count: int, *, counts: bool) -> None:
        for broker in self.brokers:
            with broker.running_alone(self.brokers):
                self._one(broker, count, counts=counts)

    def _drive(self, broker: Contender, files: str, mode: str, window: int, count: int) -> dict[str, float]:
        """Let the generator send frames; return what it said. Every request must have been served."""
        words = [self.loadgen, "127.0.0.1", broker.port, files, mode, CONNECTIONS, window, count, 0, 120]
        done = subprocess.run(list(map(str, words)), capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(f"{broker.name}, {mode}: {done.stdout}{done.stderr}")
        said: dict[str, float] = json.loads(done.stdout)
        if said["refused"]:
            print(f"{broker.name}, {mode}: refused {said['refused']}, codes {said['codes']}", file=sys.stderr)
        return said

    def _one(self, broker: Contender, count: int, *, counts: bool) -> None:
        broker.create_topic(TOPIC, QUEUES)
        sends, pops, heads, acks = (OUT / f"pop.{name}" for name in ("sends", "pops", "heads", "acks"))
        once_templates(sends, _sends())
        self._drive(broker, str(sends), "once", ACKS, count)
        pop_templates(pops, TOPIC, GROUP, QUEUES, BATCH)
        rows = {POP_ROW: self._measured(broker, f"{pops},{heads}", "pop", POPS, count, count)}
        answers = list(_answers(heads.read_bytes()))
        alone = len(answers) // SINGLY
        singles = [ack for head in answers[:alone] for ack in _acks(head)]
        once_templates(acks, singles)
        rows[ACK_ROW] = self._measured(broker, str(acks), "once", ACKS, len(singles), len(singles))
        bodies = [_batch_ack(head) for head in answers[alone:]]
        once_templates(acks, bodies)
        rows[BATCH_ROW] = self._measured(broker, str(acks), "once", BATCHES, len(bodies), count - len(singles))
        if counts:
            for row, figures in rows.items():
                self.figures.setdefault(row, {}).setdefault(broker.name, []).append(figures)

    def _measured(
        self, broker: Contender, files: str, mode: str, window: int, count: int, messages: int
    ) -> tuple[float, float, float]:
        before, log_before = broker.usage().cpu_s, _log_end(broker)
        said = self._drive(broker, files, mode, window, count)
        cpu_us = (broker.usage().cpu_s - before) * 1e6 / messages
        time.sleep(_SETTLE_S)
        return cpu_us, messages / said["seconds"], (_log_end(broker) - log_before) / messages

    def table(self) -> str:
        """Return rows for each kind of request, and for a message that is popped and acknowledged in either way."""
        names = [broker.name for broker in self.brokers]
        cells = " | ".join(f"{name} us | {name} /s | {name} log B" for name in names)
        rows = [f"| | {cells} | CPU ratio | rate ratio |", "|---" * (3 + 3 * len(names)) + "|"]
        found = {row: [self._median(row, name) for name in names] for row in self.figures}
        for label, parts in (("popped, acked one by one", ACK_ROW), ("popped, acked a pop at a time", BATCH_ROW)):
            found[label] = [_both(pop, ack) for pop, ack in zip(found[POP_ROW], found[parts], strict=True)]
        for row, figures in found.items():
            cells = " | ".join(f"{cpu_us:.2f} | {rate:,.0f} | {log:.0f}" for cpu_us, rate, log in figures)
            ours, theirs = figures[0], figures[-1]
            rows.append(f"| {row} | {cells} | {ours[0] / max(theirs[0], 1e-9):.2f} | {ours[1] / theirs[1]:.1f} |")
        return "\n".join(rows)

    def _median(self, row: str, name: str) -> tuple[float, float, float]:
        cpu_us, rate, log = (statistics.median(column) for column in zip(*self.figures[row][name], strict=True))
        return cpu_us, rate, log


def _both(pop: tuple[float, float, float], ack: tuple[float, float, float]) -> tuple[float, float, float]:
    """Return the figures of a message that is popped and then acknowledged."""
    return pop[0] + ack[0], 1 / (1 / pop[1] + 1 / ack[1]), pop[2] + ack[2]


def _log_end(broker: Contender) -> int:
    """Return how far the broker's log reaches."""
    with socket.create_connection(("127.0.0.1", broker.port), timeout=30) as line:
        line.sendall(encode_command(request(RequestCode.GET_BROKER_RUNTIME_INFO, opaque=1)))
        data = bytearray()
        while len(data) < 8 or len(data) - 4 < int.from_bytes(data[:4], "big"):
            data += line.recv(1 << 20)
    found = re.search(rb'"commitLogMaxOffset":"?(\d+)', data)
    assert found is not None, "the broker does not tell where its log ends"
    return int(found[1])


def _answers(data: bytes) -> Iterator[bytes]:
    """Yield the headers of answers that the generator wrote."""
    at = 0
    while at < len(data):
        size = int.from_bytes(data[at : at + 4], sys.byteorder)
        yield data[at + 4 : at + 4 + size]
        at += 4 + size


class _Taken:
    """What the answer to a pop handed out."""

    def __init__(self, head: bytes) -> None:
        info = {key.decode(): value.decode() for key, value in _INFO.findall(head)}
        self.pop_time, self.invisible_ms = int(info["popTime"]), int(info["invisibleTime"])
        self.revive_queue = int(info["reviveQid"])
        offsets = re.search(rb'"msgOffsetInfo":"([^"]*)"', head)
        assert offsets is not None
        starts = dict((part.rpartition(" ")[0], part.rpartition(" ")[2]) for part in info["startOffsetInfo"].split(";"))
        # Kind, queue, start of the pop and offsets of each part.
        self.parts: list[tuple[str, int, int, list[int]]] = []
        for part in offsets[1].decode().split(";"):
            kind, queue_id, listed = part.split(" ")
            start = int(starts[f"{kind} {queue_id}"])
            self.parts.append((kind, int(queue_id), start, list(map(int, listed.split(",")))))


def _acks(head: bytes) -> Iterator[bytes]:
    """Yield an acknowledgement of each message of a pop."""
    taken = _Taken(head)
    for kind, queue_id, start, offsets in taken.parts:
        for offset in offsets:
            handle = (
                f"{start} {taken.pop_time} {taken.invisible_ms} {taken.revive_queue} {kind} bench-broker"
                f" {queue_id} {offset}"
            )
            header = AckMessageRequestHeader(
                consumer_group=GROUP, topic=TOPIC, queue_id=queue_id, extra_info=handle, offset=offset
            )
            yield encode_command(request(RequestCode.ACK_MESSAGE, header, opaque=OPAQUE))


def _batch_ack(head: bytes) -> bytes:
    """Return one acknowledgement of everything that a pop handed out."""
    taken = _Taken(head)
    entries = tuple(
        BatchAck(
            GROUP, TOPIC, kind, start, queue_id, taken.revive_queue, taken.pop_time, taken.invisible_ms,
            bits_of(start, offsets),
        )
        for kind, queue_id, start, offsets in taken.parts
    )  # fmt: skip
    body = BatchAckMessageRequestBody("bench-broker", entries).encode()
    return encode_command(request(RequestCode.BATCH_ACK_MESSAGE, body=body, opaque=OPAQUE))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=512_000)
    parser.add_argument("--rounds", type=int, default=3, help="rounds that are counted, behind the first")
    parser.add_argument("--interpreted", action="store_true", help="measure our interpreted source, too")
    parser.add_argument("--alone", action="store_true", help="measure our broker only")
    given = parser.parse_args()
    if given.count <= 0 or given.count % (QUEUES * BATCH):
        parser.error(f"--count: a multiple of {QUEUES * BATCH} is needed, so that every pop finds {BATCH}")
    names = ["aerobee", *(["interpreted"] if given.interpreted else []), *([] if given.alone else ["apache"])]
    bench = Bench(names)
    try:
        for number in range(given.rounds + 1):
            bench.run(given.count, counts=number > 0)
    finally:
        for broker in bench.brokers:
            broker.stop()
    print(bench.table())
    Path(OUT / "pop.json").write_text(json.dumps(bench.figures))
    return 0


if __name__ == "__main__":
    sys.exit(main())
