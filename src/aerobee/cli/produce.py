"""`aerobee produce`: sends lines of standard input, or generated messages, to a topic."""

from __future__ import annotations

import asyncio
import base64
import functools
import json
import sys
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from typing import TypedDict, Unpack

import click

from aerobee.cli.connecting import tls_context
from aerobee.cli.numbers import NumberRange
from aerobee.cli.output import DONE, REFUSED, UNREACHABLE, print_json_line
from aerobee.cli.remote import options
from aerobee.client.core import SendReceipt
from aerobee.client.producer import Producer, SendOptions
from aerobee.errors import AerobeeError, InvalidArgumentError, TransportError
from aerobee.model.numbers import INT32_MAX
from aerobee.runtime.clock import SystemClock

_IN_FLIGHT = 500


class _Asked(TypedDict):
    """The options that say what to send."""

    texts: tuple[str, ...]
    count: int | None
    size: int
    rate: float | None
    key: str | None
    tag: str | None
    sharding_key: str | None
    pairs: tuple[str, ...]
    delay: float | None
    delay_level: int | None
    priority: int | None
    json_in: bool


@dataclass(slots=True)
class _Counts:
    sent: int = 0
    bytes: int = 0
    failed: int = 0
    unreachable: int = 0
    errors: dict[str, int] = field(default_factory=dict)

    def fail(self, error: BaseException) -> None:
        self.failed += 1
        self.unreachable += isinstance(error, TransportError | TimeoutError)
        text = str(error)
        self.errors[text] = self.errors.get(text, 0) + 1


@click.command()
@options(
    click.option("--json-in", is_flag=True, help="Read JSON lines, as `consume --json` and `store dump` write them."),
    click.option(
        "--delay-level",
        type=click.IntRange(min=1),
        help="Deliver after this delay level of the broker (messageDelayLevel).",
    ),
    click.option(
        "--priority",
        type=click.IntRange(0, INT32_MAX),
        help="Priority, 0 is the lowest; for topics with message.type=PRIORITY.",
    ),
    click.option("--delay", type=NumberRange(min=0), help="Deliver after this many seconds."),
    click.option("-p", "--property", "pairs", multiple=True, metavar="NAME=VALUE", help="A property. May be repeated."),
    click.option("--sharding-key", help="Messages with the same sharding key go to the same queue. {n} is replaced."),
    click.option("--tag", help="Tag of every message."),
    click.option("--key", help="Key of every message. {n} is replaced by its number."),
    click.option("--rate", type=NumberRange(min=0.1), help="Send at most this many messages a second."),
    click.option(
        "--size",
        type=click.IntRange(0, 4 << 20),
        default=128,
        show_default=True,
        help="Body size of generated messages in bytes.",
    ),
    click.option("--count", type=click.IntRange(min=1), help="Send this many generated messages instead of lines."),
    click.option("-m", "--message", "texts", multiple=True, help="Text of a message. May be repeated."),
    click.option("-t", "--topic", required=True, help="The topic."),
)
def produce(namesrv: str, timeout_s: float, as_json: bool, topic: str, **asked: Unpack[_Asked]) -> int:
    """Send messages to a topic: one for each line of standard input, or --count generated ones.

    With --json, every receipt is printed as a JSON line, and the counts as a JSON line on stderr. If messages could not
    be sent, the exit code is 1, or 3 if no server was reached.
    """
    counts = _Counts()
    clock = SystemClock()
    started_s = clock.monotonic()
    asyncio.run(_produce(namesrv, timeout_s, as_json, topic, asked, counts))
    seconds = max(clock.monotonic() - started_s, 1e-9)
    _say_counts(counts, counts.sent / seconds, as_json)
    if not counts.failed:
        return DONE
    return UNREACHABLE if counts.unreachable == counts.failed and not counts.sent else REFUSED


def _say_counts(counts: _Counts, rate: float, as_json: bool) -> None:
    if as_json:
        said: dict[str, object] = {"sent": counts.sent, "bytes": counts.bytes, "failed": counts.failed}
        if counts.errors:
            said["errors"] = counts.errors
        print_json_line(said, err=True)
        return
    click.echo(f"{counts.sent} sent ({counts.bytes} bytes, {rate:.0f} a second), {counts.failed} failed", err=True)
    for text, times in counts.errors.items():
        click.echo(f"  {times} x {text}", err=True)


async def _produce(namesrv: str, timeout_s: float, as_json: bool, topic: str, asked: _Asked, counts: _Counts) -> None:
    common = _common_options(asked)
    free = asyncio.Semaphore(_IN_FLIGHT)

    def answered(size: int, done: asyncio.Future[SendReceipt]) -> None:
        free.release()
        _sent(done, counts, size, as_json)

    tls = tls_context() or False
    async with Producer(namesrv, group="CLI_PRODUCER", timeout=timeout_s, tls=tls) as producer:
        async for number, (body, own) in _paced(asked, _messages(asked)):
            sending = _numbered({**common, **own}, number)
            await free.acquire()
            try:
                producer.send_nowait(topic, body, **sending).add_done_callback(functools.partial(answered, len(body)))
            except AerobeeError as error:
                free.release()
                counts.fail(error)
        await producer.flush()


def _sent(done: asyncio.Future[SendReceipt], counts: _Counts, size: int, as_json: bool) -> None:
    if done.cancelled():
        return
    error = done.exception()
    if error is not None:
        counts.fail(error)
        return
    counts.sent += 1
    counts.bytes += size
    if as_json:
        receipt = done.result()
        print_json_line(
            {
                "topic": receipt.topic,
                "broker": receipt.broker,
                "queue_id": receipt.queue_id,
                "queue_offset": receipt.queue_offset,
                "message_id": receipt.message_id,
            }
        )


def _common_options(asked: _Asked) -> SendOptions:
    common: SendOptions = {}
    if asked["tag"]:
        common["tags"] = asked["tag"]
    if asked["key"]:
        common["keys"] = asked["key"]
    if asked["sharding_key"]:
        common["sharding_key"] = asked["sharding_key"]
    if asked["delay"] is not None:
        common["delay"] = asked["delay"]
    if asked["delay_level"] is not None:
        common["delay_level"] = asked["delay_level"]
    if asked["priority"] is not None:
        common["priority"] = asked["priority"]
    pairs = {}
    for pair in asked["pairs"]:
        name, equals, value = pair.partition("=")
        if not equals:
            raise click.BadParameter(f"{pair!r} is not NAME=VALUE", param_hint="--property")
        pairs[name] = value
    if pairs:
        common["properties"] = pairs
    return common


def _numbered(sending: SendOptions, number: int) -> SendOptions:
    for name in ("keys", "sharding_key"):
        value = sending.get(name)
        if isinstance(value, str) and "{n}" in value:
            sending[name] = value.replace("{n}", str(number))
    return sending


def _messages(asked: _Asked) -> Iterator[tuple[bytes, SendOptions]]:
    if asked["texts"]:
        for text in asked["texts"]:
            yield text.encode(), {}
    elif asked["count"]:
        body = bytes(97 + i % 26 for i in range(asked["size"]))
        for _ in range(asked["count"]):
            yield body, {}
    else:
        for line in sys.stdin.buffer:
            body = line.rstrip(b"\r\n")
            yield _from_json(body) if asked["json_in"] else (body, {})


def _from_json(line: bytes) -> tuple[bytes, SendOptions]:
    try:
        value = json.loads(line)
    except ValueError as error:
        raise InvalidArgumentError(f"this line is not JSON: {line[:80]!r} ({error})") from None
    if not isinstance(value, dict):
        raise InvalidArgumentError(f"this line is not a JSON object: {line[:80]!r}")
    own: SendOptions = {}
    if value.get("tags"):
        own["tags"] = str(value["tags"])
    if value.get("keys"):
        keys = value["keys"]
        own["keys"] = keys if isinstance(keys, str) else [str(key) for key in keys]
    if value.get("properties"):
        own["properties"] = {str(name): str(text) for name, text in value["properties"].items()}
    body = value.get("body", "")
    if value.get("body_encoding") == "base64":
        return base64.b64decode(body), own
    return (body if isinstance(body, str) else json.dumps(body)).encode(), own


async def _paced(
    asked: _Asked, messages: Iterator[tuple[bytes, SendOptions]]
) -> AsyncIterator[tuple[int, tuple[bytes, SendOptions]]]:
    """Yield messages with their numbers, at most --rate a second. Standard input is read in a thread."""
    loop = asyncio.get_running_loop()
    reads_input = not asked["texts"] and not asked["count"]
    started_s, number = loop.time(), 0
    while True:
        one = await asyncio.to_thread(next, messages, None) if reads_input else next(messages, None)
        if one is None:
            return
        if asked["rate"]:
            wait_s = started_s + number / asked["rate"] - loop.time()
            if wait_s > 0:
                await asyncio.sleep(wait_s)
        yield number, one
        number += 1
