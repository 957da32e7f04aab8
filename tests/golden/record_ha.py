"""Records what Apache's brokers send over their HA port. Run it to make the files of `data/ha` again:

    python tests/golden/record_ha.py

It needs Java and Maven. Each file holds the bytes of one direction of a connection.
"""

from __future__ import annotations

import asyncio
import socket
import struct
import tempfile
from pathlib import Path
from typing import Any

from aerobee.app.broker import BrokerNode
from aerobee.app.namesrv import NamesrvNode
from aerobee.app.process import disk_of_this_loop
from aerobee.broker.config import BrokerConfig
from aerobee.namesrv.config import NamesrvConfig
from aerobee.runtime.clock import SystemClock
from aerobee.runtime.entropy import SystemEntropy
from aerobee.store.config import StoreConfig
from aerobee.testing.apache import ApacheBroker, ApacheNameServer
from aerobee.testing.workload import RawClient, eventually

DATA = Path(__file__).parent / "data" / "ha"
BODIES = (b"one", b"two" * 100, b"three")


def keep(name: str, data: bytes) -> None:
    DATA.mkdir(parents=True, exist_ok=True)
    (DATA / name).write_bytes(data)
    print(f"{name}: {len(data)} bytes")


async def send_all(address: str) -> None:
    client = RawClient(address)
    for body in BODIES:
        await client.send("Golden", 0, body)
    await client.close()


def received(ha_port: int, first: bytes, then: bytes, wanted: int) -> bytes:
    """Say `first`, wait for an answer if there is a `then`, say it, and return all that came until the line closed."""
    with socket.create_connection(("127.0.0.1", ha_port)) as line:
        line.settimeout(7)
        line.sendall(first)
        data = line.recv(1 << 20) if then else b""
        line.sendall(then)
        while len(data) < wanted:
            try:
                more = line.recv(1 << 20)
            except TimeoutError:
                break
            if not more:
                break
            data += more
        return data


async def masters(work: Path) -> None:
    for name, controlled in (("classic-master.bin", False), ("controlled-master.bin", True)):
        namesrv = await asyncio.to_thread(ApacheNameServer, work / f"ns-{name}", controlled=controlled)
        settings: dict[str, Any] = {"brokerIP2": "127.0.0.1"}
        if controlled:
            settings |= {"enableControllerMode": "true", "controllerAddr": namesrv.controller, "brokerId": -1}
        place = (work / f"b-{name}", work / f"store-{name}", namesrv.address)
        broker = await asyncio.to_thread(ApacheBroker, *place, settings=settings)
        await send_all(broker.address)
        hello = struct.pack(">ihhq", 1, 0, 1, 99) if controlled else b""
        report = struct.pack(">iq", 2, 0) if controlled else struct.pack(">q", 0)
        first, then = (hello, report) if controlled else (report, b"")
        # The records, and the heartbeat that follows after 5 s.
        keep(name, await asyncio.to_thread(received, broker.port + 1, first, then, 1 << 20))
        log = (broker.store / "commitlog" / f"{0:020d}").read_bytes().rstrip(b"\0")
        keep(name.replace("master", "log"), log)
        broker.kill()
        namesrv.kill()


async def slave(work: Path) -> None:
    disk, clock = disk_of_this_loop(), SystemClock()
    namesrv = NamesrvNode(
        NamesrvConfig(listen_port=0, kv_config_path=str(work / "kv.json")), disk, clock, host="127.0.0.1"
    )
    await namesrv.start()
    address = f"127.0.0.1:{namesrv.port}"
    config = BrokerConfig(broker_name="broker-a", broker_ip1="127.0.0.1", listen_port=0, namesrv_addr=address)
    store = StoreConfig(
        store_path_root_dir=str(work / "ours"), mapped_file_size_commit_log=1 << 20, max_message_size=500_000,
        ha_listen_port=0,
    )  # fmt: skip
    node = BrokerNode(config, store, disk, clock, SystemEntropy(), host="127.0.0.1", unique_id=lambda: "0" * 32)
    await node.start()
    said = bytearray()
    assert node.role.master is not None and node.role._port is not None
    make = node.role.master.connection

    def recorded() -> asyncio.Protocol:
        protocol = make()
        taken = protocol.data_received

        def data_received(data: bytes) -> None:
            said.extend(data)
            taken(data)

        protocol.data_received = data_received  # type: ignore[method-assign]
        return protocol

    node.role._port.classic = recorded
    broker = await asyncio.to_thread(
        ApacheBroker, work / "slave", work / "slave-store", address, settings={"brokerId": 1, "brokerRole": "SLAVE"}
    )
    await eventually(lambda: bool(said))
    await send_all(f"127.0.0.1:{node.port}")
    await eventually(lambda: said.endswith(struct.pack(">q", node.state.store.log_end)))
    await asyncio.sleep(6)
    keep("classic-slave.bin", bytes(said))
    keep("classic-slave-end.txt", str(node.state.store.log_end).encode())
    broker.kill()
    await node.stop()
    await namesrv.stop()
    disk.close()


async def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        await masters(Path(directory))
        await slave(Path(directory))


if __name__ == "__main__":
    asyncio.run(main())
