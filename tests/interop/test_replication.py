"""Master and slave of both makes: each under load, each side killed and started again, then the logs compared.

Apache's processes take a JVM each, so at most two run at a time: the name server is ours.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from aerobee.admin.connection import AdminConnection
from aerobee.admin.migration import master_facts
from aerobee.app.following import Following
from aerobee.app.process import disk_of_this_loop
from aerobee.errors import AerobeeError
from aerobee.net.client import RemotingClient
from aerobee.protocol.bodies.cluster import KVTable
from aerobee.protocol.codes import RequestCode, ResponseCode
from aerobee.runtime.clock import SystemClock
from aerobee.runtime.net import RealNet
from aerobee.store.config import StoreConfig
from aerobee.testing.apache import STORE_SETTINGS, ApacheBroker, ApacheNameServer, unavailable
from aerobee.testing.processes import ServerProcess
from aerobee.testing.workload import RawClient, eventually

SIZES = (10, 100, 1000, 30_000, 70_000, 200)
SMALL = {key: str(value) for key, value in STORE_SETTINGS.items()}
PATIENCE_S = 90.0

pytestmark = [
    pytest.mark.skipif(unavailable() is not None, reason=str(unavailable())),
    pytest.mark.timeout(400),
]


def ours(directory: Path, namesrv: str, **settings: str) -> ServerProcess:
    directory.mkdir(parents=True, exist_ok=True)
    keys = {
        "brokerClusterName": "DefaultCluster",
        "brokerName": "broker-a",
        "brokerIP1": "127.0.0.1",
        "brokerIP2": "127.0.0.1",
        "namesrvAddr": namesrv,
        "storePathRootDir": str(directory / "store"),
        **SMALL,
        "maxMessageSize": "500000",
        **settings,
    }
    return ServerProcess("broker", keys, directory / "log.txt")


def our_slave(directory: Path, namesrv: str) -> ServerProcess:
    return ours(directory, namesrv, brokerId="1", brokerRole="SLAVE", slaveReadEnable="true")


def our_master(directory: Path, namesrv: str, **settings: str) -> ServerProcess:
    return ours(directory, namesrv, haListenPort="0", totalReplicas="2", **settings)


@asynccontextmanager
async def name_server(directory: Path) -> AsyncIterator[str]:
    server = ServerProcess("namesrv", {"kvConfigPath": str(directory / "kv.json")}, directory / "namesrv.log")
    await server.start()
    try:
        yield server.address
    finally:
        await server.kill()


class Load:
    """Sends messages of many sizes to a broker until told to stop, whatever happens to the broker."""

    def __init__(self, address: Callable[[], str]) -> None:
        self._address = address
        self.acknowledged = 0
        self._task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        number = 0
        while True:
            client = RawClient(self._address())
            try:
                while True:
                    number += 1
                    answer = await client.send("Load", number % 4, b"x" * SIZES[number % len(SIZES)], timeout_s=3.0)
                    self.acknowledged += answer.code == ResponseCode.SUCCESS
                    await asyncio.sleep(0.01)
            except (AerobeeError, OSError, TimeoutError):
                await asyncio.sleep(0.2)
            finally:
                await client.close()

    async def more(self, count: int) -> None:
        """Wait until so many more messages were acknowledged."""
        wanted = self.acknowledged + count
        await until(lambda: self.acknowledged >= wanted, f"{count} more messages")

    async def stop(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)


async def until(holds: Callable[[], object], what: str) -> None:
    try:
        await eventually(holds, PATIENCE_S)
    except TimeoutError:
        raise AssertionError(f"no {what} within {PATIENCE_S:.0f} s") from None


async def log_end(address: str) -> int:
    client = RawClient(address)
    try:
        answer = await client.ask(RequestCode.GET_BROKER_RUNTIME_INFO)
        return int(KVTable.decode(answer.body).table["commitLogMaxOffset"])
    except (AerobeeError, OSError, TimeoutError):
        return -1
    finally:
        await client.close()


async def level(one: str, two: str) -> None:
    async def is_level() -> bool:
        first, second = await log_end(one), await log_end(two)
        return first == second > 0

    await until(is_level, "level logs")


async def follows(address: str) -> None:
    """Wait until a slave has stored something."""

    async def has_something() -> bool:
        return await log_end(address) > 0

    await until(has_something, "log at the slave")


async def is_sent(address: str, code: int) -> bool:
    """Send a message; tell whether it is answered with this code."""
    client = RawClient(address)
    try:
        return (await client.send("Load", 0, b"sync")).code == code
    except (AerobeeError, OSError, TimeoutError):
        return False
    finally:
        await client.close()


async def serves(address: str) -> bool:
    """Tell whether a slave answers pulls with messages."""
    client = RawClient(address)
    try:
        code, _, found = await client.pull("Load", 0, 0, hold_ms=0, count=8)
        return code == ResponseCode.SUCCESS and len(found) == 8
    except (AerobeeError, OSError, TimeoutError):
        return False
    finally:
        await client.close()


def log_of(store: Path) -> tuple[int, bytes]:
    """Return where a log begins and its bytes, without the unused end of the last file."""
    files = sorted((store / "commitlog").iterdir())
    return int(files[0].name), b"".join(file.read_bytes() for file in files).rstrip(b"\0")


def assert_equal_logs(one: Path, two: Path) -> None:
    (first_start, first), (second_start, second) = log_of(one), log_of(two)
    assert first_start == second_start
    assert len(first) == len(second)
    assert first == second
    assert len(first) > 2 * 1024 * 1024, "the load crossed ends of segments"


def test_our_slave_behind_our_master(tmp_path: Path) -> None:
    async def main() -> None:
        async with name_server(tmp_path) as namesrv:
            one, two = our_master(tmp_path / "one", namesrv), our_slave(tmp_path / "two", namesrv)
            await one.start()
            load = Load(lambda: one.address)
            try:
                await load.more(150)
                await two.start()
                await load.more(50)
                for server in (two, one, two, one):
                    await server.kill()
                    await server.start()
                    await load.more(30)
                await load.stop()
                await level(one.address, two.address)
            finally:
                await load.stop()
                await one.kill()
                await two.kill()
            assert_equal_logs(tmp_path / "one" / "store", tmp_path / "two" / "store")

    asyncio.run(main())


def test_our_slave_behind_apaches_master(tmp_path: Path) -> None:
    async def main() -> None:
        async with name_server(tmp_path) as namesrv:
            store = tmp_path / "apache-store"
            two = our_slave(tmp_path / "two", namesrv)
            started = 0

            def apache() -> ApacheBroker:
                nonlocal started
                started += 1
                settings = {"brokerIP2": "127.0.0.1", "brokerRole": "ASYNC_MASTER"}
                return ApacheBroker(tmp_path / f"apache-{started}", store, namesrv, settings=settings)

            master = await asyncio.to_thread(apache)
            load = Load(lambda: master.address)
            try:
                await load.more(150)
                await two.start()
                await load.more(50)

                await two.kill()
                await load.more(30)
                await two.start()
                await load.more(30)
                master.kill()
                master = await asyncio.to_thread(apache)
                await load.more(50)
                await load.stop()
                await level(master.address, two.address)
                await until(lambda: serves(two.address), "answer to a pull: the tables come along")
            finally:
                await load.stop()
                await two.kill()
                master.kill()
            assert_equal_logs(store, tmp_path / "two" / "store")

    asyncio.run(main())


def test_apaches_slave_behind_our_master(tmp_path: Path) -> None:
    async def main() -> None:
        async with name_server(tmp_path) as namesrv:
            store = tmp_path / "apache-store"
            one = our_master(tmp_path / "one", namesrv)
            started = 0

            def apache() -> ApacheBroker:
                nonlocal started
                started += 1
                settings = {"brokerId": 1, "brokerRole": "SLAVE", "slaveReadEnable": "true"}
                return ApacheBroker(tmp_path / f"apache-{started}", store, namesrv, settings=settings)

            await one.start()
            load = Load(lambda: one.address)
            slave: ApacheBroker | None = None
            try:
                await load.more(150)
                slave = await asyncio.to_thread(apache)
                await follows(slave.address)
                await load.more(100)
                await one.kill()
                await one.start()
                await load.more(50)
                slave.kill()
                await load.more(30)
                slave = await asyncio.to_thread(apache)
                await load.more(50)
                await load.stop()
                await level(one.address, slave.address)
                address = slave.address
                await until(lambda: serves(address), "answer to a pull: the tables come along")
                # Apache's slave is what a synchronous master of ours waits for.
                await one.stop()
                one.settings |= {"brokerRole": "SYNC_MASTER", "inSyncReplicas": "2", "slaveTimeout": "2000"}
                await one.start()
                await until(lambda: is_sent(one.address, ResponseCode.SUCCESS), "send that the slave has")
                slave.kill()
                await until(lambda: is_sent(one.address, ResponseCode.FLUSH_SLAVE_TIMEOUT), "send without a slave")
                slave = await asyncio.to_thread(apache)
                await until(lambda: is_sent(one.address, ResponseCode.SUCCESS), "send that the slave has")
                await level(one.address, slave.address)
            finally:
                await load.stop()
                await one.kill()
                if slave is not None:
                    slave.kill()
            assert_equal_logs(tmp_path / "one" / "store", store)

    asyncio.run(main())


def test_our_copy_behind_apaches_master_with_a_controller(tmp_path: Path) -> None:
    async def main() -> None:
        store = tmp_path / "apache-store"
        started = 0
        namesrv = await asyncio.to_thread(lambda: ApacheNameServer(tmp_path / "namesrv", controlled=True))

        def apache() -> ApacheBroker:
            nonlocal started
            started += 1
            settings = {
                "enableControllerMode": "true",
                "controllerAddr": namesrv.controller,
                "brokerId": -1,
                "brokerIP2": "127.0.0.1",
                "allAckInSyncStateSet": "true",
            }
            return ApacheBroker(tmp_path / f"apache-{started}", store, namesrv.address, settings=settings)

        master = await asyncio.to_thread(apache)
        load = Load(lambda: master.address)
        copy: Following | None = None
        try:
            await load.more(150)
            copy = await following(tmp_path / "copy", master)
            await until(lambda: copy is not None and copy.store.log_end > 0, "log of the copy")
            await load.more(50)
            await copy.close()
            await load.more(50)
            copy = await following(tmp_path / "copy", master)
            await load.more(50)
            await load.stop()
            assert await copy.level(PATIENCE_S)
            assert await copy.copy_tables()
            assert copy.catalog.find("Load") is not None
        finally:
            await load.stop()
            if copy is not None:
                await copy.close()
            master.kill()
            namesrv.kill()
        assert_equal_logs(store, tmp_path / "copy")

    asyncio.run(main())


async def following(root: Path, master: ApacheBroker) -> Following:
    """Let a directory follow a master."""
    clock, client = SystemClock(), RemotingClient()
    async with AdminConnection("127.0.0.1:1") as admin:
        facts = await master_facts(admin, master.address)
    assert facts.controlled
    config = StoreConfig(
        store_path_root_dir=str(root), mapped_file_size_commit_log=facts.segment_size, max_message_size=500_000
    )
    copy = Following(facts, config, disk_of_this_loop(), clock, RealNet(), client)
    copy.open()
    copy.start()
    return copy
