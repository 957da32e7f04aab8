"""The queues that topics were declared with, as far as routes have told: a machine that is fed with routes.

A name server forgets a broker that is down, and with it the broker's queues. A sharding key must keep its queue
meanwhile, so the queues of a broker group stay declared until a route shows that they were removed on purpose: the
group is there with fewer queues, its master does not take messages for the topic any more, or the group was forgotten
(`aerobee cluster forget`). Aerobee's name servers also tell which groups are away, so that a client that is started
meanwhile knows them too.
"""

from __future__ import annotations

from collections.abc import Mapping

from aerobee.model.queue import MessageQueue
from aerobee.model.route import TopicRoute
from aerobee.model.topic import PERM_WRITE


class DeclaredQueues:
    """The declared queues of the topics of one client, in the order of broker name and number."""

    def __init__(self) -> None:
        # How many queues each broker group has, by topic.
        self._counts: dict[str, dict[str, int]] = {}
        self._queues: dict[str, tuple[MessageQueue, ...]] = {}

    def of(self, topic: str) -> tuple[MessageQueue, ...]:
        """Return the declared queues of a topic. There are none before its first route."""
        return self._queues.get(topic, ())

    def learn(self, route: TopicRoute) -> None:
        """Take up what a route says of the broker groups in it. Those that are away keep their queues."""
        topic = route.topic
        if route.data.order_topic_conf or route.endpoints:
            # The order configuration and the mapping of a static topic name every queue, whoever is away.
            self._counts.pop(topic, None)
            self._queues[topic] = route.write_queues
            return
        counts = self._counts.setdefault(topic, {})
        masters = {broker.broker_name for broker in route.data.broker_datas if broker.master is not None}
        for queues in route.data.queue_datas:
            if queues.perm & PERM_WRITE:
                counts[queues.broker_name] = queues.write_queue_nums
            elif queues.broker_name in masters:
                counts.pop(queues.broker_name, None)
        self._list(topic, counts)

    def heard(self, topic: str, away: Mapping[str, int]) -> None:
        """Take up what a name server says of groups that are away: how many queues each has, 0 if it was forgotten."""
        if not away or (topic in self._queues and topic not in self._counts):
            return
        counts = self._counts.setdefault(topic, {})
        for group, count in away.items():
            if count == 0:
                counts.pop(group, None)
            else:
                counts.setdefault(group, count)
        self._list(topic, counts)

    def _list(self, topic: str, counts: Mapping[str, int]) -> None:
        queues = tuple(
            MessageQueue(topic, broker, number) for broker in sorted(counts) for number in range(counts[broker])
        )
        if queues != self._queues.get(topic):
            self._queues[topic] = queues
