"""mqadmin's sub-commands about consumer groups, producers and their progress."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import PurePosixPath
from typing import Final

from aerobee.cli.mqadmin.printed import (
    compact_text,
    group_config,
    group_fields,
    in_map_order,
    queue_order,
    queue_text,
    rounded,
    seconds_text,
    truth,
)
from aerobee.cli.mqadmin.tool import Tool, commands_of, cut, opts, row, sub_command
from aerobee.cli.mqadmin.topics import attribute_changes, delete
from aerobee.errors import AerobeeError, BrokerError, InvalidArgumentError
from aerobee.errors.codes import TopicNotExistError, error_for
from aerobee.model.dialect import dumps, loads_object
from aerobee.model.group import RetryPolicy, SubscriptionGroupConfig
from aerobee.model.names import DLQ_PREFIX, RETRY_PREFIX, pop_retry_topic, retry_topic
from aerobee.model.numbers import int_or
from aerobee.model.queue import MessageQueue
from aerobee.protocol.bodies.groups import ProducerConnection, ProducerTableInfo, SubscriptionGroupWrapper
from aerobee.protocol.bodies.heartbeat import BROADCASTING, CONSUME_ACTIVELY, CONSUME_PASSIVELY
from aerobee.protocol.bodies.offsets import ConsumeStats, ConsumeStatsList, OffsetWrapper
from aerobee.protocol.bodies.running import ConsumerRunningInfo, ProcessQueueInfo
from aerobee.protocol.codes import RequestCode, ResponseCode
from aerobee.protocol.headers.group import (
    DeleteSubscriptionGroupRequestHeader,
    GetAllProducerInfoRequestHeader,
    GetConsumerRunningInfoRequestHeader,
    GetConsumeStatsInBrokerHeader,
    GetConsumeStatsRequestHeader,
    GetProducerConnectionListRequestHeader,
)
from aerobee.protocol.javaorder import properties_order
from aerobee.protocol.versions import version_name
from aerobee.runtime.clock import SystemClock
from aerobee.runtime.smallfile import write_text


async def examine(tool: Tool, group: str, topic: str | None = None) -> ConsumeStats:
    """Return the progress of a group over the brokers of its retry topic. RocketMQ: examineConsumeStats."""
    addresses: list[str] = []
    routed_by = [retry_topic(group)] if topic is None else [retry_topic(group), topic, pop_retry_topic(topic, group)]
    for index, name in enumerate(routed_by):
        try:
            addresses = await tool.addresses(name)
            break
        except TopicNotExistError:
            if index == len(routed_by) - 1:
                raise
    header = GetConsumeStatsRequestHeader(consumer_group=group, topic=topic)
    table: dict[MessageQueue, OffsetWrapper] = {}
    rate = 0.0
    for address in addresses:
        stats = ConsumeStats.decode((await tool.admin.ask(address, RequestCode.GET_CONSUME_STATS, header)).body)
        table |= stats.offset_table
        rate += stats.consume_tps
    if not table:
        why = "Not found the consumer group consume stats, because return offset table is empty, "
        try:
            found = await tool.connection(group)
        except BrokerError:
            raise error_for(
                ResponseCode.CONSUMER_NOT_ONLINE, why + "maybe the consumer not online", "the cluster"
            ) from None
        if found.message_model == BROADCASTING:
            raise error_for(
                ResponseCode.BROADCAST_CONSUMPTION, why + "the consumer is under the broadcast mode", "the cluster"
            )
    return ConsumeStats(table, rate)


async def running_info(tool: Tool, group: str, client_id: str, *, stack: bool = False) -> ConsumerRunningInfo:
    """Return what a connected consumer tells about itself. RocketMQ: getConsumerRunningInfo."""
    header = GetConsumerRunningInfoRequestHeader(consumer_group=group, client_id=client_id, jstack_enable=stack)
    address = (await tool.addresses(retry_topic(group)))[0]
    answer = await tool.admin.ask(address, RequestCode.GET_CONSUMER_RUNNING_INFO, header)
    return ConsumerRunningInfo.decode(answer.body)


def in_queue_order(table: dict[MessageQueue, OffsetWrapper]) -> list[MessageQueue]:
    return sorted(table, key=queue_order)


# -- settings


@sub_command(
    "updateSubGroup",
    "Update or create subscription group.",
    *opts(
        "b brokerAddr create subscription group to which broker",
        "c clusterName create subscription group to which cluster",
        "!g groupName consumer group name",
        "s consumeEnable consume enable",
        "m consumeFromMinEnable from min offset",
        "d consumeBroadcastEnable broadcast",
        "o consumeMessageOrderly consume message orderly",
        "q retryQueueNums retry queue nums",
        "r retryMaxTimes retry max times",
        "p groupRetryPolicy the json string of retry policy",
        "i brokerId consumer from which broker id",
        "w whichBrokerWhenConsumeSlowly which broker id when consume slowly",
        "a notifyConsumerIdsChanged notify consumerId changed",
        "- attributes attribute(+a=b,+c=d,-e)",
    ),
)
async def update_sub_group(tool: Tool) -> None:
    given = tool.given
    config = SubscriptionGroupConfig(
        given.text("g"),
        consume_enable=given.truth("s", True),
        consume_from_min_enable=given.truth("m"),
        consume_broadcast_enable=given.truth("d"),
        consume_message_orderly=given.truth("o"),
        retry_queue_nums=given.number("q", 1),
        retry_max_times=given.number("r", 16),
        broker_id=given.number("i", 0),
        which_broker_when_consume_slowly=given.number("w", 1),
        notify_consumer_ids_changed_enable=given.truth("a", True),
        attributes=attribute_changes(given.text("attributes")),
    )
    if given.has("p"):
        policy = RetryPolicy.from_json(loads_object(given.text("p").encode()))
        config = replace(config, group_retry_policy=policy)
    if given.has("b"):
        addresses = [given.text("b")]
    elif given.has("c"):
        addresses = await tool.masters_of(given.text("c"))
    else:
        raise InvalidArgumentError("name a broker with -b or a cluster with -c")
    for address in addresses:
        try:
            body = dumps(config.to_json())
            await tool.admin.ask(address, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=body)
        except AerobeeError as error:
            if given.has("b"):
                raise
            tool.went_wrong(error)
            continue
        tool.line(f"create subscription group to {address} success.")
    tool.say(group_config(config))


@sub_command(
    "deleteSubGroup",
    "Delete subscription group from broker.",
    *opts(
        "b brokerAddr delete subscription group from which broker",
        "c clusterName delete subscription group from which cluster",
        "!g groupName subscription group name",
        "r removeOffset remove offset",
    ),
)
async def delete_sub_group(tool: Tool) -> None:
    given = tool.given
    group = given.text("g")
    header = DeleteSubscriptionGroupRequestHeader(group_name=group, clean_offset=given.truth("r"))
    if given.has("b"):
        address = given.text("b")
        await tool.admin.ask(address, RequestCode.DELETE_SUBSCRIPTIONGROUP, header)
        tool.line(f"delete subscription group [{group}] from broker [{address}] success.")
    elif given.has("c"):
        cluster = given.text("c")
        for address in await tool.masters_of(cluster):
            await tool.admin.ask(address, RequestCode.DELETE_SUBSCRIPTIONGROUP, header)
            tool.line(f"delete subscription group [{group}] from broker [{address}] in cluster [{cluster}] success.")
        if not tool.failed:
            for topic in (RETRY_PREFIX + group, DLQ_PREFIX + group):
                await delete(tool, topic, cluster, told=False)
    else:
        raise InvalidArgumentError("name a broker with -b or a cluster with -c")


@sub_command(
    "getConsumerConfig",
    "Get consumer config by subscription group name.",
    *opts("!g groupName subscription group name"),
)
async def get_consumer_config(tool: Tool) -> None:
    info = await tool.cluster_info()
    group = tool.given.text("g")
    for name in in_map_order(info.broker_addr_table):
        address = info.broker_addr_table[name].address()
        if address is None:
            continue
        body = (await tool.admin.ask(address, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)).body
        config = SubscriptionGroupWrapper.decode(body).subscription_group_table.get(group)
        if config is None:
            continue
        cluster = next((one for one, names in info.cluster_addr_table.items() if name in names), "null")
        tool.line(f"============================={cluster}:{name}=============================")
        for field, value in group_fields(config):
            tool.line(row("%-40s=  %s", field, "" if value == "null" else value))


# -- progress


@sub_command(
    "consumerProgress",
    "Query consumer's progress, speed.",
    *opts(
        "g groupName consumer group name",
        "t topicName topic name",
        "s showClientIP Show Client IP per Queue",
        "c cluster Cluster name or lmq parent topic, lmq is used to find the route.",
    ),
)
async def consumer_progress(tool: Tool) -> None:
    if tool.given.has("g"):
        await _progress_of(tool, tool.given.text("g"))
    else:
        await _progress_of_all(tool)


async def _progress_of(tool: Tool, group: str) -> None:
    stats = await examine(tool, group, tool.given.text("t") or None)
    shown = tool.given.truth("s")
    owners = await _owners(tool, group) if shown else {}
    head = ["#Topic", "#Broker Name", "#QID", "#Broker Offset", "#Consumer Offset"]
    tool.line(
        row(
            "%-64s  %-32s  %-4s  %-20s  %-20s  %-20s %-20s %-20s%s",
            *head,
            "#Client IP",
            "#Diff",
            "#Inflight",
            "#LastTime",
        )
        if shown
        else row("%-64s  %-32s  %-4s  %-20s  %-20s  %-20s %-20s%s", *head, "#Diff", "#Inflight", "#LastTime")
    )
    diff_total = inflight_total = 0
    for queue in in_queue_order(stats.offset_table):
        at = stats.offset_table[queue]
        diff, inflight = at.broker_offset - at.consumer_offset, at.pull_offset - at.consumer_offset
        diff_total, inflight_total = diff_total + diff, inflight_total + inflight
        when = seconds_text(at.last_timestamp) if at.last_timestamp else "N/A"
        start = (cut(queue.topic, 64), cut(queue.broker_name, 32), queue.queue_id, at.broker_offset, at.consumer_offset)
        tool.line(
            row(
                "%-64s  %-32s  %-4d  %-20d  %-20d  %-20s %-20d %-20d %s",
                *start,
                owners.get(queue, "N/A"),
                diff,
                inflight,
                when,
            )
            if shown
            else row("%-64s  %-32s  %-4d  %-20d  %-20d  %-20d %-20d %s", *start, diff, inflight, when)
        )
    tool.line()
    tool.line(f"Consume TPS: {rounded(stats.consume_tps, 2)}")
    tool.line(f"Consume Diff Total: {diff_total}")
    tool.line(f"Consume Inflight Total: {inflight_total}")


async def _owners(tool: Tool, group: str) -> dict[MessageQueue, str]:
    found: dict[MessageQueue, str] = {}
    try:
        for one in (await tool.connection(group)).connection_set:
            info = await running_info(tool, group, one.client_id)
            found |= dict.fromkeys(info.mq_table, one.client_id.split("@")[0])
    except BrokerError:
        pass
    return found


async def _progress_of_all(tool: Tool) -> None:
    layout = "%-64s  %-6s  %-24s %-5s  %-14s  %-7s  %s"
    tool.line(row(layout, "#Group", "#Count", "#Version", "#Type", "#Model", "#TPS", "#Diff Total"))
    for topic in await tool.topics():
        if not topic.startswith(RETRY_PREFIX):
            continue
        group = _group_of(topic)
        rate = diff = count = 0
        version, kind, model = "OFFLINE", "", ""
        try:
            stats = await examine(tool, group)
            rate, diff = math.trunc(stats.consume_tps), stats.diff_total
        except BrokerError:
            pass
        try:
            found = await tool.connection(group)
            count = len(found.connection_set)
            version = version_name(min(one.version for one in found.connection_set))
            kind = "PULL" if found.consume_type == CONSUME_ACTIVELY else "PUSH"
            model = str(found.message_model) if found.consume_type == CONSUME_PASSIVELY else ""
        except BrokerError:
            pass
        tool.line(
            row("%-64s  %-6d  %-24s %-5s  %-14s  %-7d  %d", cut(group, 64), count, version, kind, model, rate, diff)
        )


def _group_of(topic: str) -> str:
    """Return the group of a retry topic, also of POP's. RocketMQ: KeyBuilder.parseGroup."""
    rest = topic.removeprefix(RETRY_PREFIX)
    return rest.partition("+")[0]


@sub_command(
    "brokerConsumeStats",
    "Fetch broker consume stats data.",
    *opts(
        "!b brokerAddr Broker address",
        "t timeoutMillis request timeout Millis",
        "l level threshold of print diff",
        "o order order topic",
    ),
)
async def broker_consume_stats(tool: Tool) -> None:
    header = GetConsumeStatsInBrokerHeader(is_order=tool.given.truth("o"))
    level = tool.given.number("l", 0)
    answer = await tool.admin.ask(tool.given.text("b"), RequestCode.GET_BROKER_CONSUME_STATS, header)
    found = ConsumeStatsList.decode(answer.body)
    layout = "%-64s  %-64s  %-32s  %-4s  %-20s  %-20s  %-20s  %s"
    tool.line(
        row(
            layout,
            "#Topic",
            "#Group",
            "#Broker Name",
            "#QID",
            "#Broker Offset",
            "#Consumer Offset",
            "#Diff",
            "#LastTime",
        )
    )
    for tables in found.consume_stats_list:
        for group in in_map_order(tables):
            for stats in tables[group]:
                for queue in in_queue_order(stats.offset_table):
                    at = stats.offset_table[queue]
                    diff = at.broker_offset - at.consumer_offset
                    if diff >= level and at.last_timestamp > 0:
                        tool.line(
                            row(layout, cut(queue.topic, 64), group, cut(queue.broker_name, 32), queue.queue_id,
                                at.broker_offset, at.consumer_offset, diff, seconds_text(at.last_timestamp))
                        )  # fmt: skip
    tool.line()
    tool.line(f"Diff Total: {found.total_diff}")


# -- clients


@sub_command(
    "consumerConnection",
    "Query consumer's socket connection, client version and subscription.",
    *opts("!g consumerGroup consumer group name", "b brokerAddr broker address"),
)
async def consumer_connection(tool: Tool) -> None:
    found = await tool.connection(tool.given.text("g"), tool.given.text("b") or None)
    layout = "%-36s %-22s %-10s %s"
    tool.line(row(layout, "#ClientId", "#ClientAddr", "#Language", "#Version"))
    for one in found.connection_set:
        tool.line(row(layout, one.client_id, one.client_addr, one.language, version_name(one.version)))
    tool.line("\nBelow is subscription:")
    tool.line(row("%-20s %s", "#Topic", "#SubExpression"))
    for topic in properties_order(list(found.subscription_table)):
        data = found.subscription_table[topic]
        tool.line(row("%-20s %s", data.topic, data.sub_string))
    tool.line()
    tool.line(f"ConsumeType: {found.consume_type}")
    tool.line(f"MessageModel: {found.message_model}")
    tool.line(f"ConsumeFromWhere: {found.consume_from_where}")


@sub_command(
    "producerConnection",
    "Query producer's socket connection and client version.",
    *opts("!g producerGroup producer group name", "!t topic topic name"),
)
async def producer_connection(tool: Tool) -> None:
    header = GetProducerConnectionListRequestHeader(producer_group=tool.given.text("g"))
    address = (await tool.addresses(tool.given.text("t")))[0]
    answer = await tool.admin.ask(address, RequestCode.GET_PRODUCER_CONNECTION_LIST, header)
    found = ProducerConnection.decode(answer.body).connection_set
    if not found:
        raise InvalidArgumentError("Not found the producer group connection")
    for number, one in enumerate(found, 1):
        tool.line(
            row(
                "%04d  %-32s %-22s %-8s %s",
                number,
                one.client_id,
                one.client_addr,
                one.language,
                version_name(one.version),
            )
        )


@sub_command("producer", "Query producer's instances, connection, status, etc.", *opts("!b broker broker address"))
async def producer(tool: Tool) -> None:
    answer = await tool.admin.ask(
        tool.given.text("b"), RequestCode.GET_ALL_PRODUCER_INFO, GetAllProducerInfoRequestHeader()
    )
    data = ProducerTableInfo.decode(answer.body).data
    for group in in_map_order(data):
        if not data[group]:
            tool.line(f"producer group ({group}) instances are empty")
        for one in data[group]:
            tool.line(
                f"producer group ({group}) instance : clientId={one.client_id},remoteIP={one.remote_ip}, "
                f"language={one.language}, version={one.version}, lastUpdateTimestamp={one.last_update_timestamp}"
            )


# -- one consumer


@sub_command(
    "consumerStatus",
    "Query consumer's internal data structure.",
    *opts(
        "!g consumerGroup consumer group name",
        "i clientId The consumer's client id",
        "b brokerAddr broker address",
        "+s jstack Run jstack command in the consumer progress",
    ),
)
async def consumer_status(tool: Tool) -> None:
    given = tool.given
    group, stack = given.text("g"), given.has("s")
    found = await tool.connection(group, given.text("b") or None)
    if given.has("i"):
        tool.say(running_text(await running_info(tool, group, given.text("i"), stack=stack)))
        return
    now = SystemClock().now_ms()
    layout = "%-10s %-40s %-20s %s"
    tool.line(row(layout, "#Index", "#ClientId", "#Version", "#ConsumerRunningInfoFile"))
    infos: dict[str, ConsumerRunningInfo] = {}
    for one in found.connection_set:
        try:
            info = await running_info(tool, group, one.client_id, stack=stack)
        except AerobeeError as error:
            tool.went_wrong(error)
            continue
        infos[one.client_id] = info
        # The client id came over the wire: it must not lead out of the directory.
        path = f"{now}/{PurePosixPath(one.client_id.replace(chr(0), '')).name or 'client'}"
        write_text(path, running_text(info))
        tool.line(row(layout, len(infos), one.client_id, version_name(one.version), path))
    if not infos:
        return
    if not _subscribe_alike(infos, now):
        tool.say("\n\nWARN: Different subscription in the same group of consumer!!!")
        return
    tool.say("\n\nSame subscription in the same group of consumer")
    tool.say("\n\nRebalance OK\n")
    for client_id in sorted(infos):
        tool.say(_queue_troubles(client_id, infos[client_id], now))


def _subscribe_alike(infos: dict[str, ConsumerRunningInfo], now: int) -> bool:
    """Return whether the members have equal subscriptions. RocketMQ: ConsumerRunningInfo.analyzeSubscription."""
    first = infos[min(infos)].properties
    started = int_or(first.get("PROP_CONSUMER_START_TIMESTAMP"), now)
    if first.get("PROP_CONSUME_TYPE") != CONSUME_PASSIVELY or now - started <= 120_000:
        return True
    kinds = {
        frozenset((one.topic, one.sub_string, one.expression_type) for one in info.subscription_set)
        for info in infos.values()
    }
    return len(kinds) == 1


def _queue_troubles(client_id: str, info: ConsumerRunningInfo, now: int) -> str:
    """Return a line for each queue that does not move. RocketMQ: ConsumerRunningInfo.analyzeProcessQueue."""
    lines = []
    orderly = info.properties.get("PROP_CONSUMEORDERLY", "false").lower() == "true"
    if info.properties.get("PROP_CONSUME_TYPE") != CONSUME_PASSIVELY:
        return ""
    for queue, at in info.mq_table.items():
        where = f"{client_id} {queue_text(queue)}"
        idle = now - at.last_consume_timestamp
        if orderly and not at.locked:
            lines.append(f"{where} can't lock for a while, {now - at.last_lock_timestamp}ms\n")
        elif orderly and at.droped and at.try_unlock_times > 0:
            lines.append(f"{where} unlock {at.try_unlock_times} times, still failed\n")
        elif not orderly and idle > 60_000 and at.cached_msg_count > 0:
            lines.append(f"{where} can't consume for a while, maybe blocked, {idle}ms\n")
    return "".join(lines)


def running_text(info: ConsumerRunningInfo) -> str:
    """Return ConsumerRunningInfo.formatString."""
    wide, narrow = "%-64s  %-32s  %-4s  %-20s\n", "%-32s  %-32s  %-4d  %-20d\n"
    names = ("#Topic", "#Broker Name", "#QID")
    parts = ["#Consumer Properties#\n"]
    parts += [row("%-40s: %s\n", name, info.properties[name]) for name in properties_order(list(info.properties))]
    parts.append("\n\n#Consumer Subscription#\n")
    for number, one in enumerate(info.subscription_set, 1):
        parts.append(
            row("%03d Topic: %-40s ClassFilter: %-8s SubExpression: %s\n", number, one.topic,
                truth(one.class_filter_mode), one.sub_string)
        )  # fmt: skip
    queues = sorted(info.mq_table, key=queue_order)
    parts += ["\n\n#Consumer Offset#\n", row(wide, *names, "#Consumer Offset")]
    parts += [row(narrow, q.topic, q.broker_name, q.queue_id, info.mq_table[q].commit_offset) for q in queues]
    parts += ["\n\n#Consumer MQ Detail#\n", row(wide, *names, "#ProcessQueueInfo")]
    parts += [
        row("%-64s  %-32s  %-4d  %s\n", q.topic, q.broker_name, q.queue_id, _queue_info(info.mq_table[q]))
        for q in queues
    ]
    parts += ["\n\n#Consumer Pop Detail#\n", row("%-32s  %-32s  %-4s  %-20s\n", *names, "#ProcessQueueInfo")]
    for queue in sorted(info.mq_pop_table, key=queue_order):
        at = info.mq_pop_table[queue]
        text = (
            f"PopProcessQueueInfo [waitAckCount:{at.wait_ack_count}, droped:{truth(at.droped)}, "
            f"lastPopTimestamp:{at.last_pop_timestamp}]"
        )
        parts.append(row("%-32s  %-32s  %-4d  %s\n", queue.topic, queue.broker_name, queue.queue_id, text))
    parts += [
        "\n\n#Consumer RT&TPS#\n",
        row("%-64s  %14s %14s %14s %14s %18s %25s\n", "#Topic", "#Pull RT", "#Pull TPS", "#Consume RT",
            "#ConsumeOK TPS", "#ConsumeFailed TPS", "#ConsumeFailedMsgsInHour"),
    ]  # fmt: skip
    for topic in sorted(info.status_table):
        one_status = info.status_table[topic]
        rates = (
            one_status.pull_rt, one_status.pull_tps, one_status.consume_rt, one_status.consume_ok_tps,
            one_status.consume_failed_tps,
        )  # fmt: skip
        shown = [rounded(value, 2) for value in rates]
        parts.append(row("%-32s  %14s %14s %14s %14s %18s %25d\n", topic, *shown, one_status.consume_failed_msgs))
    parts.append("\n\n#User Consume Info#\n")
    parts += [row("%-40s: %s\n", name, value) for name, value in sorted(info.user_consumer_info.items())]
    if info.jstack is not None:
        parts += ["\n\n#Consumer jstack#\n", info.jstack]
    return "".join(parts)


def _queue_info(at: ProcessQueueInfo) -> str:
    return (
        f"ProcessQueueInfo [commitOffset={at.commit_offset}, cachedMsgMinOffset={at.cached_msg_min_offset}, "
        f"cachedMsgMaxOffset={at.cached_msg_max_offset}, cachedMsgCount={at.cached_msg_count}, "
        f"cachedMsgSizeInMiB={at.cached_msg_size_in_mib}, transactionMsgMinOffset={at.transaction_msg_min_offset}, "
        f"transactionMsgMaxOffset={at.transaction_msg_max_offset}, transactionMsgCount={at.transaction_msg_count}, "
        f"locked={truth(at.locked)}, tryUnlockTimes={at.try_unlock_times}, "
        f"lastLockTimestamp={compact_text(at.last_lock_timestamp)}, droped={truth(at.droped)}, "
        f"lastPullTimestamp={compact_text(at.last_pull_timestamp)}, "
        f"lastConsumeTimestamp={compact_text(at.last_consume_timestamp)}]"
    )


COMMANDS: Final = commands_of(
    update_sub_group,
    delete_sub_group,
    get_consumer_config,
    consumer_progress,
    broker_consume_stats,
    consumer_connection,
    producer_connection,
    producer,
    consumer_status,
)
