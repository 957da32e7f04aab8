"""The progress of a group (or of one broadcast consumer): offsets in memory, saved at the brokers or in a local file.

An offset that could not be read is an error and never a number: the caller asks again. RocketMQ:
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
    """The offsets in memory, and which of them are not saved yet."""

    def __init__(self) -> None:
        self._offsets: dict[MessageQueue, int] = {}
        self._persisted: dict[MessageQueue, int] = {}
        self._kept: dict[MessageQueue, int] = {}

    def get(self, queue: MessageQueue) -> int | None:
        return self._offsets.get(queue)

    def advance(self, queue: MessageQueue, offset: int) -> None:
        """Move an offset forward, never back: of two handlers that end together, the later one may report first."""
        if offset > self._offsets.get(queue, -1):
            self._offsets[queue] = offset

    def reset(self, queue: MessageQueue, offset: int) -> None:
        """Set an offset to where the user or the broker says, also back."""
        self._offsets[queue] = offset

    def known(self, queue: MessageQueue, offset: int) -> None:
        """Note that this offset is saved."""
        self._persisted[queue] = offset

    def forget_saved(self) -> None:
        """Count all offsets as unsaved: a broker that crashed has forgotten the last seconds."""
        self._persisted.clear()

    def unsaved(self, queues: Iterable[MessageQueue] | None = None) -> dict[MessageQueue, int]:
        """Return the offsets that differ from the saved ones, of these queues or of all."""
        of = self._offsets if queues is None else [queue for queue in queues if queue in self._offsets]
        return {queue: self._offsets[queue] for queue in of if self._persisted.get(queue) != self._offsets[queue]}

    def remove(self, queue: MessageQueue, *, keep: bool = False) -> None:
        """Forget a queue that was given up: what others commit from now on must not be overwritten.

        `keep` remembers how far it was, because its broker is away and may come back without its last seconds.
        """
        offset = self._offsets.pop(queue, None)
        self._persisted.pop(queue, None)
        if keep and offset is not None:
            self._kept[queue] = offset

    def kept(self, queue: MessageQueue) -> int | None:
        """Return the offset of a queue when its broker went away."""
        return self._kept.get(queue)

    def forget_kept(self, queue: MessageQueue) -> None:
        self._kept.pop(queue, None)

    def items(self) -> dict[MessageQueue, int]:
        return dict(self._offsets)


class OffsetStore(Protocol):
    """A place where offsets are saved."""

    table: OffsetTable

    async def load(self) -> None:
        """Read what must be read before the first queue is assigned."""

    async def read(self, queue: MessageQueue) -> int | None:
        """Return the saved offset, None where there is none. Raise where it cannot be read."""

    async def persist(self, queues: Iterable[MessageQueue] | None = None) -> bool:
        """Save the unsaved offsets, of these queues or of all. Return whether all were saved."""


async def keep_saving(store: OffsetStore, interval_s: float) -> None:
    """Save the offsets that changed in every interval, and all offsets every sixth time."""
    for count in itertools.count(1):
        await asyncio.sleep(interval_s)
        if count % _ALL_EVERY == 0:
            store.table.forget_saved()
        await store.persist()


class BrokerOffsets:
    """The offsets of a group, each saved by the broker of its queue."""

    def __init__(self, core: ClientCore, group: str, *, young_from_zero: bool = True) -> None:
        self.table = OffsetTable()
        self._core = core
        self._group = group
        # Where a group has no offset and the queue is young, a broker answers 0, so that the group misses nothing that
        # was sent before its first consumer came. A group that starts at a time does not want that.
        self._set_zero = None if young_from_zero else False
        # A broker may work on requests in any order, so the offset of a queue is sent when the one before is answered.
        # Queues do not wait for each other: the next owner of a queue should find its last offset saved.
        self._saving: dict[MessageQueue, asyncio.Lock] = {}

    async def load(self) -> None:
        """Do nothing: the offset of a queue is read when it is assigned."""

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
        # Not cancelled with the caller: an offset on its way must have arrived before a later one is sent.
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
            _log.warning(
                "an offset could not be saved and will be tried again", queue=queue, offset=offset, reason=str(error)
            )
            self._core.doubt_route(queue.topic, error)
            return False
        self.table.known(queue, offset)
        return True


def local_offsets_path(directory: str | None, client_ip: str | None, instance_name: str | None, group: str) -> str:
    """Return the file of a broadcast consumer, where Apache's client has it. Its name is the same after a restart."""
    client = f"{client_ip or local_address()}@{instance_name or 'DEFAULT'}"
    root = directory if directory is not None else home_path(".rocketmq_offsets")
    return join_path(root, client, group, "offsets.json")


class LocalOffsets:
    """The offsets of one broadcast consumer, in a local file of Apache's format."""

    def __init__(self, path: str) -> None:
        self.table = OffsetTable()
        self._path = path
        self._stored: dict[MessageQueue, int] = {}
        self._writing = asyncio.Lock()

    async def load(self) -> None:
        """Read the file, or its copy where it is damaged. Raise where both are: only the user may start anew."""
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
                _log.warning("a file of offsets cannot be read", file=path, reason=str(error))
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
                _log.warning("offsets could not be saved and will be tried again", file=self._path, reason=str(error))
                return False
        for queue, offset in unsaved.items():
            self.table.known(queue, offset)
        return True
