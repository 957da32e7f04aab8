"""Which broker serves a queue now, for reading and for what only a master keeps.

RocketMQ: MQClientInstance.getBrokerNameFromMessageQueue, findBrokerAddressInSubscribe.
"""

from __future__ import annotations

from aerobee.client.core.clientcore import ClientCore
from aerobee.errors import TransportError
from aerobee.model.queue import MessageQueue
from aerobee.model.route import MASTER_ID


def broker_of(core: ClientCore, queue: MessageQueue) -> str:
    """The broker group; a static topic's queue names a logical one."""
    route = core.routes.routes.get(queue.topic)
    return queue.broker_name if route is None else route.broker_of(queue)


def is_away(core: ClientCore, queue: MessageQueue) -> bool:
    """Whether its topic's route does not name the queue's broker group any more."""
    route = core.routes.routes.get(queue.topic)
    if route is None:
        return True
    name = route.broker_of(queue)
    return all(broker.broker_name != name for broker in route.data.broker_datas)


async def address_of(core: ClientCore, queue: MessageQueue, broker_id: int = MASTER_ID, *, only: bool = False) -> str:
    """Where to ask about a queue: that broker, else (unless `only`) another of its group."""
    found = core.routes.address(broker_of(core, queue), broker_id, only=only)
    if found is None:
        await core.route(queue.topic, refresh=True)
        found = core.routes.address(broker_of(core, queue), broker_id, only=only)
    if found is None:
        raise TransportError(
            f"no broker {queue.broker_name!r} is in the route of topic {queue.topic!r}",
            hint="is it up? (aerobee cluster)",
        )
    return found
