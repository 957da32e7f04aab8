"""A broker of the kit that also serves administrators."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from aerobee.broker.config import BrokerConfig
from aerobee.model.dialect import loads_object
from aerobee.protocol.bodies.heartbeat import ConsumerData, HeartbeatData, ProducerData, SubscriptionData
from aerobee.protocol.codes import RequestCode
from aerobee.protocol.command import Command, request
from aerobee.protocol.headers.base import Header
from aerobee.runtime.seams import Disk
from aerobee.store.config import StoreConfig
from aerobee.testing.brokerkit import BrokerKit, KitClient, run_broker, settle
from aerobee.testing.storekit import draft


class AdminKit:
    """One administrator's connection to a broker, and the broker."""

    def __init__(self, kit: BrokerKit) -> None:
        self.kit = kit
        self.changed: list[tuple[BrokerConfig, StoreConfig]] = []
        kit.broker.on_reconfigured = lambda config, store: self.changed.append((config, store))
        self._opaque = 0
        self.client = kit.connect()

    async def call(self, code: int, header: Header | None = None, body: bytes = b"") -> Command:
        """Return the answer, after saving what has to be saved before it."""
        self._opaque += 1
        self.client.send(request(code, header, body, opaque=self._opaque))
        for _ in range(3):
            await settle()
            self.kit.tick()
        found = [one for one in await self.client.answers() if one.opaque == self._opaque]
        assert len(found) == 1, f"{len(found)} answers to {code}"
        return found[0]

    async def json(self, code: int, header: Header | None = None, body: bytes = b"") -> dict[Any, Any]:
        """Return the body of a success."""
        answer = await self.call(code, header, body)
        assert answer.code == 0, answer.remark
        found = loads_object(answer.body)
        assert isinstance(found, dict)
        return found

    def put(self, topic: str, count: int, queue_id: int = 0, **values: Any) -> None:
        for _ in range(count):
            self.kit.store.append([draft(b"x", topic.encode(), queue_id, **values)])

    async def consumer(self, group: str, client_id: str, *topics: str) -> KitClient:
        """Connect a push consumer."""
        client = self.kit.connect()
        subscriptions = tuple(SubscriptionData(topic, "*") for topic in topics)
        data = ConsumerData(group, "CONSUME_PASSIVELY", "CLUSTERING", "CONSUME_FROM_FIRST_OFFSET", subscriptions)
        await self._beat(client, HeartbeatData(client_id, (), (data,)))
        return client

    async def producer(self, group: str, client_id: str) -> KitClient:
        client = self.kit.connect()
        await self._beat(client, HeartbeatData(client_id, (ProducerData(group),), ()))
        return client

    @staticmethod
    async def _beat(client: KitClient, data: HeartbeatData) -> None:
        command = request(RequestCode.HEART_BEAT, None, data.encode(), opaque=1)
        command.version = 513
        answer = await client.call(command)
        assert answer.code == 0, answer.remark
        await client.pushes()


def run_admin(
    main: Callable[[AdminKit], Awaitable[None]],
    *,
    disk: Disk | None = None,
    config: BrokerConfig | None = None,
    store_config: StoreConfig | None = None,
) -> None:
    async def started(kit: BrokerKit) -> None:
        await main(AdminKit(kit))

    run_broker(started, disk=disk, config=config, store_config=store_config)
