"""mqadmin's sub-commands about topics and the order of their queues."""

from __future__ import annotations

import contextlib
from typing import Any, Final

from aerobee.admin.topics import topic_header
from aerobee.cli.mqadmin.printed import double, in_map_order, millis_text, queue_order, table, topic_config
from aerobee.cli.mqadmin.tool import Tool, commands_of, cut, opts, row, sub_command
from aerobee.errors import AerobeeError, InvalidArgumentError
from aerobee.errors.codes import QueryNotFoundError
from aerobee.model.names import DLQ_PREFIX, RETRY_PREFIX
from aerobee.model.queue import MessageQueue
from aerobee.model.route import QueueData, TopicRouteData
from aerobee.model.topic import TopicConfig
from aerobee.protocol.bodies.groups import GroupList
from aerobee.protocol.bodies.offsets import TopicOffset, TopicStatsTable
from aerobee.protocol.codes import RequestCode
from aerobee.protocol.headers.base import decode_header
from aerobee.protocol.headers.kv import (
    DeleteKVConfigRequestHeader,
    GetKVConfigRequestHeader,
    GetKVConfigResponseHeader,
    PutKVConfigRequestHeader,
)
from aerobee.protocol.headers.route import DeleteTopicFromNamesrvRequestHeader
from aerobee.protocol.headers.topic import (
    DeleteTopicRequestHeader,
    GetTopicStatsInfoRequestHeader,
    QueryTopicConsumeByWhoRequestHeader,
)

ORDER_NAMESPACE: Final = "ORDER_TOPIC_CONFIG"


def attribute_changes(text: str) -> dict[str, str]:
    """Return the changes of `+a=b,-c`. RocketMQ: AttributeParser.parseToMap."""
    found: dict[str, str] = {}
    for word in text.split(",") if text else ():
        name, equals, value = word.partition("=")
        adds = name.startswith("+") and len(name) > 1 and bool(equals) and bool(value) and "=" not in value
        removes = name.startswith("-") and len(name) > 1 and not equals
        if not adds and not removes:
            raise InvalidArgumentError(f"attribute format is wrong: {word}", hint="write +name=value or -name")
        if name in found:
            raise InvalidArgumentError(f"key duplication: {name}")
        found[name] = value
    return found


async def put_topic(tool: Tool, address: str, config: TopicConfig) -> None:
    await tool.admin.ask(address, RequestCode.UPDATE_AND_CREATE_TOPIC, topic_header(config, config.attributes))


async def order_of(tool: Tool, topic: str) -> str | None:
    header = GetKVConfigRequestHeader(namespace=ORDER_NAMESPACE, key=topic)
    return decode_header(
        GetKVConfigResponseHeader, await tool.admin.ask_namesrv(RequestCode.GET_KV_CONFIG, header)
    ).value


async def put_order(tool: Tool, topic: str, value: str) -> None:
    header = PutKVConfigRequestHeader(namespace=ORDER_NAMESPACE, key=topic, value=value)
    await tool.admin.ask_namesrvs(RequestCode.PUT_KV_CONFIG, header)


@sub_command(
    "updateTopic",
    "Update or create topic.",
    *opts(
        "/b brokerAddr create topic to which broker",
        "/c clusterName create topic to which cluster",
        "a attributes attribute(+a=b,+c=d,-e)",
        "!t topic topic name",
        "r readQueueNums set read queue nums",
        "w writeQueueNums set write queue nums",
        "p perm set topic's permission(2|4|6), intro[2:W 4:R; 6:RW]",
        "o order set topic's order(true|false)",
        "u unit is unit topic (true|false)",
        "s hasUnitSub has unit sub (true|false)",
    ),
)
async def update_topic(tool: Tool) -> None:
    given = tool.given
    config = TopicConfig(
        given.text("t"),
        given.number("r", 8),
        given.number("w", 8),
        given.number("p", 6),
        topic_sys_flag=given.truth("u") | given.truth("s") << 1,
        order=given.truth("o"),
        attributes=attribute_changes(given.text("a")),
    )
    if given.has("b"):
        address = given.text("b")
        await put_topic(tool, address, config)
        if config.order:
            await _add_order(tool, config, await tool.broker_name_at(address))
        tool.line(f"create topic to {address} success.")
    else:
        cluster = given.text("c")
        for address in await tool.masters_of(cluster):
            await put_topic(tool, address, config)
            tool.line(f"create topic to {address} success.")
        if config.order:
            names = await tool.broker_names_of(cluster)
            order = ";".join(f"{name}:{config.write_queue_nums}" for name in names)
            await put_order(tool, config.topic_name, order)
            tool.line(f"set cluster orderConf. isOrder=true, orderConf=[{order}]")
    tool.line(topic_config(config))


async def _add_order(tool: Tool, config: TopicConfig, broker: str) -> None:
    """Set a broker's part of the order, and keep the others'. RocketMQ: createOrUpdateOrderConf."""
    before = ""
    with contextlib.suppress(QueryNotFoundError):
        before = await order_of(tool, config.topic_name) or ""
    parts = {part.split(":")[0]: part for part in before.split(";") if part}
    mine = parts[broker] = f"{broker}:{config.write_queue_nums}"
    await put_order(tool, config.topic_name, ";".join(parts[name] for name in in_map_order(parts)))
    tool.line(f"set broker orderConf. isOrder=true, orderConf=[{mine}]")


@sub_command(
    "updateTopicPerm",
    "Update topic perm.",
    *opts(
        "b brokerAddr create topic to which broker",
        "c clusterName create topic to which cluster",
        "!t topic topic name",
        "!p perm set topic's permission(2|4|6), intro[2:W; 4:R; 6:RW]",
    ),
)
async def update_topic_perm(tool: Tool) -> None:
    given = tool.given
    topic, perm = given.text("t"), given.number("p", 6)
    route = await tool.route(topic)
    queues = route.queue_datas[0]
    config = TopicConfig(
        topic, queues.read_queue_nums, queues.write_queue_nums, perm, topic_sys_flag=queues.topic_sys_flag
    )
    if given.has("b"):
        address = given.text("b")
        name = next((one.broker_name for one in route.broker_datas if one.master == address), None)
        if name is None:
            tool.fail("updateTopicPerm error broker not exit or broker is not master!.\n")
            return
        before = next((one.perm for one in route.queue_datas if one.broker_name == name), 0)
        if before == perm:
            tool.line("new perm equals to the old one!")
            return
        await put_topic(tool, address, config)
        tool.line(f"update topic perm from {before} to {perm} in {address} success.")
        tool.line(f"{topic_config(config)}.")
    elif given.has("c"):
        for address in await tool.masters_of(given.text("c")):
            await put_topic(tool, address, config)
            tool.line(f"update topic perm from {queues.perm} to {perm} in {address} success.")
    else:
        raise InvalidArgumentError("name a broker with -b or a cluster with -c")


@sub_command(
    "deleteTopic",
    "Delete topic from broker and NameServer.",
    *opts("!t topic topic name", "!c clusterName delete topic from which cluster"),
)
async def delete_topic(tool: Tool) -> None:
    await delete(tool, tool.given.text("t"), tool.given.text("c"), told=True)


async def delete(tool: Tool, topic: str, cluster: str, *, told: bool) -> None:
    """Delete a topic from the brokers of a cluster and from the name servers.

    Apache's tool goes on where the cluster is unknown, and says success twice. Here that is a failure.
    """
    masters = await tool.masters_of(cluster)
    if not masters:
        return
    for address in masters:
        await tool.admin.ask(address, RequestCode.DELETE_TOPIC_IN_BROKER, DeleteTopicRequestHeader(topic=topic))
    if told:
        tool.line(f"delete topic [{topic}] from cluster [{cluster}] success.")
    header = DeleteTopicFromNamesrvRequestHeader(topic=topic, cluster_name=cluster)
    await tool.admin.ask_namesrvs(RequestCode.DELETE_TOPIC_IN_NAMESRV, header)
    if told:
        tool.line(f"delete topic [{topic}] from NameServer success.")


async def groups_of(tool: Tool, topic: str) -> list[str]:
    """Return the groups of a topic, as its first broker tells them. RocketMQ: queryTopicConsumeByWho."""
    header = QueryTopicConsumeByWhoRequestHeader(topic=topic)
    for address in await tool.addresses(topic):
        body = (await tool.admin.ask(address, RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, header)).body
        return in_map_order(GroupList.decode(body).group_list)
    return []


@sub_command("topicList", "Fetch all topic list from name server.", *opts("+c clusterModel clusterModel"))
async def topic_list(tool: Tool) -> None:
    if not tool.given.has("c"):
        for topic in await tool.topics():
            tool.line(topic)
        return
    info = await tool.cluster_info()
    tool.line(row("%-20s  %-48s  %-48s", "#Cluster Name", "#Topic", "#Consumer Group"))
    for topic in await tool.topics():
        if topic.startswith((RETRY_PREFIX, DLQ_PREFIX)):
            continue
        cluster, groups = "", [""]
        with contextlib.suppress(AerobeeError):
            name = (await tool.route(topic)).broker_datas[0].broker_name
            held = (one for one in in_map_order(info.cluster_addr_table) if name in info.cluster_addr_table[one])
            cluster = next(held, "null")
            groups = await groups_of(tool, topic) or [""]
        for group in groups:
            tool.line(row("%-20s  %-64s  %-64s", cut(cluster, 20), cut(topic, 64), cut(group, 64)))


_ROUTE = "%-45s %-32s %-50s %-10s %-11s %-5s"


@sub_command(
    "topicRoute",
    "Examine topic route info.",
    *opts("!t topic topic name", "+l list Use list format to print data"),
)
async def topic_route(tool: Tool) -> None:
    route = await tool.route(tool.given.text("t"))
    if not tool.given.has("l"):
        tool.line(pretty(_shown_route(route)))
        return
    queues = {one.broker_name: one for one in route.queue_datas}
    tool.line(row(_ROUTE, "#ClusterName", "#BrokerName", "#BrokerAddrs", "#ReadQueue", "#WriteQueue", "#Perm"))
    reads = writes = 0
    for one in sorted(route.broker_datas, key=lambda data: data.broker_name):
        at = queues.get(one.broker_name, QueueData(one.broker_name, 0, 0, 0, 0))
        reads, writes = reads + at.read_queue_nums, writes + at.write_queue_nums
        addresses = table({str(number): address for number, address in one.broker_addrs.items()})
        tool.line(
            row(_ROUTE, one.cluster, one.broker_name, addresses, at.read_queue_nums, at.write_queue_nums, at.perm)
        )
    tool.line("-" * 158)
    tool.line(row(_ROUTE, "Total:", len(queues), "", reads, writes, ""))


def _shown_route(route: TopicRouteData) -> dict[str, Any]:
    return {name: value for name, value in sorted(route.to_json().items()) if value is not None}


def pretty(value: object, depth: int = 0) -> str:
    """Return JSON as fastjson2 writes it with PrettyFormat: tabs, integer keys without quotes."""
    inner, outer = "\t" * (depth + 1), "\t" * depth
    if isinstance(value, dict) and value:
        members = (
            f"{inner}{key if isinstance(key, int) else _quoted(str(key))}:{pretty(one, depth + 1)}"
            for key, one in value.items()
        )
        return "{\n" + ",\n".join(members) + f"\n{outer}}}"
    if isinstance(value, list | tuple) and value:
        return "[\n" + ",\n".join(inner + pretty(one, depth + 1) for one in value) + f"\n{outer}]"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return _quoted(value)
    return "{}" if isinstance(value, dict) else "[]" if isinstance(value, list | tuple) else str(value)


def _quoted(text: str) -> str:
    escapes = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\b": "\\b", "\f": "\\f"}
    return '"' + "".join(escapes.get(c, c if c >= " " else f"\\u{ord(c):04x}") for c in text) + '"'


@sub_command(
    "topicStatus",
    "Examine topic Status info.",
    *opts(
        "!t topic topic name",
        "c cluster cluster name or lmq parent topic, lmq is used to find the route.",
    ),
)
async def topic_status(tool: Tool) -> None:
    topic = tool.given.text("t")
    header = GetTopicStatsInfoRequestHeader(topic=topic)
    found: dict[MessageQueue, TopicOffset] = {}
    # Apache's tool adds up the offsets of the brokers, and leaves the rate of the sum at 0.
    for address in await tool.addresses(tool.given.text("c", topic)):
        body = (await tool.admin.ask(address, RequestCode.GET_TOPIC_STATS_INFO, header)).body
        found |= TopicStatsTable.decode(body).offset_table
    if not found and not tool.given.has("c"):
        raise InvalidArgumentError("Not found the topic stats info")
    tool.line(
        row("%-32s  %-4s  %-20s  %-20s    %s", "#Broker Name", "#QID", "#Min Offset", "#Max Offset", "#Last Updated")
    )
    for queue in sorted(found, key=queue_order):
        at = found[queue]
        when = millis_text(at.last_update_timestamp) if at.last_update_timestamp > 0 else ""
        tool.line(
            row("%-32s  %-4d  %-20d  %-20d    %s", cut(queue.broker_name, 32), queue.queue_id, at.min_offset,
                at.max_offset, when)
        )  # fmt: skip
    tool.line()
    tool.line(f"Topic Put TPS: {double(0.0)}")


@sub_command("topicClusterList", "Get cluster info for topic.", *opts("!t topic topic name"))
async def topic_cluster_list(tool: Tool) -> None:
    info = await tool.cluster_info()
    name = (await tool.route(tool.given.text("t"))).broker_datas[0].broker_name
    for cluster in in_map_order([one for one, names in info.cluster_addr_table.items() if name in names]):
        tool.line(cluster)


@sub_command(
    "updateOrderConf",
    "Create or update or delete order conf.",
    *opts(
        "!t topic topic name",
        "v orderConf set order conf [eg. brokerName1:num;brokerName2:num]",
        "!m method option type [eg. put|get|delete",
    ),
)
async def update_order_conf(tool: Tool) -> None:
    topic, method, value = tool.given.text("t"), tool.given.text("m"), tool.given.text("v")
    if method == "get":
        tool.say(f"get orderConf success. topic=[{topic}], orderConf=[{await order_of(tool, topic)}] ")
    elif method == "put":
        if not value:
            raise InvalidArgumentError("please set orderConf with option -v.")
        await put_order(tool, topic, value)
        tool.say(f"update orderConf success. topic=[{topic}], orderConf=[{value}]")
    elif method == "delete":
        header = DeleteKVConfigRequestHeader(namespace=ORDER_NAMESPACE, key=topic)
        await tool.admin.ask_namesrvs(RequestCode.DELETE_KV_CONFIG, header)
        tool.say(f"delete orderConf success. topic=[{topic}]")
    else:
        raise InvalidArgumentError(f"-m {method} is none of put, get and delete")


COMMANDS: Final = commands_of(
    update_topic,
    update_topic_perm,
    delete_topic,
    topic_list,
    topic_route,
    topic_status,
    topic_cluster_list,
    update_order_conf,
)
