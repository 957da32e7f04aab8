"""mqadmin's sub-commands that move the offsets of groups."""

from __future__ import annotations

from typing import Final

from aerobee.cli.mqadmin.groups import examine
from aerobee.cli.mqadmin.printed import moment_of, queues_in_map_order, truth
from aerobee.cli.mqadmin.pulls import search_offset
from aerobee.cli.mqadmin.tool import Tool, code_of, commands_of, cut, opts, row, sub_command
from aerobee.errors import BrokerError
from aerobee.model.queue import MessageQueue
from aerobee.protocol.bodies.offsets import ConsumeStats, ResetOffsetBody
from aerobee.protocol.codes import RequestCode, ResponseCode
from aerobee.protocol.headers.base import decode_header
from aerobee.protocol.headers.group import GetConsumeStatsRequestHeader
from aerobee.protocol.headers.offset import (
    GetMaxOffsetRequestHeader,
    GetMaxOffsetResponseHeader,
    ResetOffsetRequestHeader,
    UpdateConsumerOffsetRequestHeader,
)
from aerobee.runtime.clock import SystemClock

_OLD: Final = "%-20s  %-20s  %-20s  %-20s  %-20s  %-20s"
_NEW: Final = "%-40s  %-40s  %-40s"
_CLUSTER: Final = "c cluster Cluster name or lmq parent topic, lmq is used to find the route."


async def _reset(tool: Tool, group: str, topic: str, timestamp: int, *, force: bool) -> dict[MessageQueue, int]:
    """Ask each broker of the topic to reset the group. RocketMQ: resetOffsetByTimestamp."""
    header = ResetOffsetRequestHeader(group=group, topic=topic, timestamp=timestamp, is_force=force)
    found: dict[MessageQueue, int] = {}
    for address in await tool.addresses(topic):
        answer = await tool.admin.ask(address, RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, header)
        if answer.body:
            found |= ResetOffsetBody.decode(answer.body).offset_table
    return found


async def _reset_offline(tool: Tool, group: str, topic: str, timestamp: int, last: str, *, force: bool) -> None:
    """Save the offsets of a group that is away. RocketMQ: resetOffsetByTimestampOld."""
    tool.line(row(_OLD, "#brokerName", "#queueId", "#brokerOffset", "#consumerOffset", "#timestampOffset", last))
    header = GetConsumeStatsRequestHeader(consumer_group=group, topic=topic)
    for address in await tool.addresses(topic):
        stats = ConsumeStats.decode((await tool.admin.ask(address, RequestCode.GET_CONSUME_STATS, header)).body)
        for queue in queues_in_map_order(stats.offset_table):
            at = stats.offset_table[queue]
            if queue.topic != topic:
                continue
            wanted = await _wanted(tool, address, queue, timestamp)
            after = at.consumer_offset
            if force or wanted <= at.consumer_offset:
                after = wanted
                await save_offset(tool, address, group, queue, wanted)
            tool.line(
                row(
                    _OLD,
                    cut(queue.broker_name, 32),
                    queue.queue_id,
                    at.broker_offset,
                    at.consumer_offset,
                    wanted,
                    after,
                )
            )


async def _wanted(tool: Tool, address: str, queue: MessageQueue, timestamp: int) -> int:
    if timestamp != -1:
        return await search_offset(tool, address, queue, timestamp)
    header = GetMaxOffsetRequestHeader(topic=queue.topic, queue_id=queue.queue_id, bname=queue.broker_name)
    answer = await tool.admin.ask(address, RequestCode.GET_MAX_OFFSET, header)
    return decode_header(GetMaxOffsetResponseHeader, answer).offset


async def save_offset(tool: Tool, address: str, group: str, queue: MessageQueue, offset: int) -> None:
    header = UpdateConsumerOffsetRequestHeader(
        consumer_group=group,
        topic=queue.topic,
        queue_id=queue.queue_id,
        commit_offset=offset,
        bname=queue.broker_name or None,
    )
    await tool.admin.ask(address, RequestCode.UPDATE_CONSUMER_OFFSET, header)


def _print_reset(tool: Tool, table: dict[MessageQueue, int]) -> None:
    tool.line(row(_NEW, "#brokerName", "#queueId", "#offset"))
    for queue in queues_in_map_order(table):
        tool.line(row(_NEW, cut(queue.broker_name, 32), queue.queue_id, table[queue]))


@sub_command(
    "resetOffsetByTime",
    "Reset consumer offset by timestamp(without client restart).",
    *opts(
        "!g group set the consumer group",
        "!t topic set the topic",
        "!s timestamp set the timestamp[now|currentTimeMillis|yyyy-MM-dd#HH:mm:ss:SSS]",
        "f force set the force rollback by timestamp switch[true|false]. Deprecated.",
        "b broker broker addr",
        "q queue queue id",
        "o offset Expect queue offset, not support old version broker",
        _CLUSTER,
    ),
)
async def reset_offset_by_time(tool: Tool) -> None:
    given = tool.given
    group, topic, when = given.text("g"), given.text("t"), given.text("s")
    timestamp = SystemClock().now_ms() if when == "now" else moment_of(when)
    if given.has("b") and given.number("q", -1) >= 0:
        await _reset_queue(tool, timestamp)
        return
    force = given.truth("f", True)
    told = f"force[{truth(force)}], timestamp(string)[{when}], timestamp(long)[{timestamp}]"
    try:
        table = await _reset(tool, group, topic, timestamp, force=force)
    except BrokerError as error:
        if code_of(error) != ResponseCode.CONSUMER_NOT_ONLINE:
            raise
        tool.line(f"reset consumer offset by specified consumerGroup[{group}], topic[{topic}], {told}")
        await _reset_offline(tool, group, topic, timestamp, "#resetOffset", force=force)
        return
    tool.line(f"start reset consumer offset by specified, group[{group}], topic[{topic}], {told}")
    _print_reset(tool, table)


async def _reset_queue(tool: Tool, timestamp: int) -> None:
    given = tool.given
    group, topic, address, number = given.text("g"), given.text("t"), given.text("b"), given.number("q", 0)
    tool.line(
        f"start reset consumer offset by specified, group[{group}], topic[{topic}], queueId[{number}], "
        f"broker[{address}], timestamp(string)[{given.text('s')}], timestamp(long)[{timestamp}]"
    )
    if given.has("o"):
        offset = given.number("o", 0)
    else:
        offset = await search_offset(tool, address, MessageQueue(topic, "", number), timestamp)
    tool.line(f"reset consumer offset to {offset}")
    if offset > 0:
        # RocketMQ: DefaultMQAdminExtImpl.resetOffsetByQueueId.
        await save_offset(tool, address, group, MessageQueue(topic, "", number), offset)
        header = ResetOffsetRequestHeader(
            group=group, topic=topic, queue_id=number, offset=offset, timestamp=0, is_force=True
        )
        await tool.admin.ask(address, RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, header)


@sub_command(
    "skipAccumulatedMessage",
    "Skip all messages that are accumulated (not consumed) currently.",
    *opts(
        "!g group set the consumer group",
        "!t topic set the topic",
        "f force set the force rollback by timestamp switch[true|false]",
        _CLUSTER,
    ),
)
async def skip_accumulated_message(tool: Tool) -> None:
    given = tool.given
    group, topic, force = given.text("g"), given.text("t"), given.truth("f", True)
    try:
        table = await _reset(tool, group, topic, -1, force=force)
    except BrokerError as error:
        if code_of(error) != ResponseCode.CONSUMER_NOT_ONLINE:
            raise
        await _reset_offline(tool, group, topic, -1, "#rollbackOffset", force=force)
        return
    _print_reset(tool, table)


@sub_command(
    "cloneGroupOffset",
    "Clone offset from other group.",
    *opts(
        "!s srcGroup set source consumer group",
        "!d destGroup set destination consumer group",
        "!t topic set the topic",
        "o offline the group or the topic is offline",
    ),
)
async def clone_group_offset(tool: Tool) -> None:
    given = tool.given
    source, target, topic = given.text("s"), given.text("d"), given.text("t")
    stats = await examine(tool, source)
    addresses = {one.broker_name: one.address() for one in (await tool.route(topic)).broker_datas}
    for queue, at in stats.offset_table.items():
        address = addresses.get(queue.broker_name)
        if at.consumer_offset >= 0 and address is not None:
            await save_offset(tool, address, target, queue, at.consumer_offset)
    tool.say(f"clone group offset success. srcGroup[{source}], destGroup=[{target}], topic[{topic}]")


COMMANDS: Final = commands_of(reset_offset_by_time, skip_accumulated_message, clone_group_offset)
