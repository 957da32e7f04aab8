"""The broker groups of a cluster, and the private requests of the sink to them: begin, status, rows, end."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable
from typing import Final

from aerobee.errors import AerobeeError, InvalidArgumentError, TransportError
from aerobee.errors.codes import error_for
from aerobee.model.names import AUTO_CREATE_TOPIC
from aerobee.protocol.bodies.cluster import ClusterInfo
from aerobee.protocol.codes import PrivateRequestCode, RequestCode, ResponseCode
from aerobee.protocol.command import Command
from aerobee.protocol.headers.base import Header, decode_header
from aerobee.protocol.headers.batches import (
    BatchBeginRequestHeader,
    BatchEndRequestHeader,
    BatchRowsRequestHeader,
    BatchRowsResponseHeader,
    BatchStatusRequestHeader,
    BatchStatusResponseHeader,
)
from pyspark_rocketmq.sink.client import SinkClient
from pyspark_rocketmq.sink.decision import REPLACED_HINT, Driver, Plan, ReplacedError, Status, decode_plan

_PAUSE_S: Final = 0.02
_PAUSE_MAX_S: Final = 1.0
_LOOK_S: Final = 0.2
_NOT_SAFE: Final = frozenset(
    (ResponseCode.FLUSH_DISK_TIMEOUT, ResponseCode.FLUSH_SLAVE_TIMEOUT, ResponseCode.SLAVE_NOT_AVAILABLE)
)


class NeedsAerobeeError(AerobeeError):
    """The delivery guarantee needs Aerobee's broker."""


class BrokerGroups:
    """The masters of the broker groups, as the name servers know them now."""

    def __init__(self, client: SinkClient) -> None:
        self._client = client
        self._addresses: dict[str, str] = {}

    async def find(self) -> list[str]:
        """Return the names of all groups that have a master, sorted. Wait while no name server answers."""
        loop = asyncio.get_running_loop()
        until_s = loop.time() + self._client.options.endpoint.retry_timeout_ms / 1000
        while True:
            try:
                return await self._find_now()
            except TransportError:
                if loop.time() >= until_s:
                    raise
            await asyncio.sleep(_LOOK_S)

    async def _find_now(self) -> list[str]:
        answer = await self._client.core.ask_namesrv(RequestCode.GET_BROKER_CLUSTER_INFO)
        if answer.code != ResponseCode.SUCCESS:
            raise error_for(answer.code, answer.remark, self._client.core.namesrv)
        table = ClusterInfo.decode(answer.body).broker_addr_table
        cluster = self._client.options.cluster
        self._addresses = {
            name: data.broker_addrs[0]
            for name, data in table.items()
            if 0 in data.broker_addrs and cluster in (None, data.cluster)
        }
        clusters = sorted({data.cluster for data in table.values()})
        if clusters and cluster is not None and cluster not in clusters:
            raise InvalidArgumentError(
                f"the name server knows no broker of cluster {cluster!r}", hint=f"it knows {', '.join(clusters)}"
            )
        if not self._addresses:
            raise TransportError("the name server knows no master", hint="is one running, and registered there?")
        return sorted(self._addresses)

    # -- requests

    async def begin(self, group: str, query: str, driver: Driver) -> None:
        """Make this run the driver of the query at a group. The group refuses where a later run has begun."""
        header = BatchBeginRequestHeader(
            query_id=query, epoch=driver.epoch, run=driver.run, lease_ms=self._client.options.lease_ms
        )
        await self._ask(group, PrivateRequestCode.BATCH_BEGIN, header)

    async def status(self, group: str, query: str, batch: int, driver: Driver) -> Status:
        """Return the status of a batch at a group. Raise NeedsAerobeeError where the broker cannot tell."""
        header = BatchStatusRequestHeader(
            query_id=query, batch_id=batch, lease_ms=self._client.options.lease_ms, epoch=driver.epoch, run=driver.run
        )
        answer = await self._ask(group, PrivateRequestCode.BATCH_STATUS, header)
        said = decode_header(BatchStatusResponseHeader, answer)
        return Status(
            said.state,
            said.committed,
            decode_plan(answer.body),
            said.remaining,
            tuple(said.witnesses.split(",")) if said.witnesses else (),
            {topic: tuple(names) for topic, names in json.loads(said.keyed or "{}").items()},
            Driver(said.epoch, said.run),
            said.replaced,
            said.set_aside,
        )

    async def statuses(self, groups: Iterable[str], query: str, batch: int, driver: Driver) -> dict[str, Status]:
        names = list(groups)
        found = await asyncio.gather(*(self.status(group, query, batch, driver) for group in names))
        return dict(zip(names, found, strict=True))

    async def rows(self, group: str, header: BatchRowsRequestHeader, body: bytes) -> int:
        """Send rows to a group. Return how many of them were new there."""
        answer = await self._ask(group, PrivateRequestCode.BATCH_ROWS, header, body)
        return decode_header(BatchRowsResponseHeader, answer).stored

    async def end(self, group: str, query: str, batch: int, action: str, plan: Plan | None, driver: Driver) -> None:
        header = BatchEndRequestHeader(
            query_id=query, batch_id=batch, action=action, lease_ms=self._client.options.lease_ms, epoch=driver.epoch,
            run=driver.run,
        )  # fmt: skip
        await self._ask(group, PrivateRequestCode.BATCH_END, header, plan.encode() if plan is not None else b"")

    def rows_header(
        self, query: str, batch: int, driver: Driver, topic: str, queue_id: int, **fields: str | int
    ) -> BatchRowsRequestHeader:
        options = self._client.options
        return BatchRowsRequestHeader(
            query_id=query,
            batch_id=batch,
            topic=topic,
            queue_id=queue_id,
            producer_group=options.group,
            default_topic=AUTO_CREATE_TOPIC,
            lease_ms=options.lease_ms,
            epoch=driver.epoch,
            run=driver.run,
            **fields,  # type: ignore[arg-type]  # the names are checked by the header
        )

    async def _ask(self, group: str, code: int, header: Header, body: bytes = b"") -> Command:
        """Send a request. It may be repeated, and is as long as there is time, also while a broker restarts."""
        client = self._client
        loop = asyncio.get_running_loop()
        endpoint = client.options.endpoint
        until_s = loop.time() + endpoint.retry_timeout_ms / 1000
        pause_s = _PAUSE_S
        while True:
            try:
                return await self._try(group, code, header, body, endpoint.request_timeout_ms / 1000)
            except AerobeeError as error:
                if not error.retriable or loop.time() + pause_s > until_s:
                    if error.broker is None:
                        error.broker = group
                    raise
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, _PAUSE_MAX_S)
            await self._look_again()

    async def _look_again(self) -> None:
        try:
            await self._find_now()
        except AerobeeError:
            return  # the known address is tried again

    async def _try(self, group: str, code: int, header: Header, body: bytes, timeout_s: float) -> Command:
        address = self._addresses.get(group)
        if address is None:
            raise TransportError(
                f"broker group {group} is not there", retriable=True, hint="start it: it takes part in the batch"
            )
        try:
            answer = await self._client.core.call(address, code, header, body, timeout_s=timeout_s)
        except TimeoutError:
            self._client.core.remoting.drop(address)
            raise
        if answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
            raise NeedsAerobeeError(
                f"deliveryGuarantee={self._client.options.guarantee} needs Aerobee's broker, which {group} ({address}) "
                "is not, or it is older than this sink",
                hint="use deliveryGuarantee=at-least-once with Apache RocketMQ's brokers",
            )
        if answer.code in _NOT_SAFE:
            raise error_for(ResponseCode.SYSTEM_BUSY, "stored, but less safely than asked", f"{group} ({address})")
        if answer.code != ResponseCode.SUCCESS:
            raise refusal_error(answer.code, answer.remark or "", f"{group} ({address})")
        return answer


def refusal_error(code: int, remark: str, broker: str) -> AerobeeError:
    """Return the error of a broker's refusal. A refused driver has an error of its own."""
    if code == ResponseCode.CONTROLLER_FENCED_MASTER_EPOCH:
        return ReplacedError(remark, code=code, broker=broker, hint=REPLACED_HINT)
    return error_for(code, remark, broker)
