"""Three of Apache's brokers with a controller, as a peer for `make failovers`: the same load, the same judgement."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path
from typing import Final

from aerobee.admin.connection import AdminConnection
from aerobee.errors import AerobeeError
from aerobee.model.dialect import dumps, loads_object
from aerobee.model.numbers import parse_int
from aerobee.model.route import MASTER_ID
from aerobee.protocol.codes import RequestCode
from aerobee.testing.apache import ApacheBroker, ApacheError, ApacheNameServer, free_ports
from aerobee.testing.workload import RawClient

GROUP: Final = "broker-a"
REPLICAS: Final = 3
_WHOLE_S: Final = 180.0
_LOOK_S: Final = 0.05


class ApacheGroup:
    """A name server with a controller, and three brokers whose sends wait for the whole in-sync set."""

    def __init__(self, directory: Path, *, min_in_sync: int) -> None:
        self._directory = directory
        self._min_in_sync = min_in_sync
        self._ports = [free_ports(-2, 1) for _ in range(REPLICAS)]
        self._brokers: dict[int, ApacheBroker] = {}
        self._starts = 0
        self._namesrv: ApacheNameServer

    async def start(self) -> None:
        self._namesrv = await asyncio.to_thread(lambda: ApacheNameServer(self._directory / "namesrv", controlled=True))
        for place in range(REPLICAS):
            await self.start_broker(place)
        await self.whole()

    @property
    def namesrv(self) -> str:
        return self._namesrv.address

    def address(self, place: int) -> str:
        return f"127.0.0.1:{self._ports[place]}"

    async def start_broker(self, place: int) -> None:
        """Start a broker on its directory and its port. It serves before this ends."""
        self._starts += 1
        number = place + 1
        settings = {
            "enableControllerMode": "true",
            "controllerAddr": self._namesrv.controller,
            "brokerId": -1,
            "brokerIP2": "127.0.0.1",
            "allAckInSyncStateSet": "true",
            "totalReplicas": REPLICAS,
            "inSyncReplicas": REPLICAS,
            "minInSyncReplicas": self._min_in_sync,
        }
        self._brokers[place] = await asyncio.to_thread(
            lambda: ApacheBroker(
                self._directory / f"start-{self._starts}",
                self._directory / f"replica-{number}",
                self.namesrv,
                name=GROUP,
                settings=settings,
                port=self._ports[place],
            )
        )

    def signal(self, place: int, number: signal.Signals) -> None:
        self._brokers[place].process.send_signal(number)

    async def end(self, place: int) -> None:
        """Kill a broker, and wait for its end."""
        await asyncio.to_thread(self._brokers[place].kill)

    async def whole(self) -> None:
        """Wait until the controller has all replicas in the in-sync set."""
        controller = RawClient(self._namesrv.controller)
        try:
            async with asyncio.timeout(_WHOLE_S):
                while await self._in_sync(controller) < REPLICAS:  # noqa: ASYNC110 - nobody tells
                    await asyncio.sleep(_LOOK_S)
        finally:
            await controller.close()

    async def _in_sync(self, controller: RawClient) -> int:
        try:
            answer = await controller.ask(RequestCode.CONTROLLER_GET_SYNC_STATE_DATA, None, dumps([GROUP]))
        except AerobeeError:
            return 0
        found = loads_object(answer.body).get("replicasInfoTable", {}).get(GROUP)
        return 0 if found is None or not found.get("masterBrokerId") else len(found["inSyncReplicas"])

    async def master(self) -> int:
        """Return the place of the master, as the name server tells. Wait until there is one."""
        async with asyncio.timeout(_WHOLE_S), AdminConnection(self.namesrv) as admin:
            while True:
                for broker in await admin.brokers():
                    if (broker.name, broker.broker_id) == (GROUP, MASTER_ID):
                        return self._ports.index(parse_int(broker.address.rpartition(":")[2]))
                await asyncio.sleep(_LOOK_S)

    async def close(self) -> None:
        for broker in self._brokers.values():
            try:
                await asyncio.to_thread(broker.kill)
            except ApacheError:
                continue
        if hasattr(self, "_namesrv"):
            await asyncio.to_thread(self._namesrv.kill)
