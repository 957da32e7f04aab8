"""POP at our broker beside Apache's: pops of 32, acknowledgements one by one and together. `make bench-pop` runs it.

python bench/pop.py [--count 96000] [--rounds 2] [--interpreted]

Both brokers are up at the same time, and the one that is not measured is stopped. CPU is that of the broker's process
(/proc), for each message. A load generator of Python pops and acknowledges in batches, so these rates are lower bounds
of what a broker can do; that of single acknowledgements is written in C (bench/loadgen.c). The log's growth is what the
broker says of its end (RocketMQ: commitLogMaxOffset), two seconds later.
"""

from __future__ import annotations

import argparse
import json
import re
import selectors
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from bench.contenders import PROJECT, Contender, build_loadgen
from bench.frames import OPAQUE, once_templates

from aerobee.hot.log.properties import encode_properties
from aerobee.protocol.bodies.pop import BatchAck, BatchAckMessageRequestBody, bits_of
from aerobee.protocol.codes import RequestCode
from aerobee.protocol.command import encode_command, request
from aerobee.protocol.headers.pop import AckMessageRequestHeader, PopMessageRequestHeader
from aerobee.protocol.headers.send import SendMessageRequestHeaderV2

OUT = PROJECT / "out" / "bench"
TOPIC, GROUP, QUEUES = "bench-pop", "bench-pop-group", 4
CONNECTIONS, WINDOW = 4, 32
_SETTLE_S = 2.0
_INFO = re.compile(rb'"(popTime|invisibleTime|reviveQid|startOffsetInfo|msgOffsetInfo)":"?([^",}]*)')


class Line:
    """One connection: whole answers in the order in which they come."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=30)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._data = bytearray()

    def answers(self) -> list[bytes]:
        """Wait for bytes; return the headers of the answers that are whole now."""
        self._data += self.socket.recv(1 << 20)
        found = []
        at = 0
        while len(self._data) - at >= 8:
            size = int.from_bytes(self._data[at : at + 4], "big")
            if len(self._data) - at - 4 < size:
                break
            head = int.from_bytes(self._data[at + 5 : at + 8], "big")
            found.append(bytes(self._data[at + 8 : at + 8 + head]))
            at += 4 + size
        del self._data[:at]
        return found

    def body(self) -> bytes:
        """Wait for one whole answer; return its body."""
        while len(self._data) < 8 or len(self._data) - 4 < int.from_bytes(self._data[:4], "big"):
            self._data += self.socket.recv(1 << 20)
        return bytes(self._data[8 + int.from_bytes(self._data[5:8], "big") :])


def _drive(port: int, frames: Sequence[bytes], window: int) -> list[bytes]:
    """Send frames over all connections with `window` in flight on each; return every answer's header."""
    lines = [Line(port) for _ in range(CONNECTIONS)]
    waiting = selectors.DefaultSelector()
    shares = [list(frames[number::CONNECTIONS]) for number in range(CONNECTIONS)]
    sent = [0] * CONNECTIONS
    back = [0] * CONNECTIONS
    found: list[bytes] = []
    for number, line in enumerate(lines):
        waiting.register(line.socket, selectors.EVENT_READ, number)
        first = shares[number][:window]
        line.socket.sendall(b"".join(first))
        sent[number] = len(first)
    while sum(back) < len(frames):
        for key, _ in waiting.select():
            number = key.data
            answers = lines[number].answers()
            found += answers
            back[number] += len(answers)
            following = shares[number][sent[number] : sent[number] + len(answers)]
            if following:
                lines[number].socket.sendall(b"".join(following))
                sent[number] += len(following)
    for line in lines:
        line.socket.close()
    return found


def _sends(count: int) -> list[bytes]:
    frames = []
    for queue_id in range(QUEUES):
        properties = encode_properties({"UNIQ_KEY": f"7F00000100002A139A55{queue_id:012X}", "WAIT": "true"})
        header = SendMessageRequestHeaderV2(
            producer_group="p", topic=TOPIC, default_topic="TBW102", default_topic_queue_nums=4, queue_id=queue_id,
            sys_flag=0, born_timestamp=1_763_200_000_000, flag=0, properties=properties.decode(), reconsume_times=0,
            unit_mode=False, batch=False,
        )  # fmt: skip
        frames.append(encode_command(request(RequestCode.SEND_MESSAGE_V2, header, b"x" * 128, opaque=1)))
    return (frames * (count // QUEUES + 1))[:count]


def _pop_frame(queue_id: int) -> bytes:
    # Each connection has a queue of its own: at Apache's broker two pops of one queue keep each other out.
    header = PopMessageRequestHeader(
        consumer_group=GROUP, topic=TOPIC, queue_id=queue_id, max_msg_nums=32, invisible_time=120_000, poll_time=0,
        born_time=round(time.time() * 1000), init_mode=0, exp_type="TAG", exp="*",
    )  # fmt: skip
    return encode_command(request(RequestCode.POP_MESSAGE, header, opaque=1))


class Bench:
    """Both brokers, and what was measured of them."""

    def __init__(self, names: list[str]) -> None:
        settings = {"autoCreateSubscriptionGroup": "true", "brokerFastFailureEnable": "false"}
        self.brokers = [Contender(name, OUT / "pop" / name, settings) for name in names]
        self.figures: dict[str, dict[str, list[tuple[float, float, float]]]] = {}

    def run(self, count: int) -> None:
        for broker in self.brokers:
            with broker.running_alone(self.brokers):
                self._one(broker, count)

    def _measure(self, broker: Contender, row: str, messages: int, frames: Sequence[bytes], window: int) -> list[bytes]:
        before, log_before, began_s = broker.usage().cpu_s, _log_end(broker), time.monotonic()
        answers = _drive(broker.port, frames, window)
        took_s = time.monotonic() - began_s
        if not messages:
            messages = sum(_taken(head) for head in answers)
        cpu_us = (broker.usage().cpu_s - before) * 1e6 / max(1, messages)
        self._note(row, broker, cpu_us, messages / took_s, log_before, messages)
        return answers

    def _acknowledge_singly(self, broker: Contender, row: str, frames: Sequence[bytes]) -> None:
        """Send each acknowledgement once, `WINDOW` in flight on each connection."""
        templates = OUT / "acks.bin"
        once_templates(templates, frames)
        words = [build_loadgen(OUT / "loadgen"), "127.0.0.1", broker.port, templates, "once", CONNECTIONS, WINDOW]
        words += [len(frames), 0, 120]
        before, log_before = broker.usage().cpu_s, _log_end(broker)
        done = subprocess.run(list(map(str, words)), capture_output=True, text=True, check=True)
        said = json.loads(done.stdout)
        cpu_us = (broker.usage().cpu_s - before) * 1e6 / len(frames)
        self._note(row, broker, cpu_us, said["answers"] / said["seconds"], log_before, len(frames))
        if said["refused"]:
            print(f"{broker.name} refused {said['codes']}", file=sys.stderr)

    def _note(self, row: str, broker: Contender, cpu_us: float, rate: float, log_before: int, messages: int) -> None:
        time.sleep(_SETTLE_S)
        log = (_log_end(broker) - log_before) / max(1, messages)
        self.figures.setdefault(row, {}).setdefault(broker.name, []).append((cpu_us, rate, log))

    def _one(self, broker: Contender, count: int) -> None:
        broker.create_topic(TOPIC, QUEUES)
        sends = _sends(count)
        _drive(broker.port, sends, WINDOW)
        answers = self._measure(
            broker, "pop, 32 a pop", 0, [_pop_frame(number % QUEUES) for number in range(count // 32)], 2
        )
        singles, together = [], []
        messages = 0
        for head in answers:
            info = dict(_INFO.findall(head))
            if not info.get(b"msgOffsetInfo"):
                continue
            frames, batch, taken = _acks({key.decode(): value.decode() for key, value in info.items()}, head)
            messages += taken
            singles += frames
            together.append((batch, taken))
        half = len(singles) // 2
        self._acknowledge_singly(broker, "ack, one by one, 4 x 32 in flight", singles[:half])
        rest = together[len(together) // 2 :]
        bodies = [batch for batch, _ in rest]
        self._measure(broker, "batch ack, a pop at a time", sum(taken for _, taken in rest), bodies, 4)
        print(f"{broker.name}: {messages} of {count} messages popped", file=sys.stderr)

    def table(self) -> str:
        names = [broker.name for broker in self.brokers]
        rows = ["| | " + " | ".join(f"{name} us | {name} /s | {name} log B" for name in names) + " | CPU ratio |"]
        rows.append("|---" * (2 + 3 * len(names)) + "|")
        for row, found in self.figures.items():
            cells, costs = [], []
            for name in names:
                cost = statistics.median(one[0] for one in found[name])
                costs.append(cost)
                rate = statistics.median(one[1] for one in found[name])
                cells.append(f"{cost:.1f} | {rate:,.0f} | {statistics.median(one[2] for one in found[name]):.0f}")
            rows.append(f"| {row} | " + " | ".join(cells) + f" | {costs[0] / max(costs[-1], 1e-9):.2f} |")
        return "\n".join(rows)


def _log_end(broker: Contender) -> int:
    """Return how far the broker's log reaches."""
    line = Line(broker.port)
    try:
        line.socket.sendall(encode_command(request(RequestCode.GET_BROKER_RUNTIME_INFO, opaque=1)))
        body = line.body()
    finally:
        line.socket.close()
    found = re.search(rb'"commitLogMaxOffset":"?(\d+)', body)
    assert found is not None, "the broker does not tell where its log ends"
    return int(found[1])


def _taken(head: bytes) -> int:
    """Return how many messages an answer to a pop names."""
    found = re.search(rb'"msgOffsetInfo":"([^"]*)"', head)
    return 0 if found is None or not found[1] else found[1].count(b",") + found[1].count(b";") + 1


def _acks(info: dict[str, str], head: bytes) -> tuple[list[bytes], bytes, int]:
    """Return an acknowledgement of each message of a pop, and one of all of them."""
    starts = dict((part.rpartition(" ")[0], part.rpartition(" ")[2]) for part in info["startOffsetInfo"].split(";"))
    text = re.search(rb'"msgOffsetInfo":"([^"]*)"', head)
    assert text is not None
    frames, entries = [], []
    pop_time, invisible, revive = info["popTime"], info["invisibleTime"], info["reviveQid"]
    for part in text[1].decode().split(";"):
        kind, queue_id, listed = part.split(" ")
        offsets = [int(one) for one in listed.split(",")]
        start = int(starts[f"{kind} {queue_id}"])
        entries.append(
            BatchAck(
                GROUP, TOPIC, kind, start, int(queue_id), int(revive), int(pop_time), int(invisible),
                bits_of(start, offsets),
            )
        )  # fmt: skip
        for offset in offsets:
            handle = f"{start} {pop_time} {invisible} {revive} {kind} bench-broker {queue_id} {offset}"
            header = AckMessageRequestHeader(
                consumer_group=GROUP, topic=TOPIC, queue_id=int(queue_id), extra_info=handle, offset=offset
            )
            frames.append(encode_command(request(RequestCode.ACK_MESSAGE, header, opaque=OPAQUE)))
    body = BatchAckMessageRequestBody("bench-broker", tuple(entries)).encode()
    return frames, encode_command(request(RequestCode.BATCH_ACK_MESSAGE, body=body, opaque=1)), len(frames)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=96_000)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--interpreted", action="store_true", help="measure our interpreted source, too")
    parser.add_argument("--alone", action="store_true", help="measure our broker only")
    given = parser.parse_args()
    names = ["aerobee", *(["interpreted"] if given.interpreted else []), *([] if given.alone else ["apache"])]
    bench = Bench(names)
    try:
        for _ in range(given.rounds):
            bench.run(given.count)
    finally:
        for broker in bench.brokers:
            broker.stop()
    print(bench.table())
    Path(OUT / "pop.json").write_text(json.dumps(bench.figures))
    return 0


if __name__ == "__main__":
    sys.exit(main())
