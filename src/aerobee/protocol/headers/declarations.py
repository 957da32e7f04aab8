"""The header of our own request that makes name servers forget a broker group (docs/formats/private.md)."""

from __future__ import annotations

from aerobee.protocol.headers.base import Header


class KnownGroupsRequestHeader(Header, kw_only=True):
    """KNOWN_GROUPS: a broker says which declarations of other groups it knows."""

    broker_name: str


class ForgetGroupRequestHeader(Header, kw_only=True):
    """FORGET_GROUP: a broker group is gone for good."""

    broker_name: str
