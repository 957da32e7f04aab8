"""The headers of our own requests about broker groups (docs/formats/private.md)."""

from __future__ import annotations

from aerobee.protocol.headers.base import Header, Int64


class KnownGroupsRequestHeader(Header, kw_only=True):
    """KNOWN_GROUPS: a broker says which declarations of other groups it knows."""

    broker_name: str


class ReplicaForceRequestHeader(Header, kw_only=True):
    """REPLICA_FORCE: this replica leads from now on, whatever it lacks."""

    broker_name: str
    broker_id: Int64


class ForgetGroupRequestHeader(Header, kw_only=True):
    """FORGET_GROUP: a broker group is gone for good."""

    broker_name: str
