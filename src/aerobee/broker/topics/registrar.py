"""The registrar, which tells every name server this broker's topics.

It registers at start, every 30 s, and at once after a topic or the role of the broker changed; a name server that does
not answer is tried again, and delays nobody by more than a second. RocketMQ: BrokerController.registerBrokerAll,
BrokerOuterAPI.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from aerobee.broker.config import BrokerConfig
from aerobee.broker.topics.catalog import Catalog
from aerobee.broker.topics.neighbours import Neighbours, differs, exchange_quietly
from aerobee.errors import AerobeeError
from aerobee.model.dataversion import DataVersion
from aerobee.model.route import MASTER_ID
from aerobee.model.topic import PERM_READ, PERM_WRITE, TopicConfig
from aerobee.net.client import RemotingClient
from aerobee.protocol.bodies.register import RegisterBrokerBody
from aerobee.protocol.bodies.topics import TopicConfigAndMappingSerializeWrapper
from aerobee.protocol.codes import GROUPS_FIELD, RequestCode
from aerobee.protocol.command import Command, request
from aerobee.protocol.headers.base import decode_header
from aerobee.protocol.headers.route import (
    RegisterBrokerRequestHeader,
    RegisterBrokerResponseHeader,
    UnRegisterBrokerRequestHeader,
)
from aerobee.runtime.seams import Clock
from aerobee.runtime.tasks import Tasks
from aerobee.telemetry.stdlog import RateLimitedLog, get_log

# Changes so soon after a registration are gathered for the next.
_GATHER_S: Final = 0.02
# Writing 10,000 topics takes a while: with many, changes are gathered for so many times as long.
_GATHER_FACTOR: Final = 10
_RETRY_S: Final = 1.0
# How long after a change of its topics a broker asks what the other groups declare now.
_NEWS_S: Final = 2.0
# How long somebody waits for name servers to take a new topic. Apache: registerBrokerTimeoutMills, 24 s.
_TELL_S: Final = 1.0

_log = get_log("broker.registrar")


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """As what a broker registers in its group."""

    broker_id: int
    # In a group that fails over: the epoch. Name servers keep the master of the highest one.
    epoch: int = 0
    # Where replicas copy the log, empty where they cannot.
    ha_address: str = ""


class Registrar:
    """Registers one broker with all its name servers."""

    def __init__(
        self,
        config: BrokerConfig,
        name: str,
        address: str,
        catalog: Catalog,
        client: RemotingClient,
        clock: Clock,
        neighbours: Neighbours | None = None,
    ) -> None:
        self._config = config
        # The other broker groups, whose topics this broker keeps; None keeps none.
        self._neighbours = neighbours
        self._name = name
        self._address = address
        # None: the broker knows of no role that it may announce, so it does not register.
        self._standing: Standing | None = Standing(broker_id=config.broker_id)
        # Whether a master still has its role. One that may have lost it registers no more.
        self.authority: Callable[[], bool] = lambda: True
        # What each name server was told last.
        self._told: dict[str, Standing] = {}
        # Called with the address of the group's master and with that of its log, as a name server answered.
        self.on_master_told: Callable[[str, str], None] = lambda address, ha_address: None
        self._catalog = catalog
        self._client = client
        self._clock = clock
        self._warn = RateLimitedLog(_log, clock)
        self._changed = asyncio.Event()
        # How long the last registration took to write.
        self._cost_s = 0.0
        # Name servers that took the newest table.
        self.registered: set[str] = set()
        # Name servers that took the last one they were sent.
        self._answering: set[str] = set()
        # Who waits for the newest table to be known; None while no task calls them.
        self._waiting: list[Callable[[], None]] | None = None
        self._somebody_waits = asyncio.Event()
        # Set, and replaced, when a registration has ended.
        self._ended = asyncio.Event()
        catalog.on_topics_changed = self._topics_changed
        catalog.when_registered = self.when_registered

    @property
    def namesrvs(self) -> list[str]:
        return [one.strip() for one in self._config.namesrv_addr.split(";") if one.strip()]

    def reconfigure(self, config: BrokerConfig) -> None:
        """Take settings that changed at run time. A new permission is told to the name servers at once."""
        permission_changed = config.broker_permission != self._config.broker_permission
        self._config = config
        if permission_changed:
            self._catalog.topic_table.bump(self._clock.now_ms())
            self._catalog.touch()
            self._topics_changed([])

    def stand(self, standing: Standing | None) -> None:
        """Register under another id or epoch, at once; with None register no more, which withdraws nothing."""
        if standing != self._standing:
            self._standing = standing
            if standing is not None:
                self._topics_changed([])

    def serve(self, catalog: Catalog) -> None:
        """Register the topics of another catalog: the broker was built anew."""
        self._catalog = catalog
        catalog.on_topics_changed = self._topics_changed
        catalog.when_registered = self.when_registered
        self._topics_changed([])

    async def start(self, tasks: Tasks) -> None:
        """Register once now, then start a task for each name server."""
        await self.register_now()
        for namesrv in self.namesrvs:
            tasks.start(self._keep(namesrv), name=f"register with {namesrv}")
        self._waiting = []
        tasks.start(self._let_go(), name="registered")

    async def register_now(self) -> None:
        """Register once with every name server, and wait for that."""
        await asyncio.gather(*(self._register_once(namesrv) for namesrv in self.namesrvs))

    async def stop(self) -> None:
        """Unregister, so that clients are no longer sent here."""
        waiting, self._waiting = self._waiting or [], None
        for done in waiting:
            done()
        header = UnRegisterBrokerRequestHeader(
            broker_name=self._name,
            broker_addr=self._address,
            cluster_name=self._config.cluster_name,
            broker_id=self._standing.broker_id if self._standing is not None else self._config.broker_id,
        )
        await asyncio.gather(*(self._unregister(namesrv, header) for namesrv in self.namesrvs))

    async def _unregister(self, namesrv: str, header: UnRegisterBrokerRequestHeader) -> None:
        command = request(RequestCode.UNREGISTER_BROKER, header, opaque=self._client.next_opaque())
        try:
            await self._client.ask(namesrv, command, timeout_s=1.0)
        except AerobeeError as error:
            _log.debug("a name server was not told that the broker leaves", namesrv=namesrv, reason=str(error))

    def when_registered(self, done: Callable[[], None]) -> None:
        """Call back when the name servers know every topic made so far; those that do not answer are not waited for."""
        if self._waiting is None or not self._is_awaited():
            done()
        else:
            self._waiting.append(done)
            self._somebody_waits.set()

    def _is_awaited(self) -> bool:
        return not self._answering <= self.registered

    def unregistered(self) -> str:
        """Return in words that no name server knows this broker, or an empty text if one does, or if it has none."""
        if self._answering or not self.namesrvs:
            return ""
        return f"unregistered: none of {', '.join(self.namesrvs)} has taken the registration of this broker"

    async def _let_go(self) -> None:
        while True:
            await self._somebody_waits.wait()
            try:
                async with asyncio.timeout(_TELL_S):
                    while self._is_awaited():
                        await self._ended.wait()
            except TimeoutError:
                _log.debug("a new topic is used before every name server knows it")
            self._somebody_waits.clear()
            waiting, self._waiting = self._waiting or [], []
            for done in waiting:
                done()

    def _topics_changed(self, changed: list[TopicConfig]) -> None:
        self.registered.clear()
        self._changed.set()

    async def _keep(self, namesrv: str) -> None:
        interval_s = self._config.register_interval_ms / 1000
        loop = asyncio.get_running_loop()
        # Whether topics changed here. They often change on the other groups too, a moment later.
        is_news = self._neighbours is not None
        while True:
            ended_s = loop.time()
            wait_s = interval_s if namesrv in self.registered else _RETRY_S
            changed = self._changed
            if is_news and self._neighbours is not None and wait_s > _NEWS_S:
                is_news = False
                if not await _is_set_within(changed, _NEWS_S):
                    await exchange_quietly(self._client, namesrv, self._neighbours, self._name)
                    wait_s -= _NEWS_S
            try:
                async with asyncio.timeout(wait_s):
                    await changed.wait()
                if self._told.get(namesrv) is self._standing:
                    await asyncio.sleep(ended_s + max(_GATHER_S, _GATHER_FACTOR * self._cost_s) - loop.time())
                if self._changed is changed:
                    # All keepers woke on this event; the next change sets a new one.
                    self._changed = asyncio.Event()
                is_news = True
            except TimeoutError:
                pass
            await self._register_once(namesrv)

    async def _register_once(self, namesrv: str) -> bool:
        neighbours = self._neighbours
        if neighbours is not None and neighbours.stamps and self._standing is not None:
            # It may have been restarted. It must know who is away before it shows a route of the others.
            await exchange_quietly(self._client, namesrv, neighbours, self._name)
        standing = self._standing
        if standing is None or not self._may_register(standing):
            return False
        version = self._catalog.topic_table.version
        command = await self._command(standing)
        timeout_s = self._config.register_timeout_ms / 1000
        self._told[namesrv] = standing
        try:
            answer = await self._client.ask(namesrv, command, timeout_s=timeout_s)
            told = decode_header(RegisterBrokerResponseHeader, answer)
            if neighbours is not None and differs(answer, neighbours):
                await exchange_quietly(self._client, namesrv, neighbours, self._name)
        except AerobeeError as error:
            self.registered.discard(namesrv)
            self._answering.discard(namesrv)
            self._warn.warning(
                namesrv, "the broker is not registered with a name server", namesrv=namesrv, reason=str(error)
            )
            return False
        else:
            self._answering.add(namesrv)
            if version == self._catalog.topic_table.version and standing is self._standing:
                self.registered.add(namesrv)
            if standing.broker_id != MASTER_ID and told.master_addr:
                self.on_master_told(told.master_addr, told.ha_server_addr or "")
            return True
        finally:
            ended, self._ended = self._ended, asyncio.Event()
            ended.set()

    def _may_register(self, standing: Standing) -> bool:
        """Tell whether a role may be announced: a master that may have been replaced does not say that it is one."""
        return standing.broker_id != MASTER_ID or self.authority()

    async def _command(self, standing: Standing) -> Command:
        config = self._config
        began_s = self._clock.monotonic()
        table = {name: self._permitted(topic) for name, topic in self._catalog.topic_table.topics.items()}
        version: DataVersion = self._catalog.topic_table.version
        if standing.epoch:
            version = replace(version, state_version=standing.epoch)
        wrapper = TopicConfigAndMappingSerializeWrapper(table, version)
        register = RegisterBrokerBody(wrapper)
        body = register.encode_compressed() if config.register_compressed else await _written(register)
        header = RegisterBrokerRequestHeader(
            broker_name=self._name,
            broker_addr=self._address,
            cluster_name=config.cluster_name,
            ha_server_addr=standing.ha_address,
            broker_id=standing.broker_id,
            compressed=config.register_compressed,
            body_crc32=zlib.crc32(body) & 0x7FFFFFFF,
        )
        self._cost_s = self._clock.monotonic() - began_s
        ext = None if self._neighbours is None else {GROUPS_FIELD: self._neighbours.digest}
        return request(RequestCode.REGISTER_BROKER, header, body, opaque=self._client.next_opaque(), ext=ext)

    def _permitted(self, topic: TopicConfig) -> TopicConfig:
        """Return a topic with no more permissions than the broker has. RocketMQ: registerBrokerAll."""
        allowed = self._config.broker_permission
        if allowed & PERM_READ and allowed & PERM_WRITE:
            return topic
        return replace(topic, perm=topic.perm & allowed)


async def _is_set_within(event: asyncio.Event, seconds: float) -> bool:
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return False
    return True


async def _written(body: RegisterBrokerBody) -> bytes:
    """Encode thousands of topics, with the loop's other work in between."""
    slices = body.encode_slices()
    while True:
        try:
            next(slices)
        except StopIteration as stop:
            written: bytes = stop.value
            return written
        await asyncio.sleep(0)
