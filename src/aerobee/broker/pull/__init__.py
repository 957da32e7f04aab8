"""Pulls: reading queues for consumers, holding pulls that find nothing, looking messages up."""

from aerobee.broker.pull.bulk import BulkPullHandler
from aerobee.broker.pull.handler import PullHandler
from aerobee.broker.pull.query import QueryHandlers
from aerobee.broker.pull.rules import pull_rules

__all__ = ["BulkPullHandler", "PullHandler", "QueryHandlers", "pull_rules"]
