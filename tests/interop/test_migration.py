"""A migration from Apache's broker and back, with the commands that an operator uses, while messages are sent."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import aerobee
from aerobee.admin.connection import AdminConnection
from aerobee.admin.topics import TopicChange, create_topic
from aerobee.errors import AerobeeError
from aerobee.model.dialect import dumps
from aerobee.model.group import SubscriptionGroupConfig
from aerobee.protocol.codes import RequestCode, ResponseCode
from aerobee.protocol.headers.offset import UpdateConsumerOffsetRequestHeader
from aerobee.protocol.headers.transaction import EndTransactionRequestHeader
from aerobee.testing.apache import STORE_SETTINGS, ApacheBroker, free_ports, unavailable
from aerobee.testing.commands import command, environment
from aerobee.testing.processes import ServerProcess
from aerobee.testing.workload import RawClient, eventually, send_header

pytestmark = pytest.mark.skipif(unavailable() is not None, reason=str(unavailable()))
# `make migrate-gib` moves so many MiB besides.
BULK_MIB = int(os.environ.get("AEROBEE_MIGRATE_MIB", "0"))
SEGMENT = {"mappedFileSizeCommitLog": (64 if BULK_MIB else 1) << 20}
PATIENCE_S = 60 + BULK_MIB
# Apache's broker refuses sends that waited longer than 200 ms.
_BUSY = ResponseCode.SYSTEM_BUSY
DELAY_LEVELS = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"


# Every tenth message is delayed by the second level, five seconds.
DELAYED, DELAY_5_S = 10, "DELAY\x012\x02"
# Half messages of the round trip are ended by the test alone: no producer is asked meanwhile.
NO_CHECKS = {"transactionTimeOut": "3600000"}
COMMIT, ROLLBACK = 8, 12


class Traffic:
    """Sends numbered messages to whatever broker serves, and remembers which were acknowledged."""

    def __init__(self) -> None:
        self.address = ""
        self.sent: list[int] = []
        self.delayed: list[int] = []
        self._number = 0
        self._grew = asyncio.Event()
        self._task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        while True:
            client = RawClient(self.address)
            try:
                while True:
                    self._number += 1
                    is_delayed = self._number % DELAYED == 0
                    header = send_header("Later" if is_delayed else "Moved", self._number % 4, DELAY_5_S * is_delayed)
                    body = b"%d" % self._number
                    answer = await client.call(RequestCode.SEND_MESSAGE_V2, header, body, timeout_s=2.0)
                    if answer.code == ResponseCode.SUCCESS:
                        (self.delayed if is_delayed else self.sent).append(self._number)
                        self._grew.set()
                    elif answer.code == ResponseCode.NO_PERMISSION:
                        await asyncio.sleep(0.1)
                    await asyncio.sleep(0.005)
            except (AerobeeError, OSError, TimeoutError, ValueError):
                await asyncio.sleep(0.1)
            finally:
                await client.close()

    async def more(self, count: int) -> None:
        wanted = len(self.sent) + count
        async with asyncio.timeout(60):
            while len(self.sent) < wanted:
                self._grew.clear()
                await self._grew.wait()

    async def stop(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)


async def fill(address: str) -> None:
    """Send as many MiB as the test was asked for, in messages of 64 KiB."""

    async def send(part: int) -> None:
        client = RawClient(address)

        async def is_taken() -> bool:
            answer = await client.send("Bulk", part % 4, os.urandom(1024) * 64, timeout_s=30)
            return answer.code != _BUSY

        for _ in range(BULK_MIB):
            await eventually(is_taken)
        await client.close()

    await asyncio.gather(*(send(part) for part in range(16)))


@dataclass(frozen=True)
class Half:
    """A half message, and what ends it at any broker that has its log."""

    number: int
    queue_offset: int
    log_offset: int

    async def end(self, address: str, how: int) -> None:
        header = EndTransactionRequestHeader(
            topic="Paid",
            producer_group="shop",
            tran_state_table_offset=self.queue_offset,
            commit_log_offset=self.log_offset,
            commit_or_rollback=how,
            msg_id=f"half-{self.number}",
        )
        client = RawClient(address)
        await client.ask(RequestCode.END_TRANSACTION, header)
        await client.close()


async def half(address: str, number: int) -> Half:
    """Store a half message and leave it open."""
    properties = f"TRAN_MSG\x01true\x02PGROUP\x01shop\x02UNIQ_KEY\x01half-{number}\x02"
    header = send_header("Paid", 0, properties)
    header.sys_flag = 4
    client = RawClient(address)
    answer = await client.ask(RequestCode.SEND_MESSAGE_V2, header, b"%d" % number)
    await client.close()
    return Half(number, int(answer.ext["queueOffset"]), int(answer.ext["msgId"][-16:], 16))


async def read_back(address: str, topic: str = "Moved") -> list[int]:
    """Return every message of the topic, as a broker serves it."""
    client = RawClient(address)
    found: list[int] = []
    for queue_id in range(4):
        offset = 0
        while True:
            _, offset, more = await client.pull(topic, queue_id, offset, hold_ms=0, count=32)
            if not more:
                break
            found += [int(body) for _, body in more]
    await client.close()
    return sorted(found)


def conf(path: Path, store: Path, namesrv: str, port: int) -> Path:
    keys: dict[str, object] = {
        **STORE_SETTINGS,
        **SEGMENT,
        "maxMessageSize": 500_000,
        "brokerClusterName": "DefaultCluster",
        "brokerName": "broker-a",
        "brokerIP1": "127.0.0.1",
        "brokerIP2": "127.0.0.1",
        "listenPort": port,
        "haListenPort": port + 1,
        "namesrvAddr": namesrv,
        "storePathRootDir": store,
        "messageDelayLevel": DELAY_LEVELS,
    }
    path.write_text("".join(f"{key}={value}\n" for key, value in keys.items()))
    return path


@contextmanager
def running(*words: str) -> Iterator[subprocess.Popen[str]]:
    """Run a command that serves, beside the test."""
    with subprocess.Popen(
        command(*words), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment()
    ) as process:
        try:
            yield process
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGKILL)


def lines_until(process: subprocess.Popen[str], words: str) -> str:
    """Read what a command prints until a line has these words; return all of it."""
    said = ""
    assert process.stdout is not None
    for line in process.stdout:
        said += line
        if words in line:
            return said
    raise AssertionError(f"it ended without {words!r}:\n{said}")


def ran(*words: str) -> str:
    done = subprocess.run(
        command(*words), capture_output=True, text=True, timeout=PATIENCE_S, env=environment(), check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def log_of(store: Path) -> bytes:
    files = sorted((store / "commitlog").iterdir())
    return b"".join(file.read_bytes() for file in files).rstrip(b"\0")


@pytest.mark.timeout(400 + 2 * BULK_MIB)
def test_there_and_back(tmp_path: Path) -> None:
    async def main() -> None:
        server = ServerProcess("namesrv", {"kvConfigPath": str(tmp_path / "kv.json")}, tmp_path / "namesrv.log")
        await server.start()
        namesrv = server.address
        their_store = tmp_path / "apache-store"
        our_store = tmp_path / "our-store"
        port = free_ports(-2, 1)
        config = conf(tmp_path / "broker.conf", our_store, namesrv, port)
        with config.open("a") as file:
            file.write("".join(f"{key}={value}\n" for key, value in NO_CHECKS.items()))
        started = 0
        brokers: list[ApacheBroker] = []

        def apache(**settings: Any) -> ApacheBroker:
            nonlocal started
            started += 1
            brokers.append(broker := made(settings))
            return broker

        def made(settings: dict[str, Any]) -> ApacheBroker:
            keys = {"brokerIP2": "127.0.0.1", "messageDelayLevel": DELAY_LEVELS, **SEGMENT, **NO_CHECKS, **settings}
            return ApacheBroker(tmp_path / f"apache-{started}", their_store, namesrv, settings=keys)

        old = await asyncio.to_thread(apache)
        traffic = Traffic()
        traffic.address = old.address
        try:
            await fill(old.address)
            await traffic.more(200)
            halves = [await half(old.address, number) for number in range(3)]
            client = RawClient(old.address)
            offset = UpdateConsumerOffsetRequestHeader(
                consumer_group="billing", topic="Moved", queue_id=1, commit_offset=17
            )
            group = dumps(SubscriptionGroupConfig("billing").to_json())
            await client.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=group)
            await client.ask(RequestCode.UPDATE_CONSUMER_OFFSET, offset)
            await client.close()
            words = ("--from", old.address, "-n", namesrv, "-c", str(config))
            said = await asyncio.to_thread(ran, "migrate", "check", *words, "--json")
            assert not [one for one in json.loads(said)["findings"] if one["stops"]]
            assert "would" in await asyncio.to_thread(ran, "migrate", "switch", *words, "--dry-run")
            await asyncio.to_thread(ran, "migrate", "follow", *words, "--until-level")
            await traffic.more(100)
            said = await asyncio.to_thread(ran, "migrate", "verify", *words, "--records", "100")
            assert "0 differ" in said

            pid = ("--pid", str(old.process.pid), "--their-store", str(their_store))
            with running("migrate", "switch", *words, *pid, "--yes") as new:
                waiting = asyncio.create_task(asyncio.to_thread(lines_until, new, "the new broker serves at"))
                await asyncio.sleep(0.5)
                traffic.address = f"127.0.0.1:{port}"
                said = await waiting
                assert "are equal" in said, said
                old.process.wait(30)
                await traffic.more(100)
                assert set(traffic.sent) <= set(await read_back(f"127.0.0.1:{port}"))
                await halves[0].end(f"127.0.0.1:{port}", COMMIT)
                await halves[1].end(f"127.0.0.1:{port}", ROLLBACK)
                halves.append(await half(f"127.0.0.1:{port}", 3))
                here = f"127.0.0.1:{port}"
                client = RawClient(here)
                told = await client.call(RequestCode.GET_ALL_CONSUMER_OFFSET)
                await client.close()
                assert b'"Moved@billing":{1:17}' in told.body

                # The way back: Apache follows the new broker, then leads again.
                slave = await asyncio.to_thread(apache, brokerId=1, brokerRole="SLAVE")
                back = ("--from", here, "-n", namesrv, "-c", str(config))
                await asyncio.to_thread(ran, "migrate", "guard", *back)
                await traffic.more(50)
                pids = ("--pid", str(new.pid), "--their-pid", str(slave.process.pid), "--their-store", str(their_store))
                await asyncio.to_thread(ran, "migrate", "rollback", *back, *pids, "--yes")
                new.wait(30)
                slave.process.wait(30)
            assert log_of(our_store) == log_of(their_store)
            again = await asyncio.to_thread(apache)
            traffic.address = again.address
            await traffic.more(50)
            await traffic.stop()
            for one in halves[2:]:
                await one.end(again.address, COMMIT)

            async def has_delayed() -> bool:
                return set(traffic.delayed) <= set(await read_back(again.address, "Later"))

            await eventually(has_delayed, 30)
            for topic, sent in (("Moved", traffic.sent), ("Later", traffic.delayed), ("Paid", [0, 2, 3])):
                found = await read_back(again.address, topic)
                assert set(sent) <= set(found), topic
                assert len(found) == len(set(found)), f"nothing of {topic} was stored twice"
            assert found == [0, 2, 3], "what was rolled back is not readable"
            again.kill()
        finally:
            await traffic.stop()
            await server.kill()
            for broker in brokers:
                if broker.process.poll() is None:
                    broker.kill()

    asyncio.run(main())


TIMES = {
    "transactionTimeOut": "3000",
    "transactionCheckInterval": "2000",
    "transactionOpBatchInterval": "200",
    "timerWheelEnable": "true",
}


@pytest.mark.timeout(400)
def test_what_waits_goes_on_at_the_new_broker_once(tmp_path: Path) -> None:
    """Delayed, timed and half messages wait at Apache's broker, and come from ours."""

    async def main() -> None:
        server = ServerProcess("namesrv", {"kvConfigPath": str(tmp_path / "kv.json")}, tmp_path / "namesrv.log")
        await server.start()
        namesrv, store = server.address, tmp_path / "apache-store"
        port = free_ports(-2, 1)
        config = conf(tmp_path / "broker.conf", tmp_path / "our-store", namesrv, port)
        with config.open("a") as file:
            file.write("".join(f"{key}={value}\n" for key, value in TIMES.items()))
        keys = {"brokerIP2": "127.0.0.1", "messageDelayLevel": DELAY_LEVELS, **SEGMENT, **TIMES}
        old = await asyncio.to_thread(lambda: ApacheBroker(tmp_path / "apache", store, namesrv, settings=keys))
        try:
            async with AdminConnection(namesrv) as admin:
                await create_topic(admin, "Waits", TopicChange(read_queues=1, write_queues=1))
            checked: list[bytes] = []

            def commit(half: aerobee.Message) -> bool:
                checked.append(half.body)
                return True

            async with aerobee.Producer(namesrv, group="shop") as producer:
                await producer.send("Waits", b"soon", delay_level=1)
                await producer.send("Waits", b"level", delay_level=4)
                await producer.send("Waits", b"timed soon", delay=2)
                await producer.send("Waits", b"timed", delay=40)
            async with aerobee.Producer(namesrv, group="shop", on_check=lambda half: None) as producer:
                with pytest.raises(RuntimeError):
                    async with producer.transaction("Waits", b"half"):
                        raise RuntimeError
            await until_offset(old.address, 2)
            words = ("--from", old.address, "-n", namesrv, "-c", str(config), "--yes")
            pid = ("--pid", str(old.process.pid), "--their-store", str(store))
            with running("migrate", "switch", *words, *pid) as new:
                await asyncio.to_thread(lines_until, new, "the new broker serves at")
                old.process.wait(30)
                async with aerobee.Producer(namesrv, group="shop", on_check=commit) as producer:
                    # A producer is asked by the brokers that it has sent to.
                    await producer.send("Waits", b"new")
                    await until_offset(f"127.0.0.1:{port}", 6)
                    # Nothing comes a second time.
                    await asyncio.sleep(3)
                client = RawClient(f"127.0.0.1:{port}")
                _, _, found = await client.pull("Waits", 0, 0, hold_ms=0)
                await client.close()
                bodies = sorted(body for _, body in found)
                assert bodies == ["half", "level", "new", "soon", "timed", "timed soon"]
                assert set(checked) == {b"half"}
        finally:
            await server.kill()
            if old.process.poll() is None:
                old.kill()

    asyncio.run(main())


async def until_offset(address: str, offset: int) -> None:
    """Wait until the queue has so many messages."""
    client = RawClient(address)

    async def has_them() -> bool:
        return await client.max_offset("Waits", 0) >= offset

    await eventually(has_them, 90)
    await client.close()
