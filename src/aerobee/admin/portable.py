"""Topics and groups as one JSON document, to set up another cluster like this one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from aerobee.admin.connection import AWAY_HINT, AdminConnection, KnownBroker
from aerobee.admin.groups import is_system_group
from aerobee.admin.topics import kind_of, topic_header
from aerobee.admin.upkeep import kv_list, kv_put
from aerobee.admin.values import Value
from aerobee.errors import InvalidArgumentError, TransportError
from aerobee.model.dialect import dumps
from aerobee.model.fields import list_of, map_of, texts_of
from aerobee.model.group import SubscriptionGroupConfig
from aerobee.model.names import require_group, require_topic
from aerobee.model.topic import GENERATION, TopicConfig
from aerobee.protocol.bodies.groups import SubscriptionGroupWrapper
from aerobee.protocol.bodies.topics import TopicConfigSerializeWrapper
from aerobee.protocol.codes import RequestCode

FORMAT: Final = 1
ORDER_NAMESPACE: Final = "ORDER_TOPIC_CONFIG"


async def _tables(
    admin: AdminConnection, broker: KnownBroker
) -> tuple[dict[str, TopicConfig], dict[str, SubscriptionGroupConfig]]:
    topics = (await admin.ask(broker.address, RequestCode.GET_ALL_TOPIC_CONFIG)).body
    groups = (await admin.ask(broker.address, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)).body
    return (
        {
            name: plain(config)
            for name, config in TopicConfigSerializeWrapper.decode(topics).topic_config_table.items()
            if kind_of(name) == "normal"
        },
        {
            name: config
            for name, config in SubscriptionGroupWrapper.decode(groups).subscription_group_table.items()
            if not is_system_group(name)
        },
    )


def plain(config: TopicConfig) -> TopicConfig:
    """Return a topic without the mark of its generation, which belongs to one store."""
    return replace(config, attributes={name: one for name, one in config.attributes.items() if name != GENERATION})


async def export_cluster(admin: AdminConnection, *, cluster: str | None = None) -> dict[str, Any]:
    """Return the topics, groups and order settings of a cluster. Equal settings of several brokers are one entry."""
    away = await admin.away(cluster=cluster)
    if away:
        raise TransportError(f"the export would not be complete: {'; '.join(away)}", hint=AWAY_HINT)
    topics: dict[bytes, dict[str, Any]] = {}
    groups: dict[bytes, dict[str, Any]] = {}
    names = {one.name for one in await admin.brokers()}
    clusters = {one.cluster for one in await admin.brokers()}
    for broker in await admin.masters(cluster=cluster):
        held, known = await _tables(admin, broker)
        for name, config in held.items():
            # Brokers and clusters have topics of their own names.
            if name not in names | clusters:
                _add(topics, config.to_json(), broker.name)
        for group in known.values():
            _add(groups, group.to_json(), broker.name)
    return {
        "format": FORMAT,
        "topics": sorted(topics.values(), key=lambda one: str(one["topicName"])),
        "groups": sorted(groups.values(), key=lambda one: str(one["groupName"])),
        "order": await kv_list(admin, ORDER_NAMESPACE),
    }


def _add(found: dict[bytes, dict[str, Any]], config: dict[str, Any], broker: str) -> None:
    entry = found.setdefault(dumps(config), {**config, "brokers": []})
    entry["brokers"].append(broker)


@dataclass(frozen=True, slots=True)
class ImportPlan(Value):
    """What an import does: names of topics and groups with their brokers. `same` counts what is there already."""

    topics: tuple[str, ...]
    groups: tuple[str, ...]
    order: tuple[str, ...]
    same: int


class Import:
    """A document that was read, and what of it differs from a cluster."""

    def __init__(self, admin: AdminConnection, document: Mapping[str, Any]) -> None:
        if document.get("format") != FORMAT:
            raise InvalidArgumentError(f"the file is no export of this version (format {document.get('format')!r})")
        self._admin = admin
        self._topics = [_topic(entry) for entry in list_of(document, "topics")]
        self._groups = [_group(entry) for entry in list_of(document, "groups")]
        self._order = texts_of(document, "order")
        self._todo: list[tuple[KnownBroker, TopicConfig | SubscriptionGroupConfig]] = []

    async def plan(self, *, cluster: str | None = None) -> ImportPlan:
        """Find out what would change. Entries go to the brokers of their names, or to all where none is here."""
        masters = await self._admin.masters(cluster=cluster)
        held = {one.name: await _tables(self._admin, one) for one in masters}
        self._todo, same = [], 0
        for topic, brokers in self._topics:
            for one in [master for master in masters if master.name in brokers] or masters:
                same += self._compare(one, topic, held[one.name][0].get(topic.topic_name))
        for group, brokers in self._groups:
            for one in [master for master in masters if master.name in brokers] or masters:
                same += self._compare(one, group, held[one.name][1].get(group.group_name))
        before = await kv_list(self._admin, ORDER_NAMESPACE)
        self._order = {name: value for name, value in self._order.items() if before.get(name) != value}
        return ImportPlan(
            tuple(f"{c.topic_name} on {one.name}" for one, c in self._todo if isinstance(c, TopicConfig)),
            tuple(f"{c.group_name} on {one.name}" for one, c in self._todo if isinstance(c, SubscriptionGroupConfig)),
            tuple(sorted(self._order)),
            same,
        )

    def _compare(
        self,
        broker: KnownBroker,
        wanted: TopicConfig | SubscriptionGroupConfig,
        known: TopicConfig | SubscriptionGroupConfig | None,
    ) -> bool:
        is_there = known is not None and known.to_json() == wanted.to_json()
        if not is_there:
            self._todo.append((broker, wanted))
        return is_there

    async def carry_out(self) -> None:
        """Create and change what the plan told. What is in the cluster and not in the document stays."""
        for broker, config in self._todo:
            if isinstance(config, TopicConfig):
                adding = {f"+{name}": value for name, value in config.attributes.items()}
                await self._admin.ask(broker.address, RequestCode.UPDATE_AND_CREATE_TOPIC, topic_header(config, adding))
            else:
                added = {f"+{name}": value for name, value in config.attributes.items()}
                body = dumps(replace(config, attributes=added).to_json())
                await self._admin.ask(broker.address, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=body)
        for name, value in self._order.items():
            await kv_put(self._admin, ORDER_NAMESPACE, name, value)


def _brokers(entry: object) -> tuple[dict[Any, Any], set[str]]:
    data = map_of({"entry": entry}, "entry")
    return data, {str(one) for one in list_of(data, "brokers")}


def _topic(entry: object) -> tuple[TopicConfig, set[str]]:
    data, brokers = _brokers(entry)
    config = plain(TopicConfig.from_json(data))
    require_topic(config.topic_name)
    return config, brokers


def _group(entry: object) -> tuple[SubscriptionGroupConfig, set[str]]:
    data, brokers = _brokers(entry)
    config = SubscriptionGroupConfig.from_json(data)
    require_group(config.group_name)
    return config, brokers
