"""How far a group (or one broadcast consumer) has come: kept in memory, written to the broker or to a local file.

An offset that could not be asked for is an error and never a number: whoever needs it asks again. RocketMQ:
RemoteBrokerOffsetStore, LocalFileOffsetStore.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterable
from typing import Protocol

from aerobee.client.core import ClientCore
from aerobee.errors import AerobeeError
from aerobee.errors.codes import error_for
from aerobee.model.dialect import DialectError
from aerobee.model.queue import MessageQueue
from aerobee.protocol.bodies.offsets import ResetOffsetBody
from aerobee.protocol.codes import RequestCode, ResponseCode
from aerobee.protocol.headers.base import decode_header
from aerobee.protocol.headers.offset import (
    QueryConsumerOffsetRequestHeader,
    QueryConsumerOffsetResponseHeader,
    UpdateConsumerOffsetRequestHeader,
)
from aerobee.runtime.process import local_address
from aerobee.runtime.smallfile import home_path, join_path, read_small, replace_small
from aerobee.telemetry.stdlog import get_log

_TIMEOUT_S = 5.0
_ALL_EVERY = 6
_log = get_log("client.offsets")


class OffsetTable:
    """The offsets in memory, and which of them the store does not know yet."""

    def __init__(self) -> None:
        self._offsets: dict[MessageQueue, int] = {}
        self._persisted: dict[MessageQueue, int] = {}
        self._kept: dict[MessageQueue, int] = {}

    def get(self, queue: MessageQueue) -> int | None:
        return self._offsets.get(queue)

    def advance(self, queue: MessageQueue, offset: int) -> None:
        """Never backwards: of two handlers that end together, the later one may tell first."""
        if offset > self._offsets.get(queue, -1):
            self._offsets[queue] = offset

    def reset(self, queue: MessageQueue, offset: int) -> None:
        """To where the user or the broker says, also backwards."""
        self._offsets[queue] = offset

    def known(self, queue: MessageQueue, offset: int) -> None:
        """The store has this one."""
        self._persisted[queue] = offset

    def forget_saved(self) -> None:
        """Save all of them again: a broker that crashed has forgotten the last seconds."""
        self._persisted.clear()

    def unsaved(self, queues: Iterable[MessageQueue] | None = None) -> dict[MessageQueue, int]:
        """Those that differ from what the store has."""
        of = self._offsets if queues is None else [queue for queue in queues if queue in self._offsets]
        return {queue: self._offsets[queue] for queue in of if self._persisted.get(queue) != self._offsets[queue]}

    def remove(self, queue: MessageQueue, *, keep: bool = False) -> None:
        """No longer ours: what others commit from now on must not be overwritten. `keep`: its broker is away and may
        come back without the offsets of its last seconds."""
        offset = self._offsets.pop(queue, None)
        self._persisted.pop(queue, None)
        if keep and offset is not None:
            self._kept[queue] = offset

    def kept(self, queue: MessageQueue) -> int | None:
        """How far it was when its broker went away."""
        return self._kept.get(queue)

    def forget_kept(self, queue: MessageQueue) -> None:
        self._kept.pop(queue, None)

    def items(self) -> dict[MessageQueue, int]:
        return dict(self._offsets)


class OffsetStore(Protocol):
    """Where offsets are kept."""

    table: OffsetTable

    async def load(self) -> None:
        """Before anything else."""

    async def read(self, queue: MessageQueue) -> int | None:
        """The stored offset, None where there is none. Raises what prevented the answer."""

    async def persist(self, queues: Iterable[MessageQueue] | None = None) -> bool:
        """Save what is unsaved, of these queues or of all; whether all of it was saved."""


async def keep_saving(store: OffsetStore, interval_s: float) -> None:
    """What changed, every interval; everything, every sixth time."""
    for count in itertools.count(1):
        await asyncio.sleep(interval_s)
        if count % _ALL_EVERY == 0:
            store.table.forget_saved()
        await store.persist()


class BrokerOffsets:
    """Kept by the broker that holds the queue, for the whole group."""

    def __init__(self, core: ClientCore, group: str, *, young_from_zero: bool = True) -> None:
        self.table = OffsetTable()
        self._core = core
        self._group = group
        # A broker says 0 for a group without an offset where the queue is young, so that nothing sent before its
        # first consumer came is missed. Whoever named a time wants that time.
        self._set_zero = None if young_from_zero else False
        # A broker works on requests in any order, so that a queue's offset may only be sent when the one before is
        # answered. Queues do not wait for each other: whoever takes one over should find its last offset saved.
        self._saving: dict[MessageQueue, asyncio.Lock] = {}

    async def load(self) -> None:
        """Nothing to do: each queue's is read when it is assigned."""

    async def read(self, queue: MessageQueue) -> int | None:
        address = await self._core.address_of(queue)
        header = QueryConsumerOffsetRequestHeader(
            consumer_group=self._group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            set_zero_if_not_found=self._set_zero,
            bname=queue.broker_name,
        )
        answer = await self._core.call(address, RequestCode.QUERY_CONSUMER_OFFSET, header, timeout_s=_TIMEOUT_S)
        if answer.code == ResponseCode.QUERY_NOT_FOUND:
            return None
        if answer.code != ResponseCode.SUCCESS:
            raise error_for(answer.code, answer.remark, address)
        return decode_header(QueryConsumerOffsetResponseHeader, answer).offset

    async def persist(self, queues: Iterable[MessageQueue] | None = None) -> bool:
        # Not cut short with the caller: what is on its way must have arrived before anything later is sent.
        return await asyncio.shield(asyncio.ensure_future(self._persist(queues)))

    async def _persist(self, queues: Iterable[MessageQueue] | None) -> bool:
        saved = await asyncio.gather(*(self._save_latest(queue) for queue in self.table.unsaved(queues)))
        return all(saved)

    async def _save_latest(self, queue: MessageQueue) -> bool:
        async with self._saving.setdefault(queue, asyncio.Lock()):
            offset = self.table.unsaved([queue]).get(queue)
            return offset is None or await self._save(queue, offset)

    async def _save(self, queue: MessageQueue, offset: int) -> bool:
        header = UpdateConsumerOffsetRequestHeader(
            consumer_group=self._group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            commit_offset=offset,
            bname=queue.broker_name,
        )
        try:
            address = await self._core.address_of(queue)
            await self._core.ask(address, RequestCode.UPDATE_CONSUMER_OFFSET, header, timeout_s=_TIMEOUT_S)
        except AerobeeError as error:
            _log.warning("offset not saved, will be again", queue=queue, offset=offset, reason=str(error))
            return False
        self.table.known(queue, offset)
        return True


def local_offsets_path(directory: str | None, client_ip: str | None, instance_name: str | None, group: str) -> str:
    """Apache's place, found again after a restart: not by the client id, which names the process."""
    client = f"{client_ip or local_address()}@{instance_name or 'DEFAULT'}"
    root = directory if directory is not None else home_path(".rocketmq_offsets")
    return join_path(root, client, group, "offsets.json")


class LocalOffsets:
    """Kept in a file of this machine, for one broadcast consumer; Apache's format and place."""

    def __init__(self, path: str) -> None:
        self.table = OffsetTable()
        self._path = path
        self._stored: dict[MessageQueue, int] = {}
        self._writing = asyncio.Lock()

    async def load(self) -> None:
        """A damaged file falls back on its copy. Raises where both are: to begin anew is the user's decision."""
        self._stored = await asyncio.get_running_loop().run_in_executor(None, self._read)

    def _read(self) -> dict[MessageQueue, int]:
        problem: DialectError | None = None
        for path in (self._path, self._path + ".bak"):
            data = read_small(path)
            if not data:
                continue
            try:
                return dict(ResetOffsetBody.decode(data).offset_table)
            except DialectError as error:
                _log.warning("offsets cannot be read", file=path, reason=str(error))
                problem = error
        if problem is not None:
            raise AerobeeError(
                f"{self._path}: the offsets in it and in its copy cannot be read: {problem}",
                hint="mend the file, or remove both to start where consume_from= says",
            )
        return {}

    async def read(self, queue: MessageQueue) -> int | None:
        return self._stored.get(queue)

    async def persist(self, queues: Iterable[MessageQueue] | None = None) -> bool:
        async with self._writing:
            unsaved = self.table.unsaved(queues)
            if not unsaved:
                return True
            self._stored.update(unsaved)
            data = ResetOffsetBody(dict(self._stored)).encode()
            try:
                await asyncio.get_running_loop().run_in_executor(None, replace_small, self._path, data)
            except OSError as error:
                _log.warning("offsets not saved, will be again", file=self._path, reason=str(error))
                return False
        for queue, offset in unsaved.items():
            self.table.known(queue, offset)
        return True
