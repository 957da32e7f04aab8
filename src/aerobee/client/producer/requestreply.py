"""Request and reply over topics: a request names its sender, and a broker pushes the reply to that client.

RocketMQ: DefaultMQProducerImpl.request, MessageUtil.createReplyMessage,
ClientRemotingProcessor.receiveReplyMessage.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Generator

from aerobee.client.core import ClientCore, NoReplyError, SendReceipt
from aerobee.client.producer.sender import Sender, SenderConfig
from aerobee.client.producer.sendrequest import REPLY_FLAG, SendRequest, checked_body, properties_text
from aerobee.errors import AerobeeError, InvalidArgumentError, RequestTimeoutError
from aerobee.hot.log.properties import decode_properties
from aerobee.model import sysproperties as names
from aerobee.model.compression import decompress
from aerobee.model.message import Message
from aerobee.net.link import Link
from aerobee.protocol.codes import RequestCode
from aerobee.protocol.command import Command, response
from aerobee.protocol.headers.base import decode_header
from aerobee.protocol.headers.send import ReplyMessageRequestHeader

# RocketMQ: MixAll.REPLY_TOPIC_POSTFIX, CLIENT_INNER_PRODUCER_GROUP
_REPLY_TOPIC_SUFFIX = "_REPLY_TOPIC"
INNER_PRODUCER_GROUP = "CLIENT_INNER_PRODUCER"
BODY_SIZE_MAX = 4 << 20


class Requests:
    """The requests of one core that wait for their replies."""

    def __init__(self, core: ClientCore) -> None:
        self._core = core
        self._waiting: dict[str, asyncio.Future[Message]] = {}
        core.on_push(RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, "", self._replied)

    def begin(self, timeout_s: float) -> tuple[str, dict[str, str], asyncio.Future[Message]]:
        """Begin a request. Return its correlation id, the properties it must carry, and the future of its reply."""
        correlation = str(uuid.UUID(bytes=self._core.entropy.token(16), version=4))
        reply: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        self._waiting[correlation] = reply
        properties = {
            names.CORRELATION_ID: correlation,
            names.REPLY_TO_CLIENT: self._core.client_id,
            names.TTL: str(round(timeout_s * 1000)),
        }
        return correlation, properties, reply

    def end(self, correlation: str) -> None:
        self._waiting.pop(correlation, None)

    def _replied(self, link: Link, command: Command) -> Command:
        header = decode_header(ReplyMessageRequestHeader, command)
        user, system = names.split_properties(decode_properties((header.properties or "").encode()))
        body = decompress(command.body, header.sys_flag)
        reply = Message(
            header.topic,
            body,
            queue_id=header.queue_id,
            message_id=system.get(names.UNIQ_KEY, ""),
            keys=system.get(names.KEYS, ""),
            tags=system.get(names.TAGS, ""),
            properties=user,
            system_properties=system,
            born_timestamp=header.born_timestamp,
            store_timestamp=header.store_timestamp,
            born_host=header.born_host.lstrip("/"),
            store_host=header.store_host.lstrip("/"),
            reconsume_times=header.reconsume_times or 0,
            flag=header.flag,
            sys_flag=header.sys_flag,
        )
        waiting = self._waiting.get(system.get(names.CORRELATION_ID, ""))
        # A reply that nobody waits for came too late. The broker need not know.
        if waiting is not None and not waiting.done():
            waiting.set_result(reply)
        return response(command)


def requests_of(core: ClientCore) -> Requests:
    """Return the requests of a core."""
    found = core.shared.get("requests")
    if not isinstance(found, Requests):
        found = core.shared["requests"] = Requests(core)
    return found


async def await_reply(
    topic: str, reply: asyncio.Future[Message], receipt: asyncio.Future[SendReceipt], timeout_s: float
) -> Message:
    """Return the reply to a request that is being sent. Raise the error of the send where that fails."""
    try:
        async with asyncio.timeout(timeout_s):
            await asyncio.wait((reply, receipt), return_when=asyncio.FIRST_COMPLETED)
            if not reply.done():
                await receipt
            return await reply
    except TimeoutError as error:
        if isinstance(error, AerobeeError):
            raise
        if receipt.done() and not receipt.cancelled():
            stored = receipt.result()
            raise NoReplyError(
                f"no reply within {timeout_s:g} s to message {stored.message_id}",
                broker=f"{stored.broker} ({stored.broker_address})",
                hint=f"is a consumer of {topic!r} up that replies?",
            ) from None
        raise RequestTimeoutError(f"the request was not stored within {timeout_s:g} s") from None


def reply_to(core: ClientCore, message: Message, body: bytes) -> SendRequest:
    """Return the reply to a received request. Raise InvalidArgumentError for a message that is no request."""
    own = message.system_properties
    cluster = own.get(names.CLUSTER)
    correlation = own.get(names.CORRELATION_ID)
    reply_client = own.get(names.REPLY_TO_CLIENT)
    if not cluster or not correlation or not reply_client:
        raise InvalidArgumentError(f"message {message.message_id} is no request: there is nobody to reply to")
    message_id = core.unique_ids.next(core.clock.now_ms())
    system = {
        names.MESSAGE_TYPE: REPLY_FLAG,
        names.CORRELATION_ID: correlation,
        names.REPLY_TO_CLIENT: reply_client,
        names.TTL: own.get(names.TTL, ""),
    }
    topic = cluster + _REPLY_TOPIC_SUFFIX
    plain = checked_body(body, BODY_SIZE_MAX)
    return SendRequest(
        topic,
        topic,
        plain,
        message_id,
        properties_text(message_id, {}, system),
        len(plain),
        code=RequestCode.SEND_REPLY_MESSAGE_V2,
    )


async def send_reply(sender: Sender, message: Message, body: bytes) -> SendReceipt:
    """Send a reply, where possible through the broker that the request came from: the requester is connected to it."""
    out = reply_to(sender.core, message, body)
    publish = await sender.resolve(out.topic)
    near = [queue for queue in publish.queues if queue.broker_name == message.broker]
    return await sender.send(out, near[0] if near else None)


class Replier:
    """The sender of a consumer's replies, which `message.reply(body)` calls. It belongs to the loop it is made on."""

    def __init__(self, core: ClientCore) -> None:
        self._sender = Sender(core, INNER_PRODUCER_GROUP, SenderConfig())
        self._loop = asyncio.get_running_loop()

    def topics(self) -> list[str]:
        """Return the reply topics in use."""
        return self._sender.topics()

    def close(self) -> None:
        self._sender.close()

    def __call__(self, message: Message, body: bytes) -> Awaitable[object]:
        """Return a coroutine on the loop. In a handler's thread, send before returning; awaiting does nothing more."""
        sending = send_reply(self._sender, message, body)
        try:
            inside = asyncio.get_running_loop() is self._loop
        except RuntimeError:
            inside = False
        if inside:
            return sending
        return _Given(asyncio.run_coroutine_threadsafe(sending, self._loop).result())


class _Given:
    """A result that can be awaited although it is there already."""

    def __init__(self, value: object) -> None:
        self._value = value

    def __await__(self) -> Generator[object, None, object]:
        return self._value
        yield
