"""The life cycle that both consumers share: start once, run, close once, and the errors for a call at the wrong time.

Each consumer defines what it does when it starts and ends: `_begin` and `_end`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from types import TracebackType
from typing import ClassVar, Generic, Protocol, Self, TypeVar

from aerobee.client.consumer.offsetstore import BrokerOffsets, LocalOffsets, OffsetStore, local_offsets_path
from aerobee.client.core import ClientConfig, ClientCore, ClientStateError, acquire_core, release_core
from aerobee.client.producer import Replier
from aerobee.runtime.process import fork_count


class ConsumerEngine(Protocol):
    """The part of a consumer that exists while it runs."""

    core: ClientCore


E = TypeVar("E", bound=ConsumerEngine)


class ConsumerLifecycle(ABC, Generic[E]):
    """A consumer that is not started, runs, or is closed. It belongs to one process: a forked child starts its own."""

    # Says how to start the consumer, for the error of a call before that.
    _start_hint: ClassVar[str]

    def __init__(self, client_config: ClientConfig, wire_group: str) -> None:
        self.client_config = client_config
        self.wire_group = wire_group
        self._core: ClientCore | None = None
        self._engine: E | None = None
        self._replier: Replier | None = None
        self._closed = False

    async def start(self) -> Self:
        """Start, and join the group. Messages come from then on. A second call does nothing."""
        if self._closed:
            raise ClientStateError("the consumer is closed", hint="make a new one")
        if self._engine is not None and self._engine.core.fork == fork_count():
            return self
        self._require_ready()
        core = self._core = await acquire_core(self.client_config, consumer_group=self.wire_group)
        try:
            replier = self._replier = Replier(core)
            engine = self._engine = self._new_engine(core, replier)
            await self._begin(core, engine)
        except BaseException:
            await self.close()
            raise
        return self

    async def close(self) -> None:
        """Let the work under way end, save offsets and leave the group. A second call does nothing."""
        if self._closed:
            return
        self._closed = True
        core, engine = self._core, self._engine
        if core is None or core.fork != fork_count():
            return
        try:
            if engine is not None:
                await self._end(engine)
        finally:
            if self._replier is not None:
                self._replier.close()
            await release_core(core)

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def _running(self) -> E:
        engine = self._engine
        if engine is None or self._closed:
            state = "closed" if self._closed else "not started"
            raise ClientStateError(f"the consumer is {state}", hint=self._start_hint)
        if engine.core.fork != fork_count():
            raise ClientStateError("the consumer was started before a fork, in the parent process")
        return engine

    def _offset_store(self, core: ClientCore, broadcast: bool, offset_dir: str | None, by_time: bool) -> OffsetStore:
        """Return the store at the brokers; for a broadcast consumer, a file of this client."""
        if not broadcast:
            return BrokerOffsets(core, self.wire_group, young_from_zero=not by_time)
        own = core.config
        return LocalOffsets(local_offsets_path(offset_dir, own.client_ip, own.instance_name, self.wire_group))

    # -- what each consumer defines

    def _require_ready(self) -> None:
        """Raise, before anything is opened, where the consumer cannot start."""

    @abstractmethod
    def _new_engine(self, core: ClientCore, replier: Replier) -> E: ...

    @abstractmethod
    async def _begin(self, core: ClientCore, engine: E) -> None: ...

    @abstractmethod
    async def _end(self, engine: E) -> None: ...
