"""What a LocalCluster needs of its servers: their settings unless a test says otherwise, and what they have stored."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from aerobee.access.config import AccessConfig
from aerobee.app.broker import BrokerNode
from aerobee.config.setting import settings_of
from aerobee.errors import StoreError
from aerobee.hot.log.record import decode_records
from aerobee.model.message import Message, from_record
from aerobee.model.topic import TopicConfig
from aerobee.net.config import TlsConfig
from aerobee.store.reads import GetMessageStatus


def defaults_of(host: str, replicas: int) -> dict[str, str]:
    """Return the settings of each broker of a cluster whose groups have this many replicas."""
    of_replicas = {
        "brokerRole": "SYNC_MASTER",
        # The neighbour of a free port may have been taken meanwhile, by a client's connection.
        "haListenPort": "0",
        "totalReplicas": str(replicas),
        "minInSyncReplicas": str(replicas // 2 + 1 if replicas > 2 else 1),
    }
    return {
        "brokerIP1": host,
        # A loaded machine must not lead to busy answers, except in tests of those.
        "brokerFastFailureEnable": "false",
        **(of_replicas if replicas > 1 else {}),
        "metricsPromExporterPort": "0",
    }


def shared_settings(settings: Mapping[str, str]) -> dict[str, str]:
    """Return the settings of brokers that hold for name servers too: those of TLS and of users."""
    known = {one.java for one in (*settings_of(TlsConfig), *settings_of(AccessConfig))}
    return {key: value for key, value in settings.items() if key in known}


def topic_maker(topic: TopicConfig) -> Callable[[BrokerNode], Coroutine[Any, Any, None]]:
    """Return a request to a broker: make a topic, which no crash takes back."""

    async def make(node: BrokerNode) -> None:
        saved: asyncio.Future[StoreError | None] = asyncio.get_running_loop().create_future()
        node.state.catalog.put_topic(topic)
        node.state.catalog.when_saved(saved.set_result)
        error = await saved
        if error is not None:
            raise error

    return make


def stored_messages(topic: str, broker: str) -> Callable[[BrokerNode], Coroutine[Any, Any, list[Message]]]:
    """Return a question to a broker: all messages of a topic, ordered by queue and offset."""

    async def stored(node: BrokerNode) -> list[Message]:
        found: list[Message] = []
        store, name = node.state.store, topic.encode()
        for queue in sorted((q for q in store.queues if q.topic == name), key=lambda q: q.queue_id):
            offset = store.min_offset(name, queue.queue_id)
            while True:
                result = store.get_messages(name, queue.queue_id, offset, 1024)
                if result.status is GetMessageStatus.COLD:
                    result = store.fetch_now(result)
                if result.status is not GetMessageStatus.FOUND:
                    break
                data = b"".join(bytes(buffer) for buffer in result.buffers)
                found += [from_record(record, broker) for record in decode_records(data)]
                offset = result.next_begin_offset
        return found

    return stored


async def is_leading(node: BrokerNode) -> bool:
    """Return whether a replica serves as master."""
    return node.group is not None and not node.broker.is_following and node.group.has_authority()


async def register(node: BrokerNode) -> None:
    """Tell the name servers what a broker has."""
    await node.registrar.register_now()
