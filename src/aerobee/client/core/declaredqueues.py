"""The queues that topics were declared with, as far as routes have told: a machine that is fed with routes.

A name server forgets a broker that is down, and with it the broker's queues. A sharding key must keep its queue
meanwhile, so the queues of a broker group stay declared until a route shows that they were removed on purpose: the
group is there with fewer queues, or its master does not take messages for the topic any more.
"""

from __future__ import annotations

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
        before = dict(counts)
        masters = {broker.broker_name for broker in route.data.broker_datas if broker.master is not None}
        for queues in route.data.queue_datas:
            if queues.perm & PERM_WRITE:
                counts[queues.broker_name] = queues.write_queue_nums
            elif queues.broker_name in masters:
                counts.pop(queues.broker_name, None)
        if counts != before or topic not in self._queues:
            self._queues[topic] = tuple(
                MessageQueue(topic, broker, number) for broker in sorted(counts) for number in range(counts[broker])
            )
