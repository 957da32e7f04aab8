"""Registration with name servers, without any."""

from __future__ import annotations

import asyncio

import pytest

from aerobee.broker.config import BrokerConfig
from aerobee.broker.topics.registrar import Registrar
from aerobee.net.client import RemotingClient
from aerobee.runtime.clock import SystemClock
from aerobee.runtime.tasks import Tasks
from aerobee.testing.brokerkit import BrokerKit
from aerobee.testing.disk import RecordingDisk


@pytest.mark.parametrize("turns", range(5))
def test_a_stop_is_heard_beside_a_change_of_topics(turns: int) -> None:
    """However many turns of the loop after the change it comes. `asyncio.wait_for` once swallowed it, and the broker
    never stopped."""

    async def body() -> None:
        client = RemotingClient()
        config = BrokerConfig(namesrv_addr="127.0.0.1:1")
        kit = BrokerKit(RecordingDisk(seed=1), SystemClock())
        registrar = Registrar(config, "broker-a", "127.0.0.1:2", kit.state.catalog, client, SystemClock())
        tasks = Tasks()
        await registrar.start(tasks)
        await asyncio.sleep(0.01)
        registrar._topics_changed([])
        for _ in range(turns):
            await asyncio.sleep(0)
        closing = asyncio.ensure_future(tasks.close())
        await asyncio.wait([closing], timeout=2)
        heard = closing.done()
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()
        await asyncio.wait([closing])
        await client.close()
        kit.close()
        assert heard

    asyncio.run(body())
