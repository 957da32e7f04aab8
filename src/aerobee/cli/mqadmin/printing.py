"""mqadmin's sub-commands that print whole queues, and the one that sends."""

from __future__ import annotations

from typing import Final

from aerobee.cli.mqadmin.printed import (
    body_text,
    in_map_order,
    message_text,
    moment_of,
    queue_text,
    queues_in_map_order,
)
from aerobee.cli.mqadmin.pulls import FOUND, TOOLS_CONSUMER, Pulled, Queues
from aerobee.cli.mqadmin.tool import Tool, commands_of, opts, row, sub_command
from aerobee.client.producer import Producer
from aerobee.model.queue import MessageQueue
from aerobee.runtime.clock import SystemClock


def _line_of(one: Pulled, broker: str, charset: str, *, body: bool) -> str:
    text = message_text(one.record, broker, one.properties)
    return f"MSGID: {one.message_id} {text} BODY: {body_text(one.record.body, charset) if body else 'NOT PRINT BODY'}"


_SPAN: Final = (
    "b beginTimestamp Begin timestamp[currentTimeMillis|yyyy-MM-dd#HH:mm:ss:SSS]",
    "e endTimestamp End timestamp[currentTimeMillis|yyyy-MM-dd#HH:mm:ss:SSS]",
)


@sub_command(
    "printMsg",
    "Print Message Detail.",
    *opts(
        "!t topic topic name",
        "c charsetName CharsetName(eg: UTF-8,GBK)",
        "s subExpression Subscribe Expression(eg: TagA || TagB)",
        *_SPAN,
        "d printBody print body",
        "l lmqParentTopic Lmq parent topic, lmq is used to find the route.",
    ),
)
async def print_messages(tool: Tool) -> None:
    given = tool.given
    queues = Queues(tool)
    body = given.truth("d", True)
    for queue in queues_in_map_order(await queues.of(given.text("t"))):
        first, end = await queues.span(queue, given.text("b"), given.text("e"))
        tool.line(f"minOffset={first}, maxOffset={end}, {queue_text(queue)}")
        offset = first
        while offset < end:
            answer = await queues.pull(queue, offset, tags=given.text("s", "*"))
            offset = answer.next_offset
            for one in answer.found:
                tool.line(_line_of(one, queue.broker_name, given.text("c", "UTF-8"), body=body))
            status = answer.status if answer.found or answer.status != FOUND else "NO_MATCHED_MSG"
            if status == "NO_MATCHED_MSG":
                tool.line(f"{queue_text(queue)} no matched msg. status={status}, offset={offset}")
            elif status != FOUND:
                tool.line(f"{queue_text(queue)} print msg finished. status={status}, offset={offset}")
                break
        tool.line("-" * 56)


@sub_command(
    "printMsgByQueue",
    "Print Message Detail by queueId.",
    *opts(
        "!t topic topic name",
        "!a brokerName broker name",
        "!i queueId queue id",
        "c charsetName CharsetName(eg: UTF-8,GBK)",
        "s subExpression Subscribe Expression(eg: TagA || TagB)",
        *_SPAN,
        "p print_msg print msg. eg: true | false(default)",
        "d printBody print body. eg: true | false(default)",
        "f calculate calculate by tag. eg: true | false(default)",
    ),
)
async def print_queue(tool: Tool) -> None:
    given = tool.given
    queues = Queues(tool)
    queue = MessageQueue(given.text("t"), given.text("a"), given.number("i", 0))
    offset, end = await queues.span(queue, given.text("b"), given.text("e"))
    counts: dict[str, int] = {}
    while offset < end:
        answer = await queues.pull(queue, offset, tags=given.text("s", "*"))
        offset = answer.next_offset
        if not answer.found:
            break
        for one in answer.found:
            if one.tags and one.tags.strip():
                counts[one.tags] = counts.get(one.tags, 0) + 1
            if given.truth("p"):
                tool.line(_line_of(one, queue.broker_name, given.text("c", "UTF-8"), body=given.truth("d")))
    if given.truth("f"):
        for tag in sorted(in_map_order(counts), key=lambda name: -counts[name]):
            tool.line(row("Tag: %-30s Count: %s", tag, counts[tag]))


@sub_command(
    "consumeMessage",
    "Consume message.",
    *opts(
        "!t topic Topic name",
        "b brokerName Broker name",
        "i queueId Queue Id",
        "o offset Queue offset",
        "g consumerGroup Consumer group name",
        "s beginTimestamp Begin timestamp[currentTimeMillis|yyyy-MM-dd#HH:mm:ss:SSS]",
        "e endTimestamp End timestamp[currentTimeMillis|yyyy-MM-dd#HH:mm:ss:SSS]",
        "c MessageNumber Number of message to be consumed",
    ),
)
async def consume_message(tool: Tool) -> None:
    given = tool.given
    left = given.number("c", 128)
    problem = _consume_problem(tool, left)
    if problem:
        tool.fail(problem)
        return
    queues = Queues(tool, given.text("g", TOOLS_CONSUMER))
    topic = given.text("t")
    if given.has("i"):
        await _consume_queue(tool, queues, left)
        return
    for queue in queues_in_map_order(await queues.of(topic)):
        if left == 0:
            return
        first, end = await queues.span(queue, given.text("s"), given.text("e"))
        if end - first > left:
            tool.line(f"The older {left} message of the {queue.queue_id} queue will be provided")
            end, left = first + left - 1, 0
        else:
            left -= end - first + 1
        await _consume(tool, queues, queue, first, end)


def _consume_problem(tool: Tool, count: int) -> str | None:
    given, now = tool.given, SystemClock().now_ms()
    begin = moment_of(given.text("s")) if given.has("s") else 0
    end = moment_of(given.text("e")) if given.has("e") else 0
    problems = (
        (count <= 0, "Please input a positive messageNumber!"),
        (given.has("i") and not given.has("b"), "Please set the brokerName before queueId!"),
        (given.has("o") and not given.has("i"), "Please set queueId before offset!"),
        (begin > now, "Please set the beginTimestamp before now!"),
        (end > now, "Please set the endTimestamp before now!"),
        (
            given.has("e") and begin > end,
            "Please make sure that the beginTimestamp is less than or equal to the endTimestamp",
        ),
    )
    return next((text for wrong, text in problems if wrong), None)


async def _consume_queue(tool: Tool, queues: Queues, count: int) -> None:
    given = tool.given
    queue = MessageQueue(given.text("t"), given.text("b"), given.number("i", 0))
    offset = given.number("o", 0)
    first, end = await queues.span(queue, given.text("s"), given.text("e"))
    if offset > end:
        tool.fail(f"{queue_text(queue)} no matched msg, offset={offset}\n")
        return
    first = max(first, offset)
    if end - first > count:
        tool.line(f"The oldler {count} message will be provided")
        end = first + count - 1
    await _consume(tool, queues, queue, first, end)


async def _consume(tool: Tool, queues: Queues, queue: MessageQueue, offset: int, end: int) -> None:
    while offset <= end:
        answer = await queues.pull(queue, offset, count=min(end - offset + 1, 1024))
        offset = answer.next_offset
        if answer.status == FOUND:
            tool.line("Consume ok")
            for one in answer.found:
                tool.line(_line_of(one, queue.broker_name, "UTF-8", body=True))
        elif answer.status == "NO_MATCHED_MSG":
            tool.line(f"{queue_text(queue)} no matched msg. status={answer.status}, offset={offset}")
        else:
            tool.line(f"{queue_text(queue)} print msg finished. status={answer.status}, offset={offset}")
            return


@sub_command(
    "sendMessage",
    "Send a message.",
    *opts(
        "!t topic Topic name",
        "!p body UTF-8 string format of the message body",
        "k key Message keys",
        "c tags Message tags",
        "b broker Send message to target broker",
        "i qid Send message to target queue",
        "m msgTraceEnable Message Trace Enable, Default: false",
    ),
)
async def send_message(tool: Tool) -> None:
    given = tool.given
    if given.has("i") and not given.has("b"):
        tool.fail("Broker name must be set if the queue is chosen!")
        return
    topic = given.text("t")
    queue = MessageQueue(topic, given.text("b"), given.number("i", 0)) if given.has("i") else None
    async with Producer(
        tool.admin.namesrvs, group="TOOLS_PRODUCER", trace=given.truth("m"), **tool.admin.client_options
    ) as producer:
        body, tags, keys = given.text("p").encode(), given.text("c"), given.text("k")
        if queue is None:
            receipt = await producer.send(topic, body, tags=tags, keys=keys)
        else:
            receipt = await producer.send(topic, body, tags=tags, keys=keys, queue=queue)
    layout = "%-32s  %-4s  %-20s    %s"
    tool.line(row(layout, "#Broker Name", "#QID", "#Send Result", "#MsgId"))
    tool.line(row(layout, receipt.broker, receipt.queue_id, receipt.status.name, receipt.message_id))


COMMANDS: Final = commands_of(print_messages, print_queue, consume_message, send_message)
