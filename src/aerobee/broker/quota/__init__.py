"""Quotas: how many messages and bytes a second a user, an address or a topic may send."""

from aerobee.broker.quota.throttle import Throttle

__all__ = ["Throttle"]
