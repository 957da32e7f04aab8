"""The routes and broker addresses that a client knows: a machine that is fed with route data.

RocketMQ: MQClientInstance.getBrokerNameFromMessageQueue, findBrokerAddressInSubscribe, cleanOfflineBroker.
"""

from __future__ import annotations

from collections.abc import Mapping

from aerobee.client.core.declaredqueues import DeclaredQueues
from aerobee.errors.codes import error_for
from aerobee.model.dialect import loads_object
from aerobee.model.fields import whole_of
from aerobee.model.queue import MessageQueue
from aerobee.model.route import MASTER_ID, TopicRoute, TopicRouteData
from aerobee.protocol.codes import AWAY_FIELD, ResponseCode
from aerobee.protocol.command import Command
from aerobee.protocol.headers.route import GetRouteInfoRequestHeader


def route_header(topic: str) -> GetRouteInfoRequestHeader:
    """Return the request for a topic's route.

    Apache's unquoted keys can be read too, but newer servers are asked for standard JSON.
    """
    return GetRouteInfoRequestHeader(topic=topic, accept_standard_json_only=True)


def decode_route(answer: Command, server: str) -> TopicRouteData | None:
    """Return the route in a name server's answer, None where the topic does not exist. Any other code raises."""
    if answer.code == ResponseCode.SUCCESS:
        return TopicRouteData.from_json(loads_object(answer.body))
    if answer.code == ResponseCode.TOPIC_NOT_EXIST:
        return None
    raise error_for(answer.code, answer.remark or "", server)


def away_groups(answer: Command) -> dict[str, int]:
    """Return the broker groups that a name server says are away, with the number of the topic's read queues on each.

    An answer to a request without the field AWAY_FIELD, or of Apache's name server, says nothing of them.
    """
    said = answer.ext.get(AWAY_FIELD)
    if not said:
        return {}
    found = loads_object(said.encode())
    return {str(group): whole_of(queues) for group, queues in found.items()}


class RouteCache:
    """The routes that a client knows, and the addresses of the brokers in them."""

    def __init__(self) -> None:
        self.routes: dict[str, TopicRoute] = {}
        self.declared = DeclaredQueues()
        self._brokers: dict[str, Mapping[int, str]] = {}

    def put(self, topic: str, data: TopicRouteData, *, guessed: bool = False) -> TopicRoute | None:
        """Store a route. Return it where it differs from the one before, else None.

        A `guessed` route is that of TBW102 for a topic that does not exist yet: it declares no queues.
        """
        for broker in data.broker_datas:
            self._brokers[broker.broker_name] = dict(broker.broker_addrs)
        old = self.routes.get(topic)
        is_known = old is not None and old.data == data
        route = old if old is not None and is_known else TopicRoute.of(topic, data)
        if not guessed:
            self.declared.learn(route)
        if is_known:
            return None
        self.routes[topic] = route
        self._forget_offline()
        return route

    def remove(self, topic: str) -> None:
        self.routes.pop(topic, None)
        self._forget_offline()

    def _forget_offline(self) -> None:
        """Forget the brokers that no route names any more. RocketMQ: MQClientInstance.cleanOfflineBroker."""
        named = {broker.broker_name for route in self.routes.values() for broker in route.data.broker_datas}
        for name in [name for name in self._brokers if name not in named]:
            del self._brokers[name]

    def broker_of(self, queue: MessageQueue) -> str:
        """Return the broker group that serves a queue now. The queue of a static topic names a logical one."""
        route = self.routes.get(queue.topic)
        return queue.broker_name if route is None else route.broker_of(queue)

    def is_away(self, queue: MessageQueue) -> bool:
        """Tell whether the route of the queue's topic no longer names the queue's broker group."""
        route = self.routes.get(queue.topic)
        if route is None:
            return True
        name = route.broker_of(queue)
        return all(broker.broker_name != name for broker in route.data.broker_datas)

    def master(self, broker_name: str) -> str | None:
        """Return the address of a group's master, which takes sends; None where none is known."""
        addresses = self._brokers.get(broker_name)
        return addresses.get(MASTER_ID) if addresses else None

    def address(self, broker_name: str, broker_id: int = MASTER_ID) -> str | None:
        """Return where to read: that broker, else the next slave, else any broker of the group."""
        addresses = self._brokers.get(broker_name)
        if not addresses:
            return None
        found = addresses.get(broker_id)
        if found is None and broker_id != MASTER_ID:
            found = addresses.get(broker_id + 1)
        return addresses[min(addresses)] if found is None else found

    def masters(self) -> list[str]:
        """Return the address of every master."""
        return [addresses[MASTER_ID] for addresses in self._brokers.values() if MASTER_ID in addresses]

    def addresses(self) -> list[str]:
        """Return the address of every broker, slaves included."""
        return [address for addresses in self._brokers.values() for address in addresses.values()]
