"""Records that nothing can be made of, in the log of a real broker: it starts, serves, delivers what is good around
them, starts again, and says which they are."""

from __future__ import annotations

import asyncio
import json
import socket
import time
from collections.abc import Mapping
from pathlib import Path

from aerobee.hot.log.host import encode_host
from aerobee.hot.log.record import Draft, encode_records
from aerobee.model.names import HALF_TOPIC, OP_HALF_TOPIC, SCHEDULE_TOPIC, TIMER_TOPIC
from aerobee.protocol.codes import RequestCode, ResponseCode
from aerobee.protocol.command import encode_command, request
from aerobee.protocol.headers.transaction import EndTransactionRequestHeader
from aerobee.testing.commands import aerobee
from aerobee.testing.processes import SMALL_STORE, ProcessCluster
from aerobee.testing.sendkit import COMMIT, end, half
from aerobee.testing.workload import RawClient, eventually, send_header

BROKER = encode_host("127.0.0.1", 10911)
CLIENT = encode_host("127.0.0.1", 50123)
LONG = "5" * 5000
DAY_MS = 86_400_000

BAD_QUEUES = (LONG, "-1", "\uff11\uff12", None, " 1", "1_0", "65536", "2147483648", "x")
BAD_TOPICS = (
    None, b"a/b", b"..", b"x" * 300, b"\xed\xa0\x80", b"t\nu", HALF_TOPIC.encode(), OP_HALF_TOPIC.encode(),
    TIMER_TOPIC.encode(), SCHEDULE_TOPIC.encode(),
)  # fmt: skip
# A loaded machine must not lead to busy answers.
NEVER_BUSY = {"brokerFastFailureEnable": "false"}
BAD_TIMES = (LONG, "-1", "\uff11\uff12", None, "soon")
BAD_OPS = (LONG.encode(), b"-1,", b"0,1,x", b"\xff", b"0,," + b"1,", b"0," * 200_001, "\uff11,".encode())


class Log:
    """The first file of a commit log, as some other broker may have left it."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.bad: set[int] = set()
        self._next: dict[tuple[bytes, int], int] = {}

    def put(
        self,
        topic: bytes | str,
        properties: Mapping[str, bytes | str | None],
        body: bytes = b"bad",
        *,
        queue_id: int = 0,
        queue_offset: int | None = None,
        born_host: bytes = CLIENT,
        store_ms: int | None = None,
        is_bad: bool = True,
    ) -> tuple[int, int]:
        """Queue offset and physical offset of a record at the log's end."""
        name = topic if isinstance(topic, bytes) else topic.encode()
        said = {
            key: value if isinstance(value, bytes) else value.encode() for key, value in properties.items() if value
        }
        block = b"".join(key.encode() + b"\x01" + value + b"\x02" for key, value in said.items())
        draft = Draft(name, queue_id, 0, 0, 1, born_host, BROKER, 0, 0, body, block, 0, "", "")
        following = self._next.get((name, queue_id), 0)
        draft.queue_offset = following if queue_offset is None else queue_offset
        if queue_offset is None:
            self._next[(name, queue_id)] = following + 1
        place = len(self.data)
        self.data += encode_records([draft], place, int(time.time() * 1000) if store_ms is None else store_ms, False)
        if is_bad:
            self.bad.add(place)
        return draft.queue_offset, place

    def good(self, topic: str, properties: Mapping[str, bytes | str | None], body: str, **more: int) -> tuple[int, int]:
        return self.put(topic, {"REAL_TOPIC": "T", "REAL_QID": "0", **properties}, body.encode(), is_bad=False, **more)

    def count(self, topic: str) -> int:
        return self._next[(topic.encode(), 0)]

    def write(self, store: Path) -> None:
        path = store / "commitlog" / ("0" * 20)
        path.parent.mkdir(parents=True)
        with path.open("wb") as file:
            file.write(self.data)
            file.truncate(int(SMALL_STORE["mappedFileSizeCommitLog"]))


def poisoned() -> tuple[Log, set[str], list[tuple[int, int]]]:
    """The log, the bodies that must be delivered, and where the half messages lie that can still be ended."""
    log, now_ms = Log(), int(time.time() * 1000)
    due, far = str(now_ms - 1000), str(now_ms + 5 * DAY_MS)
    # Old enough to be stored again at once.
    log.good(TIMER_TOPIC, {"TIMER_OUT_MS": far, "TIMER_ROLL_TIMES": LONG}, "rolled", store_ms=now_ms - 4 * DAY_MS)
    halves = [log.good(HALF_TOPIC, {"PGROUP": "P"}, "half 0")]
    log.put(b"T", {}, b"plain", is_bad=False)
    delivered = {"plain"}
    kinds: dict[str, dict[str, str | None]] = {
        TIMER_TOPIC: {"TIMER_OUT_MS": due},
        SCHEDULE_TOPIC: {"DELAY": "1"},
        HALF_TOPIC: {"PGROUP": "P"},
    }
    for kind, own in kinds.items():
        for number, queue_id in enumerate(BAD_QUEUES):
            log.put(kind, {**own, "REAL_TOPIC": "T", "REAL_QID": queue_id})
            if kind != HALF_TOPIC:
                delivered.add(f"{kind} {number}")
                log.good(kind, own, f"{kind} {number}")
        for topic in BAD_TOPICS:
            log.put(kind, {**own, "REAL_TOPIC": topic, "REAL_QID": "0"})
        log.put(kind, {}, b"\x01\x02" * 100)
    for out_ms in BAD_TIMES:
        log.put(TIMER_TOPIC, {"TIMER_OUT_MS": out_ms, "REAL_TOPIC": "T", "REAL_QID": "0"})
    for number, level in enumerate(("9" * 30, LONG, "-1", "\uff11")):
        log.good(SCHEDULE_TOPIC, {"DELAY": level}, f"level {number}")
        delivered.add(f"level {number}")
    for name in ("TRANSACTION_CHECK_TIMES", "CHECK_IMMUNITY_TIME_IN_SECONDS", "TRAN_PREPARED_QUEUE_OFFSET"):
        halves.append(log.good(HALF_TOPIC, {"PGROUP": "P", name: LONG}, f"half {name}"))
    named = ",".join(str(offset) for offset, _ in halves).encode()
    for body in BAD_OPS:
        log.put(OP_HALF_TOPIC, {"TAGS": "d"}, body, born_host=BROKER)
    log.put(OP_HALF_TOPIC, {"TAGS": "d"}, named)
    log.put(OP_HALF_TOPIC, {}, named, born_host=BROKER)
    # A sound one, but it cannot speak of what comes after it.
    log.put(OP_HALF_TOPIC, {"TAGS": "d"}, str(halves[-1][0] + 1).encode(), born_host=BROKER, is_bad=False)
    halves.append(log.good(HALF_TOPIC, {"PGROUP": "P"}, "half after its op"))
    for topic in (b"a/b", b"../../evil", b"..", b"\xff\xfe", b"x" * 300, b"t\0u"):
        log.put(topic, {})
    log.put(b"T", {}, queue_id=-1)
    log.put(b"T", {}, queue_offset=-5)
    log.put(b"T", {}, queue_offset=1 << 60)
    log.put(b"U", {}, queue_offset=(1 << 63) - 1)
    log.put(b"W", {}, is_bad=False)
    log.put(b"W", {}, queue_offset=1 << 50)
    log.put(b"V", {}, b"far", queue_id=(1 << 31) - 1, is_bad=False)
    for junk in (b"\x01" * 50, b"\x02" * 50, b"\xff" * 3000):
        log.put(b"J", {"K": junk}, is_bad=False)
    return log, delivered, halves


async def bodies(client: RawClient, topic: str) -> set[str]:
    found: list[tuple[int, str]] = []
    offset = 0
    while True:
        _, following, more = await client.pull(topic, 0, offset, hold_ms=0)
        found += more
        if not more and following <= offset:
            return {body for _, body in found}
        offset = following


async def set_aside(store: Path) -> list[int]:
    done = await asyncio.to_thread(aerobee, "store", "inspect", str(store), "--json")
    assert done.returncode == 0, done.stderr
    return sorted(one["physical_offset"] for one in json.loads(done.stdout)["set_aside"])


def end_header(place: tuple[int, int]) -> EndTransactionRequestHeader:
    return EndTransactionRequestHeader(
        topic="T", producer_group="P", tran_state_table_offset=place[0], commit_log_offset=place[1],
        commit_or_rollback=8, from_transaction_check=True, msg_id="", transaction_id="",
    )  # fmt: skip


def test_a_log_full_of_unusable_records_stops_no_broker(tmp_path: Path) -> None:
    log, delivered, halves = poisoned()
    store = tmp_path / "broker-a"
    log.write(store)

    async def main() -> None:
        async with ProcessCluster(tmp_path, settings=NEVER_BUSY) as cluster:
            broker = cluster.brokers[0]
            client = RawClient(broker.address)
            await eventually(lambda: arrived(client, delivered), 20)
            assert (await client.send("T", 0, b"new")).code == ResponseCode.SUCCESS
            assert await client.max_offset(TIMER_TOPIC, 0) == log.count(TIMER_TOPIC) + 1  # "rolled", once more
            # What no broker can have said ended nothing, and each of these is still there to be committed.
            for place in halves[1:]:
                ended = await client.call(RequestCode.END_TRANSACTION, end_header(place))
                assert ended.code == ResponseCode.SUCCESS, ended.remark
            await client.close()
            # Once more, in order and not in order; the first half message is still there.
            assert await broker.stop() == 0
            assert await set_aside(store) == sorted(log.bad)
            await broker.start()
            await broker.kill()
            await broker.start()
            client = RawClient(broker.address)
            ended = await client.call(RequestCode.END_TRANSACTION, end_header(halves[0]))
            assert ended.code == ResponseCode.SUCCESS, ended.remark
            wanted = delivered | {"new", "half 0", "half after its op"}
            assert wanted <= await bodies(client, "T")
            await client.close()
            assert await set_aside(store) == sorted(log.bad)
            shown = await asyncio.to_thread(aerobee, "cluster", "-n", cluster.namesrv.address, "--json")
            (one,) = json.loads(shown.stdout)["brokers"]
            assert (one["set_aside"], one["part_failures"]) == (len(log.bad), 0)
            shown = await asyncio.to_thread(aerobee, "cluster", "-n", cluster.namesrv.address)
            assert "set aside" in shown.stdout and f"{len(log.bad)} records" in shown.stderr
            listed = await asyncio.to_thread(aerobee, "store", "inspect", str(store))
            assert "REAL_QID" in listed.stdout and "delay levels" in listed.stdout
            assert "traceback" not in broker.log_text().lower()

    async def arrived(client: RawClient, wanted: set[str]) -> bool:
        return wanted <= await bodies(client, "T")

    asyncio.run(main())
    # No name of a record leads out of the store.
    assert not list(tmp_path.rglob("*evil*"))
    assert {path.name for path in tmp_path.iterdir()} <= {"broker-a", "broker-a.log", "namesrv.log", "kvConfig.json"}


# What plain sends may bring: each of the first three stopped a broker, or a turn of its loop, on its own.
SENDS: tuple[tuple[str, dict[str, str]], ...] = (
    (TIMER_TOPIC, {"TIMER_OUT_MS": "1", "REAL_TOPIC": "T", "REAL_QID": LONG}),
    (SCHEDULE_TOPIC, {"UNIQ_KEY": "K", "REAL_TOPIC": "T", "REAL_QID": LONG}),
    (HALF_TOPIC, {"UNIQ_KEY": "K", "REAL_TOPIC": "T", "REAL_QID": LONG, "PGROUP": "P"}),
    (OP_HALF_TOPIC, {"UNIQ_KEY": "K", "TAGS": "d"}),
    ("T", {"TIMER_DELAY_SEC": "1", "REAL_QID": LONG, "TIMER_OUT_MS": LONG, "__AEROBEE_PID": "0123456789abcdef:1"}),
    ("T", {"DELAY": LONG}),
)


def test_no_send_stops_a_broker_or_ends_a_transaction(tmp_path: Path) -> None:
    """Findings 2 and 1, over a raw socket. Whether a send is refused at the door or not: the broker lives, and starts
    again, and the transaction that an op message of a client names is still there."""

    async def main() -> None:
        settings = {**NEVER_BUSY, "transactionTimeOut": "200", "transactionCheckInterval": "60000"}
        async with ProcessCluster(tmp_path, settings=settings) as cluster:
            broker = cluster.brokers[0]
            client = RawClient(broker.address)
            await client.create_topic("T", 1)
            await client.heartbeat("asked", "P")
            prepared = await client.remoting.call(broker.address, half(opaque=client.remoting.next_opaque()), 10.0)
            with socket.create_connection(("127.0.0.1", broker.port), 10) as wire:
                for opaque, (topic, properties) in enumerate(SENDS):
                    block = "".join(f"{name}\x01{value}\x02" for name, value in properties.items())
                    body = b"0," if topic == OP_HALF_TOPIC else b"x"
                    header = send_header(topic, 0, block)
                    wire.sendall(encode_command(request(RequestCode.SEND_MESSAGE_V2, header, body, opaque=opaque)))
                    assert wire.recv(1 << 16)
            # Long enough for the question about the half message, and for many ticks.
            await asyncio.sleep(1.0)
            assert (await client.send("T", 0, b"first")).code == ResponseCode.SUCCESS
            await client.close()
            assert await broker.stop() == 0
            await broker.start()
            client = RawClient(broker.address)
            committed = end(prepared, COMMIT, opaque=client.remoting.next_opaque())
            answer = await client.remoting.call(broker.address, committed, 10.0)
            assert answer.code == ResponseCode.SUCCESS, answer.remark
            assert {"first", "body"} <= await bodies(client, "T")
            await client.close()
            assert "Traceback" not in broker.log_text()

    asyncio.run(main())
