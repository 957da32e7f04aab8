"""Clients: who is connected, what groups subscribe to, their filters, locks and shares of queues."""

from aerobee.broker.membership.assignment import AssignmentHandlers, Routes, own_queues
from aerobee.broker.membership.clients import SCAN_INTERVAL_S, Clients
from aerobee.broker.membership.connections import ClientAdmin, subscription_data
from aerobee.broker.membership.effects import ClientEffects
from aerobee.broker.membership.filters import SAVE_INTERVAL_S, Acceptor, ConsumerFilters
from aerobee.broker.membership.lockrequests import LockHandlers
from aerobee.broker.membership.locks import GroupLocks
from aerobee.broker.membership.members import BROADCASTING, CONSUME_ACTIVELY, RESET_VERSION_MIN
from aerobee.broker.membership.relay import RelayAdmin
from aerobee.broker.membership.requests import ClientHandlers
from aerobee.broker.membership.subscriptions import Subscription, parse_subscription

__all__ = [
    "Acceptor", "AssignmentHandlers", "BROADCASTING", "CONSUME_ACTIVELY", "ClientAdmin", "ClientEffects",
    "ClientHandlers", "Clients", "ConsumerFilters", "LockHandlers", "GroupLocks", "RESET_VERSION_MIN", "RelayAdmin",
    "Routes", "SAVE_INTERVAL_S", "SCAN_INTERVAL_S", "Subscription", "own_queues", "parse_subscription",
    "subscription_data",
]  # fmt: skip
