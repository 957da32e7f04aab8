"""Topics and consumer groups: rules, tables, requests, and their registration with the name servers."""

from aerobee.broker.topics.attributes import (
    MESSAGE_TYPE,
    PRIORITY_FACTOR,
    PRIORITY_TYPE,
    message_type,
    retention_hours,
)
from aerobee.broker.topics.catalog import Catalog
from aerobee.broker.topics.deleted import deleted_topic_of
from aerobee.broker.topics.ensure import ensure_topic
from aerobee.broker.topics.grouprequests import GroupAdmin
from aerobee.broker.topics.groups import TRANSACTION_GROUP, group_rules, not_there
from aerobee.broker.topics.neighbours import Neighbours
from aerobee.broker.topics.registrar import Registrar, Standing
from aerobee.broker.topics.rules import topic_rules
from aerobee.broker.topics.topicrequests import TopicAdmin

__all__ = [
    "Catalog", "GroupAdmin", "MESSAGE_TYPE", "Neighbours", "PRIORITY_FACTOR", "PRIORITY_TYPE", "Registrar", "Standing",
    "TRANSACTION_GROUP", "TopicAdmin",
    "deleted_topic_of", "ensure_topic", "group_rules", "message_type", "not_there", "retention_hours", "topic_rules",
]  # fmt: skip
