"""Heartbeats: a client, its groups and their subscriptions."""

from __future__ import annotations

from dataclasses import dataclass

from aerobee.protocol.bodies.base import Body, wire

CONSUME_ACTIVELY = "CONSUME_ACTIVELY"
CONSUME_PASSIVELY = "CONSUME_PASSIVELY"
CONSUME_POP = "CONSUME_POP"

BROADCASTING = "BROADCASTING"
CLUSTERING = "CLUSTERING"
LITE_SELECTIVE = "LITE_SELECTIVE"

CONSUME_FROM_LAST_OFFSET = "CONSUME_FROM_LAST_OFFSET"
CONSUME_FROM_FIRST_OFFSET = "CONSUME_FROM_FIRST_OFFSET"
CONSUME_FROM_TIMESTAMP = "CONSUME_FROM_TIMESTAMP"

TAG = "TAG"
SQL92 = "SQL92"


@dataclass(frozen=True, slots=True)
class SubscriptionData(Body):
    """A subscription of a group to a topic. `tags_set` and `code_set` (Java hashes of the tags) are empty for `*`."""

    topic: str = ""
    sub_string: str = ""
    tags_set: tuple[str, ...] = ()
    code_set: tuple[int, ...] = ()
    sub_version: int = 0
    expression_type: str = TAG
    class_filter_mode: bool = False


@dataclass(frozen=True, slots=True)
class ProducerData(Body):
    """A producer group of a client."""

    group_name: str = ""


@dataclass(frozen=True, slots=True)
class ConsumerData(Body):
    """A consumer group of a client."""

    group_name: str = ""
    consume_type: str | None = None
    message_model: str | None = None
    consume_from_where: str | None = None
    subscription_data_set: tuple[SubscriptionData, ...] = ()
    unit_mode: bool = False


@dataclass(frozen=True, slots=True)
class HeartbeatData(Body):
    """HEART_BEAT. A fingerprint other than 0 means version 2, where the broker may skip an unchanged heartbeat."""

    client_id: str = wire("clientID", "")
    producer_data_set: tuple[ProducerData, ...] = ()
    consumer_data_set: tuple[ConsumerData, ...] = ()
    heartbeat_fingerprint: int = 0
    without_sub: bool = False


@dataclass(frozen=True, slots=True)
class CheckClientRequestBody(Body):
    """CHECK_CLIENT_CONFIG asks whether this subscription is valid."""

    client_id: str = ""
    group: str = ""
    subscription_data: SubscriptionData | None = None
    namespace: str | None = None
