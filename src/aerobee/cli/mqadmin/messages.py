"""mqadmin's sub-commands about messages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from aerobee.admin.trace import TraceEvent, trace_of
from aerobee.cli.mqadmin.groups import examine, running_info
from aerobee.cli.mqadmin.printed import (
    body_text,
    in_map_order,
    millis_text,
    nothing,
    properties_text,
    queue_text,
    seconds_text,
    truth,
)
from aerobee.cli.mqadmin.pulls import Pulled, Queues, pulled
from aerobee.cli.mqadmin.tool import Tool, code_of, commands_of, opts, row, sub_command
from aerobee.cli.mqadmin.topics import groups_of
from aerobee.client.producer import Producer
from aerobee.errors import AerobeeError, BrokerError, InvalidArgumentError
from aerobee.errors.codes import QueryNotFoundError
from aerobee.hot.log.host import decode_host
from aerobee.hot.log.record import Record, decode_records
from aerobee.model.ids import decode_offset_message_id, offset_message_id
from aerobee.model.message import from_record
from aerobee.model.names import retry_topic
from aerobee.model.queue import MessageQueue
from aerobee.protocol.bodies.heartbeat import CONSUME_ACTIVELY, CONSUME_PASSIVELY
from aerobee.protocol.bodies.offsets import ConsumeStats
from aerobee.protocol.bodies.running import ConsumeMessageDirectlyResult
from aerobee.protocol.codes import RequestCode, ResponseCode
from aerobee.protocol.headers.group import ConsumeMessageDirectlyResultRequestHeader
from aerobee.protocol.headers.message import QueryMessageRequestHeader, ViewMessageRequestHeader
from aerobee.runtime.clock import SystemClock
from aerobee.runtime.smallfile import write_bytes

_BODIES: Final = "/tmp/rocketmq/msgbodys"
_DAY_AND_A_HALF_MS: Final = 36 * 3_600_000
_LONG_MAX: Final = (1 << 63) - 1
_HOUR_MS: Final = 3_600_000
_CLUSTER: Final = "c cluster Cluster name or lmq parent topic, lmq is used to find the route."


# -- finding


async def view(tool: Tool, topic: str, message_id: str) -> Pulled:
    """Return a message by its offset id, or else by its unique id. RocketMQ: DefaultMQAdminExtImpl.queryMessage."""
    try:
        place = decode_offset_message_id(message_id)
        known = {one.address for one in await tool.admin.brokers()}
        # Apache's tool asks whatever address an id names. Ours asks brokers that the name server knows.
        if place.host in known:
            header = ViewMessageRequestHeader(topic=topic, offset=place.physical_offset)
            body = (await tool.admin.ask(place.host, RequestCode.VIEW_MESSAGE_BY_ID, header)).body
            for record in decode_records(body):
                return pulled(record)
    except (InvalidArgumentError, BrokerError):
        pass
    found = await query(tool, topic, message_id, 32, (0, _LONG_MAX), unique=True)
    if not found:
        raise QueryNotFoundError("query message by key finished, but no message.", code=ResponseCode.QUERY_NOT_FOUND)
    return found[0]


async def query(
    tool: Tool, topic: str, key: str, limit: int, span: tuple[int, int], *, unique: bool, kind: str | None = None
) -> list[Pulled]:
    """Return messages by key from the index of each broker. RocketMQ: MQAdminImpl.queryMessage."""
    header = QueryMessageRequestHeader(
        topic=topic, key=key, max_num=limit, begin_timestamp=span[0], end_timestamp=span[1], index_type=kind
    )
    ext = {"_UNIQUE_KEY_QUERY": "true"} if unique else {"_UNIQUE_KEY_QUERY": "false"}
    found: list[Pulled] = []
    for address in await tool.addresses(topic):
        try:
            answer = await tool.admin.ask(address, RequestCode.QUERY_MESSAGE, header, ext=ext)
        except QueryNotFoundError:
            continue
        for record in decode_records(answer.body):
            one = pulled(record)
            keys = one.properties.get("KEYS", "").split(" ")
            tagged = kind == "T" and one.tags == key
            if one.message_id == key if unique else key in keys or tagged or one.message_id == key:
                found.append(one)
    return found


# -- showing


async def _show(tool: Tool, one: Pulled, *, offset_id: bool, charset: str = "", index: int = 0) -> None:
    record = one.record
    fields: list[tuple[str, object]] = []
    if offset_id:
        fields.append(("OffsetID:", offset_message_id(record.store_host, record.physical_offset)))
    path = _save_body(one, index)
    fields += [
        ("Topic:", record.topic.decode("utf-8", "replace")),
        ("Tags:", f"[{nothing(one.tags)}]"),
        ("Keys:", f"[{nothing(one.properties.get('KEYS'))}]"),
        ("Queue ID:", record.queue_id),
        ("Queue Offset:", record.queue_offset),
        ("CommitLog Offset:", record.physical_offset),
        ("Reconsume Times:", record.reconsume_times),
        ("Born Timestamp:", millis_text(record.born_timestamp)),
        ("Store Timestamp:", millis_text(record.store_timestamp)),
        ("Born Host:", decode_host(record.born_host)),
        ("Store Host:", decode_host(record.store_host)),
        ("System Flag:", record.sys_flag),
        ("Properties:", properties_text(one.properties)),
        ("Message Body Path:", path),
    ]
    if charset:
        fields.append(("Message Body:", body_text(record.body, charset)))
    for name, value in fields:
        tool.line(row("%-20s %s", name, value))
    tracks = await _tracks(tool, record)
    if not tracks:
        tool.say("\n\nWARN: No Consumer")
        return
    tool.say("\n\n")
    end = "\n" if offset_id else ""
    for text in tracks:
        tool.say(text + end)


def _save_body(one: Pulled, index: int) -> str:
    """Write the body beside those that Apache's tool writes, in a file that only this user can read."""
    # The id comes from the message: only letters and digits of it become part of the path.
    name = "".join(c for c in one.message_id if c.isalnum())[:64] + (f"_{index}" if index else "")
    path = f"{_BODIES}/{name}"
    write_bytes(path, one.record.body)
    return path


async def _tracks(tool: Tool, record: Record) -> list[str]:
    """Return what each group of the topic did with a message. RocketMQ: messageTrackDetail."""
    found = []
    for group in await groups_of(tool, record.topic.decode("utf-8", "replace")):
        kind, reason = await _track(tool, record, group)
        found.append(f"MessageTrack [consumerGroup={group}, trackType={kind}, exceptionDesc={nothing(reason)}]")
    return found


async def _track(tool: Tool, record: Record, group: str) -> tuple[str, str | None]:
    try:
        members = await tool.connection(group)
    except BrokerError as error:
        if code_of(error) == ResponseCode.TOPIC_NOT_EXIST:
            name = "org.apache.rocketmq.client.exception.MQClientException"
            see = "See https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details."
            return "UNKNOWN", f"{name}: CODE: {error.code}  DESC: {error.message}\n{see}"
        kind = "NOT_ONLINE" if code_of(error) == ResponseCode.CONSUMER_NOT_ONLINE else "UNKNOWN"
        return kind, f"CODE:{error.code} DESC:{error.message}"
    if members.consume_type != CONSUME_PASSIVELY:
        return ("PULL" if members.consume_type == CONSUME_ACTIVELY else "UNKNOWN"), None
    try:
        stats = await examine(tool, group)
    except BrokerError as error:
        if code_of(error) == ResponseCode.BROADCAST_CONSUMPTION:
            return "CONSUME_BROADCASTING", None
        return "NOT_ONLINE", f"CODE:{error.code} DESC:{error.message}"
    if not await _passed(tool, record, stats):
        return "NOT_CONSUME_YET", None
    wanted = members.subscription_table.get(record.topic.decode("utf-8", "replace"))
    tags = pulled(record).tags
    filtered = wanted is not None and wanted.tags_set and not {tags, "*"} & set(wanted.tags_set)
    return ("CONSUMED_BUT_FILTERED" if filtered else "CONSUMED"), None


async def _passed(tool: Tool, record: Record, stats: ConsumeStats) -> bool:
    """Return whether the group's offset is beyond the message, in the queue of the broker that stored it."""
    topic, host = record.topic.decode("utf-8", "replace"), decode_host(record.store_host)
    holders = {one.name for one in await tool.admin.brokers() if one.address == host}
    return any(
        (queue.topic, queue.queue_id) == (topic, record.queue_id)
        and queue.broker_name in holders
        and at.consumer_offset > record.queue_offset
        for queue, at in stats.offset_table.items()
    )


async def _push(tool: Tool, group: str, client_id: str, topic: str, message_id: str, *, refusal: str) -> None:
    """Hand a message to one consumer. RocketMQ: consumeMessageDirectly."""
    try:
        info = await running_info(tool, group, client_id)
    except AerobeeError as error:
        tool.line(f"get consumer runtime info for {client_id} client failed ")
        tool.went_wrong(error)
        return
    if info.properties.get("PROP_CONSUME_TYPE") != CONSUME_PASSIVELY:
        tool.fail(refusal)
        return
    one = await view(tool, topic, message_id)
    address = (await tool.addresses(retry_topic(group)))[0]
    host = decode_host(one.record.store_host)
    name = next((known.name for known in await tool.admin.brokers() if known.address == host), None)
    header = ConsumeMessageDirectlyResultRequestHeader(
        consumer_group=group,
        client_id=client_id,
        msg_id=offset_message_id(one.record.store_host, one.record.physical_offset),
        broker_name=name,
        topic=topic,
    )
    answer = await tool.admin.ask(address, RequestCode.CONSUME_MESSAGE_DIRECTLY, header)
    result = ConsumeMessageDirectlyResult.decode(answer.body)
    tool.say(
        f"ConsumeMessageDirectlyResult [order={truth(result.order)}, autoCommit={truth(result.auto_commit)}, "
        f"consumeResult={nothing(result.consume_result)}, remark={nothing(result.remark)}, "
        f"spentTimeMills={result.spent_time_mills}]"
    )
    tool.failed = tool.failed or result.consume_result not in ("CR_SUCCESS", "CR_COMMIT")


# -- by id


@sub_command(
    "queryMsgById",
    "Query Message by Id.",
    *opts(
        "!t topic topic name",
        "!i msgId Message Id",
        "g consumerGroup consumer group name",
        "d clientId The consumer's client id",
        "s sendMessage resend message",
        "u unitName unit name",
        "f bodyFormat print message body by the specified format",
        _CLUSTER,
    ),
)
async def query_by_id(tool: Tool) -> None:
    given = tool.given
    topic = given.text("t")
    ids = [word.strip() for word in given.text("i").split(",") if word.strip()]
    for message_id in ids:
        if given.has("g") and given.has("d"):
            client = given.text("d")
            refusal = f"this {client} client is not push consumer ,not support direct push \n"
            await _push(tool, given.text("g"), client, topic, message_id, refusal=refusal)
        elif given.has("s"):
            if given.truth("s"):
                await _send_again(tool, topic, message_id)
        else:
            await _show(tool, await view(tool, topic, message_id), offset_id=True, charset=given.text("f"))


async def _send_again(tool: Tool, topic: str, message_id: str) -> None:
    one = await view(tool, topic, message_id)
    message = from_record(one.record)
    tool.say(f"prepare resend msg. originalMsgId={message_id}")
    async with Producer(tool.admin.namesrvs, group="ReSendMsgById", **tool.admin.client_options) as producer:
        receipt = await producer.send(
            topic, message.body, tags=message.tags, keys=message.keys, properties=dict(message.properties)
        )
    queue = MessageQueue(topic, receipt.broker, receipt.queue_id)
    tool.say(
        f"SendResult [sendStatus={receipt.status.name}, msgId={receipt.message_id}, "
        f"offsetMsgId={receipt.offset_id}, messageQueue={queue_text(queue)}, "
        f"queueOffset={receipt.queue_offset}, recallHandle=null]"
    )


@sub_command(
    "queryMsgByUniqueKey",
    "Query Message by Unique key.",
    *opts(
        "!i msgId Message Id",
        "g consumerGroup consumer group name",
        "d clientId The consumer's client id",
        "!t topic The topic of msg",
        "+a showAll Print all message, the limit is 32",
        _CLUSTER,
        "s startTime startTime",
        "e endTime endTime",
    ),
)
async def query_by_unique_key(tool: Tool) -> None:
    given = tool.given
    topic, message_id = given.text("t"), given.text("i")
    if given.has("g") and given.has("d"):
        client = given.text("d")
        refusal = f"get consumer info failed or this {client} client is not push consumer, not support direct push \n"
        await _push(tool, given.text("g"), client, topic, message_id, refusal=refusal)
        return
    now = SystemClock().now_ms()
    span = (now - _DAY_AND_A_HALF_MS, now + _DAY_AND_A_HALF_MS)
    if given.text("s") and given.text("e"):
        span = (given.number("s", 0), given.number("e", _LONG_MAX))
    found = await query(tool, topic, message_id, 32, span, unique=True)
    if not found:
        raise QueryNotFoundError("query message by key finished, but no message.", code=ResponseCode.QUERY_NOT_FOUND)
    found.sort(key=lambda one: one.record.store_timestamp)
    for index, one in enumerate(found if given.has("a") else found[:1]):
        await _show(tool, one, offset_id=False, index=index)


@sub_command(
    "queryMsgByKey",
    "Query Message by Key.",
    *opts(
        "!t topic Topic name",
        "!k msgKey Message Key",
        "b beginTimestamp Begin timestamp(ms). default:0, eg:1676730526212",
        "e endTimestamp End timestamp(ms). default:Long.MAX_VALUE, eg:1676730526212",
        "m maxNum The maximum number of messages returned by the query, default:64",
        _CLUSTER,
        "p keyType Index key type, default index key type is K, you can use K for keys OR T for tags",
        "l lastKey Last Key",
    ),
)
async def query_by_key(tool: Tool) -> None:
    given = tool.given
    topic, key, kind = given.text("t"), given.text("k"), given.text("p", "K")
    if kind not in ("K", "T"):
        tool.fail("index type error, just support K for keys or T for tags")
        return
    span = (given.number("b", 0), given.number("e", _LONG_MAX))
    found = await query(tool, topic, key, given.number("m", 64), span, unique=False, kind=kind)
    if not found:
        raise QueryNotFoundError("query message by key finished, but no message.", code=ResponseCode.QUERY_NOT_FOUND)
    tool.line(row("%-50s %4s %40s %-200s", "#Message ID", "#QID", "#Offset", "#IndexKey"))
    for one in found:
        record = one.record
        hour = record.store_timestamp // _HOUR_MS * _HOUR_MS
        index = f"{hour}@{topic}@{kind}@{key}@{one.message_id}@{record.physical_offset}"
        tool.line(row("%-50s %4d %40d %-200s", one.message_id, record.queue_id, record.queue_offset, index))


@sub_command(
    "queryMsgByOffset",
    "Query Message by offset.",
    *opts(
        "!t topic topic name",
        "!b brokerName Broker Name",
        "!i queueId Queue Id",
        "!o offset Queue Offset",
        "f bodyFormat print message body by the specified format",
        "r routeTopic the topic which is used to find route info",
    ),
)
async def query_by_offset(tool: Tool) -> None:
    given = tool.given
    queue = MessageQueue(given.text("t"), given.text("b"), given.number("i", 0))
    answer = await Queues(tool).pull(queue, given.number("o", 0), count=1)
    if not answer.found:
        # Apache's tool says nothing and ends with 0.
        raise QueryNotFoundError(
            f"{queue_text(queue)} has no message at this offset ({answer.status})", code=ResponseCode.QUERY_NOT_FOUND
        )
    await _show(tool, answer.found[0], offset_id=True, charset=given.text("f"))


@sub_command(
    "queryMsgTraceById",
    "Query a message trace.",
    *opts(
        "!i msgId Message Id",
        "t traceTopic The name value of message trace topic",
        "b beginTimestamp Begin timestamp(ms). default:0, eg:1676730526212",
        "e endTimestamp End timestamp(ms). default:Long.MAX_VALUE, eg:1676730526212",
        "c maxNum The maximum number of messages returned by the query, default:64",
    ),
)
async def query_trace(tool: Tool) -> None:
    given = tool.given
    found = await trace_of(
        tool.admin,
        given.text("i"),
        topic=given.text("t", "RMQ_SYS_TRACE_TOPIC"),
        begin_ms=given.number("b", 0),
        end_ms=given.number("e", _LONG_MAX),
        limit=given.number("c", 64),
    )
    layout = "%-10s %-20s %-20s %-20s %-10s %-10s"

    def told(kind: str, events: Sequence[TraceEvent], group: str, when: str) -> None:
        tool.line(row(layout, "#Type", group, "#ClientHost", when, "#CostTimes", "#Status"))
        for event in events:
            status = "success" if event.success else "failed"
            tool.line(
                row(layout, kind, event.group, event.host, seconds_text(event.time_ms), f"{event.cost_ms}ms", status)
            )
        tool.line()

    consumed: dict[str, list[TraceEvent]] = {}
    for event in found.events:
        if event.kind == "Pub":
            told("Pub", [event], "#ProducerGroup", "#SendTime")
        elif event.kind == "SubAfter":
            consumed.setdefault(event.group, []).append(event)
    for group in in_map_order(consumed):
        told("Sub", consumed[group], "#ConsumerGroup", "#ConsumerTime")


COMMANDS: Final = commands_of(query_by_id, query_by_unique_key, query_by_key, query_by_offset, query_trace)
