"""Topics that are made when they are first needed, as the retry and dead-letter topics of a group."""

from __future__ import annotations

from dataclasses import replace

from aerobee.broker.topics.catalog import Catalog
from aerobee.broker.topics.rules import create_for_send_back
from aerobee.model.topic import TopicConfig


def ensure_topic(
    catalog: Catalog, topic: str, queue_nums: int, sys_flag: int = 0, *, order: bool | None = None
) -> TopicConfig:
    """Return the topic as it is, else make it so. An existing topic takes over an `order` that is given.

    RocketMQ: TopicConfigManager.createTopicInSendMessageBackMethod (whose short form says order = false and so takes
    the flag away again with every send-back; here only heartbeats, which know the subscriptions, set it).
    """
    found = catalog.find(topic)
    if found is None:
        # A group that was saved before there was a bound may ask for more.
        queue_nums = min(queue_nums, catalog.topic_rules.queue_nums_max)
        made = create_for_send_back(topic, queue_nums, sys_flag, order=bool(order))
        catalog.put_topic(made)
        return made
    if order is not None and found.order != order:
        found = replace(found, order=order)
        catalog.put_topic(found)
    return found
