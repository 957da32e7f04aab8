"""Pulls: reading queues for consumers, holding pulls that find nothing, looking messages up."""

from aerobee.broker.pull.bulk import BulkPullHandler
from aerobee.broker.pull.handler import PullHandler
from aerobee.broker.pull.query import QueryHandlers
from aerobee.broker.pull.rules import pull_rules
from aerobee.broker.pull.timing import pull_handler

__all__ = ["BulkPullHandler", "PullHandler", "QueryHandlers", "pull_handler", "pull_rules"]
