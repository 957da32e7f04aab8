"""BATCH_STATUS, BATCH_ROWS and BATCH_END: our own requests for sinks (docs/formats/private.md)."""

from __future__ import annotations

import json
from typing import Final

from aerobee.broker.answers import answer_later
from aerobee.broker.batches.copies import Origin
from aerobee.broker.batches.driver import Batches, Told
from aerobee.broker.batches.limits import LEASE_MAX_MS, refuse_chunk, refuse_name
from aerobee.broker.batches.records import KEY_SIZE, BatchDriver, BatchEntry, Kind
from aerobee.broker.flowcontrol import FlowControl, Work
from aerobee.broker.log import SendSettings
from aerobee.broker.refusal import Refusal
from aerobee.broker.topics import Catalog
from aerobee.hot.log.layout import MULTI_TAGS
from aerobee.hot.wire.send import SendFields
from aerobee.model.topic import MULTI_TAG, TopicConfig
from aerobee.net.channel import Channel
from aerobee.net.server import Handler
from aerobee.protocol.codes import PrivateRequestCode, ResponseCode
from aerobee.protocol.command import Command, response
from aerobee.protocol.headers.base import decode_header
from aerobee.protocol.headers.batches import (
    BatchBeginRequestHeader,
    BatchEndRequestHeader,
    BatchRowsRequestHeader,
    BatchRowsResponseHeader,
    BatchStatusRequestHeader,
    BatchStatusResponseHeader,
)
from aerobee.runtime.seams import Clock

_ACTIONS: Final = {kind.value: kind for kind in (Kind.PREPARE, Kind.COMMIT, Kind.ABORT)}


class BatchHandlers:
    """The requests about batches. Each is answered when what it asks for is stored."""

    def __init__(
        self, batches: Batches, catalog: Catalog, settings: SendSettings, flow: FlowControl, clock: Clock
    ) -> None:
        self._batches = batches
        self._catalog = catalog
        self._settings = settings
        self._flow = flow
        self._clock = clock

    def handlers(self) -> dict[int, Handler]:
        return {
            PrivateRequestCode.BATCH_BEGIN: self.begin,
            PrivateRequestCode.BATCH_STATUS: self.status,
            PrivateRequestCode.BATCH_ROWS: self.rows,
            PrivateRequestCode.BATCH_END: self.end,
        }

    def begin(self, channel: Channel, command: Command) -> Command | None:
        header = decode_header(BatchBeginRequestHeader, command)
        driver = BatchDriver(header.epoch, header.run)
        refusal = refuse_name(header.query_id, 0, driver)
        if refusal is None and not driver.epoch:
            refusal = Refusal(ResponseCode.MESSAGE_ILLEGAL, "a driver begins with an epoch from 1 on")
        if refusal is not None:
            return response(command, refusal.code, remark=refusal.remark)
        self._batches.begin(header.query_id, driver, _lease(header.lease_ms), _answering(channel, command))
        return None

    def status(self, channel: Channel, command: Command) -> Command | None:
        header = decode_header(BatchStatusRequestHeader, command)
        query, batch = header.query_id, header.batch_id
        # A run without an epoch asks whether it was replaced.
        driver = BatchDriver(header.epoch, header.run if header.epoch else "")
        refusal = refuse_name(query, batch, driver) or self._batches.heard(query, driver, _lease(header.lease_ms))
        if refusal is not None:
            return response(command, refusal.code, remark=refusal.remark)
        table = self._batches.table
        state, plan, committed = table.state_of(query, batch)
        keyed = table.keyed_groups(query, batch)
        known = table.driver_of(query)
        said = BatchStatusResponseHeader(
            state=state,
            committed=committed,
            remaining=table.remaining(query),
            epoch=known.epoch,
            run=known.run,
            replaced=table.is_replaced(query, header.run),
            set_aside=table.set_aside(query, batch),
            witnesses=",".join(table.witnesses(query)) or None,
            keyed=json.dumps(keyed) if keyed else None,
        )
        return response(command, ResponseCode.SUCCESS, said, plan.encode() if plan is not None else b"")

    def rows(self, channel: Channel, command: Command) -> Command | None:
        busy = self._flow.busy(Work.SEND, self._clock.monotonic())
        if busy is not None:
            return response(command, ResponseCode.SYSTEM_BUSY, remark=busy)
        header = decode_header(BatchRowsRequestHeader, command)
        driver = BatchDriver(header.epoch, header.run)
        refusal = refuse_name(header.query_id, header.batch_id, driver) or refuse_chunk(
            header.attempt or "", header.sequence, header.groups or ""
        )
        topic = refusal or self._topic(header)
        if isinstance(topic, Refusal):
            return response(command, topic.code, remark=topic.remark)
        size = header.keys * KEY_SIZE
        if not 0 <= size <= len(command.body) or header.attempt == "":
            return response(
                command, ResponseCode.MESSAGE_ILLEGAL, remark="keys are missing, or the attempt has no name"
            )
        keys = None
        if header.attempt is None:
            keys = [command.body[at : at + KEY_SIZE] for at in range(0, size, KEY_SIZE)]
        entry = BatchEntry(
            Kind.ROWS if keys is None else Kind.KEYS,
            header.query_id,
            header.batch_id,
            header.attempt or "",
            header.sequence,
            topic=header.topic,
            queue_id=header.queue_id,
            lease_ms=_lease(header.lease_ms),
            groups=tuple(header.groups.split(",")) if header.groups else (),
            epoch=driver.epoch,
            run=driver.run,
        )
        sys_flag = MULTI_TAGS if topic.topic_filter_type == MULTI_TAG else 0
        origin = Origin(
            header.topic, header.queue_id, sys_flag, self._clock.now_ms(), channel.remote_host,
            self._settings.store_host, 0,
        )  # fmt: skip

        def told(code: int, remark: str, stored: int) -> None:
            said = None if remark else BatchRowsResponseHeader(stored=stored)
            answer_later(channel, response(command, code, said, remark=remark or None), command)

        self._batches.rows(entry, topic, command.body[size:], origin, keys, told)
        return None

    def _topic(self, header: BatchRowsRequestHeader) -> TopicConfig | Refusal:
        """Return the topic of the rows, made where the rules allow it for a send."""
        fields = SendFields(
            header.producer_group, header.topic, header.default_topic, header.default_topic_queue_nums,
            header.queue_id, 0, 0, 0, b"", 0, False, -1, False, "",
        )  # fmt: skip
        return self._catalog.for_send(fields)

    def end(self, channel: Channel, command: Command) -> Command | None:
        header = decode_header(BatchEndRequestHeader, command)
        action = _ACTIONS.get(header.action)
        if action is None:
            return response(command, ResponseCode.ILLEGAL_OPERATION, remark=f"no action {header.action}")

        driver = BatchDriver(header.epoch, header.run)
        refusal = refuse_name(header.query_id, header.batch_id, driver)
        if refusal is not None:
            return response(command, refusal.code, remark=refusal.remark)
        entry = BatchEntry(
            action, header.query_id, header.batch_id, lease_ms=_lease(header.lease_ms), epoch=driver.epoch,
            run=driver.run,
        )  # fmt: skip
        self._batches.end(entry, command.body, _answering(channel, command))
        return None


def _answering(channel: Channel, command: Command) -> Told:
    def told(code: int, remark: str, stored: int) -> None:
        answer_later(channel, response(command, code, remark=remark or None), command)

    return told


def _lease(lease_ms: int) -> int:
    return min(max(lease_ms, 0), LEASE_MAX_MS)
