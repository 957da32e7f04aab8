"""A cluster of scripted servers: real sockets and frames, answers written by the test."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from aerobee.hot.log.properties import decode_properties
from aerobee.model.dialect import dumps
from aerobee.model.ids import offset_message_id_of
from aerobee.model.route import BrokerData, QueueData, TopicRouteData
from aerobee.net.channel import Channel
from aerobee.net.server import Server
from aerobee.protocol.bodies.heartbeat import HeartbeatData
from aerobee.protocol.codes import RequestCode, ResponseCode
from aerobee.protocol.command import Command, request, response
from aerobee.protocol.headers.send import ReplyMessageRequestHeader, SendMessageResponseHeader
from aerobee.protocol.sending import send_fields
from aerobee.runtime.clock import SystemClock


@dataclass
class Stored:
    """One send as the broker saw it."""

    command: Command
    topic: str
    queue_id: int
    sys_flag: int
    properties: dict[str, str]
    body: bytes
    group: str


class ScriptedBroker:
    """Answers sends as a broker would; `answer_send` may be replaced by the test."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.address = ""
        self.stored: list[Stored] = []
        self.commands: list[Command] = []
        self.heartbeats: list[HeartbeatData] = []
        self.heartbeat_channels: list[int] = []
        self.answers_heartbeats = True
        self.changed = asyncio.Event()
        # Whether a consumer is there that replies to requests.
        self.replies = False
        self.answer_send: Callable[[Channel, Command, int], Command | None] = self.store
        codes: dict[int, Callable[[Channel, Command], Command | None]] = {
            RequestCode.SEND_MESSAGE_V2: self._send,
            RequestCode.SEND_BATCH_MESSAGE: self._send,
            RequestCode.SEND_REPLY_MESSAGE_V2: self._send,
            RequestCode.HEART_BEAT: self._heartbeat,
        }
        for code in (
            RequestCode.UNREGISTER_CLIENT,
            RequestCode.END_TRANSACTION,
            RequestCode.RECALL_MESSAGE,
        ):
            codes[code] = self._plain
        self.handlers = codes
        self.server = Server(f"scripted.{name}", codes, clock=SystemClock())

    async def start(self, port: int = 0) -> None:
        self.address = f"127.0.0.1:{await self.server.listen('127.0.0.1', port)}"

    def _note(self, command: Command) -> None:
        self.commands.append(command)
        self.changed.set()

    def _send(self, channel: Channel, command: Command) -> Command | None:
        fields = send_fields(command)
        self.stored.append(
            Stored(
                command,
                fields.topic,
                fields.queue_id,
                fields.sys_flag,
                decode_properties(fields.properties),
                command.body,
                fields.producer_group,
            )
        )
        self._note(command)
        return self.answer_send(channel, command, len(self.stored))

    def store(self, channel: Channel, command: Command, count: int) -> Command | None:
        header = SendMessageResponseHeader(
            msg_id=offset_message_id_of(self.address, count * 100),
            queue_id=int(command.ext["e"]),
            queue_offset=count - 1,
        )
        own = self.stored[-1].properties
        if "TIMER_DELAY_MS" in own:
            header.recall_handle = "HANDLE"
        if "CORRELATION_ID" in own and self.replies:
            self._reply(own["CORRELATION_ID"])
        return response(command, ResponseCode.SUCCESS, header, ext={"MSG_REGION": "DefaultRegion"})

    def _reply(self, correlation: str) -> None:
        header = ReplyMessageRequestHeader(
            producer_group="replier",
            topic="C_REPLY_TOPIC",
            default_topic="TBW102",
            default_topic_queue_nums=4,
            queue_id=0,
            sys_flag=0,
            born_timestamp=1,
            flag=0,
            properties=f"CORRELATION_ID\x01{correlation}\x02mine\x011\x02",
            born_host="/127.0.0.1:1",
            store_host="/127.0.0.1:2",
            store_timestamp=2,
        )
        self.push(RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, header, b"pong")

    def _heartbeat(self, channel: Channel, command: Command) -> Command | None:
        self.heartbeats.append(HeartbeatData.decode(command.body))
        self.heartbeat_channels.append(channel.id)
        self._note(command)
        return response(command) if self.answers_heartbeats else None

    def _plain(self, channel: Channel, command: Command) -> Command:
        self._note(command)
        return response(command)

    async def until(self, holds: Callable[[], Any]) -> None:
        """Wait for something the clients do here."""
        async with asyncio.timeout(60):
            while not holds():
                self.changed.clear()
                await self.changed.wait()

    def of(self, code: int) -> list[Command]:
        return [command for command in self.commands if command.code == code]

    def push(self, code: int, header: Any = None, body: bytes = b"") -> None:
        """Ask every connected client."""
        for channel in self.server.channels.values():
            channel.send(request(code, header, body, opaque=1, oneway=True))


@dataclass
class Cluster:
    """A name server and brokers that all serve every topic but those in `unknown`."""

    brokers: list[ScriptedBroker]
    queue_nums: int = 4
    unknown: set[str] = field(default_factory=set)
    asked: list[str] = field(default_factory=list)
    namesrv: str = ""
    extra: dict[str, TopicRouteData] = field(default_factory=dict)
    # The name server keeps its answers back, here, until `answer_routes`.
    held: list[tuple[Channel, Command]] | None = None
    route_asked: asyncio.Event = field(default_factory=asyncio.Event)
    # Where the servers run, for tests on another thread.
    loop: asyncio.AbstractEventLoop | None = None

    async def __aenter__(self) -> Cluster:
        self.server = Server("scripted.namesrv", {RequestCode.GET_ROUTEINFO_BY_TOPIC: self._route}, clock=SystemClock())
        self.namesrv = f"127.0.0.1:{await self.server.listen('127.0.0.1', 0)}"
        for broker in self.brokers:
            await broker.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.gather(self.server.close(), *(broker.server.close() for broker in self.brokers))

    def hold_routes(self) -> None:
        self.held = []

    def answer_routes(self) -> None:
        held, self.held = self.held or [], None
        for channel, command in held:
            channel.send(self._answer(command))

    def _route(self, channel: Channel, command: Command) -> Command | None:
        self.asked.append(command.ext["topic"])
        self.route_asked.set()
        if self.held is None:
            return self._answer(command)
        self.held.append((channel, command))
        return None

    def _answer(self, command: Command) -> Command:
        topic = command.ext["topic"]
        if topic in self.unknown:
            return response(command, ResponseCode.TOPIC_NOT_EXIST, remark=f"No topic route info: {topic}")
        return response(command, body=dumps(self.extra.get(topic, self.route()).to_json()))

    def route(self) -> TopicRouteData:
        return TopicRouteData(
            tuple(QueueData(broker.name, self.queue_nums, self.queue_nums, 6) for broker in self.brokers),
            tuple(BrokerData("C", broker.name, {0: broker.address}) for broker in self.brokers),
        )


@pytest.fixture
def new_cluster() -> Iterator[Callable[..., Cluster]]:
    """`async with new_cluster("a", "b") as cluster:` inside asyncio.run."""

    def make(*names: str, **options: Any) -> Cluster:
        return Cluster([ScriptedBroker(name) for name in names or ("broker-a",)], **options)

    yield make


@pytest.fixture
def served_cluster(new_cluster: Callable[..., Cluster]) -> Iterator[Cluster]:
    """Scripted servers on a loop of their own, as another process would be."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="servers")
    thread.start()

    async def make() -> Cluster:
        return await new_cluster("a").__aenter__()

    made = asyncio.run_coroutine_threadsafe(make(), loop).result(60)
    made.loop = loop
    yield made
    asyncio.run_coroutine_threadsafe(made.__aexit__(), loop).result(60)
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()
