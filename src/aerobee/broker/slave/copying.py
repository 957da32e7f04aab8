"""Reading a master's tables over the wire. An answer is whole or it is an error: nothing is deleted by half of one.

Apache pages topics and groups since 5.5, and its own slave loses the last one where a page boundary falls before it.
RocketMQ: SlaveSynchronize, BrokerOuterAPI.getAllTopicConfig.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from aerobee.errors import RemoteProtocolError
from aerobee.model.dataversion import DataVersion
from aerobee.model.dialect import dumps, loads_object
from aerobee.model.group import SubscriptionGroupConfig
from aerobee.model.numbers import int_or
from aerobee.model.topic import TopicConfig
from aerobee.net.client import RemotingClient
from aerobee.protocol.bodies.groups import SubscriptionGroupWrapper
from aerobee.protocol.bodies.topics import TopicConfigAndMappingSerializeWrapper
from aerobee.protocol.codes import RequestCode
from aerobee.protocol.command import Command, request
from aerobee.protocol.headers.group import GetAllSubscriptionGroupRequestHeader
from aerobee.protocol.headers.topic import GetAllTopicConfigRequestHeader

_PAGE: Final = 2000
# A table that changes while it is read is read again, so often at most.
_READS_MAX: Final = 5
_PAGES_MAX: Final = 1000
_TIMEOUT_S: Final = 30.0

T = TypeVar("T")
# (entries of the page, version of the table)
Page = tuple[dict[str, T], DataVersion]


@dataclass(frozen=True, slots=True)
class MasterTables:
    """What a master's tables held. `delays`, `offsets` and `modes` are Apache's objects."""

    topics: dict[str, TopicConfig]
    topics_version: DataVersion
    groups: dict[str, SubscriptionGroupConfig]
    groups_version: DataVersion
    forbidden: dict[str, dict[str, int]]
    offsets: dict[Any, Any]
    delays: dict[Any, Any]
    modes: dict[Any, Any]


async def read_master(client: RemotingClient, address: str) -> MasterTables:
    """Return every table of the broker at `address`. Raise AerobeeError where one of them cannot be read whole."""

    async def ask(code: int, header: Any = None) -> Command:
        command = request(code, header, opaque=client.next_opaque())
        return await client.ask(address, command, timeout_s=_TIMEOUT_S)

    async def topic_page(first: int, seen: str) -> tuple[Page[TopicConfig], int | None]:
        header = GetAllTopicConfigRequestHeader(topic_seq=first, max_topic_num=_PAGE, data_version=seen)
        answer = await ask(RequestCode.GET_ALL_TOPIC_CONFIG, header)
        body = TopicConfigAndMappingSerializeWrapper.decode(answer.body)
        return (body.topic_config_table, body.data_version), _total(answer, "totalTopicNum")

    forbidden: dict[str, dict[str, int]] = {}

    async def group_page(first: int, seen: str) -> tuple[Page[SubscriptionGroupConfig], int | None]:
        header = GetAllSubscriptionGroupRequestHeader(group_seq=first, max_group_num=_PAGE, data_version=seen)
        answer = await ask(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, header)
        body = SubscriptionGroupWrapper.decode(answer.body)
        forbidden.update(body.forbidden_table)
        return (body.subscription_group_table, body.data_version), _total(answer, "totalGroupNum")

    topics, topics_version = await _whole(topic_page)
    offsets = loads_object((await ask(RequestCode.GET_ALL_CONSUMER_OFFSET)).body)
    delays = loads_object((await ask(RequestCode.GET_ALL_DELAY_OFFSET)).body)
    groups, groups_version = await _whole(group_page)
    modes = loads_object((await ask(RequestCode.GET_ALL_MESSAGE_REQUEST_MODE)).body)
    return MasterTables(topics, topics_version, groups, groups_version, forbidden, offsets, delays, modes)


def _total(answer: Command, key: str) -> int | None:
    """Return how many entries the table has, None where the master is too old to page."""
    text = answer.ext.get(key)
    return None if text is None else int_or(text, -1, 0)


async def _whole(page_of: Callable[[int, str], Awaitable[tuple[Page[T], int | None]]]) -> Page[T]:
    """Return a table of which every page was read at one version."""
    for _ in range(_READS_MAX):
        found: dict[str, T] = {}
        version: DataVersion | None = None
        for _ in range(_PAGES_MAX):
            seen = "" if version is None else dumps(version.to_json()).decode()
            (entries, now), total = await page_of(len(found), seen)
            if version is not None and now != version:
                break
            version = now
            count = len(found)
            found.update(entries)
            if total is None or len(found) == total:
                return found, version
            if len(found) == count:
                break
    raise RemoteProtocolError("the master's tables change faster than they can be read, or its answers are not whole")
