"""Lite topics: subscriptions and their statistics."""

from __future__ import annotations

from dataclasses import dataclass, field

from aerobee.protocol.bodies.base import Body, wire
from aerobee.protocol.bodies.offsets import OffsetWrapper, TopicOffset


@dataclass(frozen=True, slots=True)
class OffsetOption(Body):
    """Where a lite subscription starts."""

    type: str | None = None
    value: int = 0


@dataclass(frozen=True, slots=True)
class LiteSubscriptionDTO(Body):
    """A change of a client's lite subscriptions."""

    action: str | None = None
    client_id: str = ""
    group: str = ""
    topic: str = ""
    lite_topic_set: tuple[str, ...] | None = None
    offset_option: OffsetOption | None = None
    version: int = 0


@dataclass(frozen=True, slots=True)
class LiteSubscriptionCtlRequestBody(Body):
    """LITE_SUBSCRIPTION_CTL."""

    subscription_set: tuple[LiteSubscriptionDTO, ...] = ()


@dataclass(frozen=True, slots=True)
class LiteLagInfo(Body):
    """How far behind one lite topic is."""

    lite_topic: str = ""
    lag_count: int = 0
    earliest_unconsumed_timestamp: int = -1


@dataclass(frozen=True, slots=True)
class ClientGroup(Body):
    """A client of a group."""

    client_id: str = ""
    group: str = ""


@dataclass(frozen=True, slots=True)
class GetBrokerLiteInfoResponseBody(Body):
    """GET_BROKER_LITE_INFO."""

    store_type: str | None = None
    max_lmq_num: int = 0
    current_lmq_num: int = 0
    lite_subscription_count: int = 0
    order_info_count: int = 0
    cq_table_size: int = 0
    offset_table_size: int = 0
    event_map_size: int = 0
    topic_meta: dict[str, int] = field(default_factory=dict)
    group_meta: dict[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class GetParentTopicInfoResponseBody(Body):
    """GET_PARENT_TOPIC_INFO."""

    topic: str = ""
    ttl: int = 0
    groups: tuple[str, ...] = ()
    lmq_num: int = 0
    lite_topic_count: int = 0


@dataclass(frozen=True, slots=True)
class GetLiteTopicInfoResponseBody(Body):
    """GET_LITE_TOPIC_INFO."""

    parent_topic: str = ""
    lite_topic: str = ""
    subscriber: tuple[ClientGroup, ...] = ()
    topic_offset: TopicOffset | None = None
    sharding_to_broker: bool = False


@dataclass(frozen=True, slots=True)
class GetLiteClientInfoResponseBody(Body):
    """GET_LITE_CLIENT_INFO."""

    parent_topic: str = ""
    group: str = ""
    client_id: str = ""
    last_access_time: int = 0
    last_consume_time: int = 0
    lite_topic_count: int = 0
    lite_topic_set: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class GetLiteGroupInfoResponseBody(Body):
    """GET_LITE_GROUP_INFO."""

    group: str = ""
    parent_topic: str = ""
    lite_topic: str = ""
    earliest_unconsumed_timestamp: int = -1
    total_lag_count: int = 0
    lite_topic_offset_wrapper: OffsetWrapper | None = None
    lag_count_top_k: tuple[LiteLagInfo, ...] = wire("lagCountTopK", ())
    lag_timestamp_top_k: tuple[LiteLagInfo, ...] = wire("lagTimestampTopK", ())
