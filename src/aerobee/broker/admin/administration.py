"""Everything a broker does for its administrators, built from what the broker's parts share."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from aerobee.broker.admin.livesettings import Changed, LiveSettings
from aerobee.broker.admin.queues import QueueAdmin
from aerobee.broker.admin.refused import RefusedRequests
from aerobee.broker.admin.retention import RetentionDriver
from aerobee.broker.admin.runtime import RuntimeAdmin
from aerobee.broker.admin.runtimeinfo import DiskSpace, RuntimeInfo
from aerobee.broker.admin.settings import ConfigAdmin
from aerobee.broker.clientside import ClientTables
from aerobee.broker.config import BrokerConfig
from aerobee.broker.flowcontrol import FlowControl, Work
from aerobee.broker.membership.connections import ClientAdmin
from aerobee.broker.membership.relay import RelayAdmin
from aerobee.broker.offsets.progress import ProgressAdmin
from aerobee.broker.offsets.reset import ResetAdmin
from aerobee.broker.state import BrokerState
from aerobee.broker.topics.grouprequests import GroupAdmin
from aerobee.broker.topics.topicrequests import TopicAdmin
from aerobee.net.channel import Channel
from aerobee.net.server import Answer, Handler
from aerobee.protocol.codes import ResponseCode
from aerobee.protocol.command import Command, response
from aerobee.runtime.seams import Clock
from aerobee.store.config import StoreConfig

# Requests to clients are told apart by number on each channel; others who ask clients count from 1.
_FIRST_OPAQUE = 1 << 30


class Administration:
    """`handlers` for the dispatch, `tick` often. `changed` hears of settings that took other values."""

    def __init__(
        self,
        state: BrokerState,
        tables: ClientTables,
        changed: Changed,
        local_hour: Callable[[int], int],
        disk_space: DiskSpace | None = None,
        pending: Callable[[], Mapping[str, str]] = dict,
    ) -> None:
        """`pending` tells what waits (timers, transactions), in the words of the runtime info."""
        self._state = state
        self._on_changed = changed
        self._opaque = _FIRST_OPAQUE
        self.retention = RetentionDriver(state.store, state.clock, local_hour, state.name)
        self.info = RuntimeInfo(
            state, lambda: tables.delays.table, disk_space, pending, lambda: entries_rejected(state, tables)
        )
        self.settings = LiveSettings(state, self._changed)
        parts = (
            TopicAdmin(state, tables.offsets),
            GroupAdmin(state, tables.offsets),
            ClientAdmin(state),
            ProgressAdmin(state, tables),
            ResetAdmin(state, self._next_opaque),
            RelayAdmin(state, self._next_opaque),
            QueueAdmin(state),
            ConfigAdmin(self.settings, state.clock),
            RuntimeAdmin(state, self.info, self.retention),
            RefusedRequests(),
        )
        self.handlers: dict[int, Handler] = {
            code: _unless_busy(handler, state.flow, state.clock)
            for part in parts
            for code, handler in part.handlers().items()
        }

    def tick(self, now_s: float) -> None:
        self.info.tick(now_s)
        self.retention.tick(now_s)

    def _next_opaque(self) -> int:
        self._opaque = _FIRST_OPAQUE | (self._opaque + 1) & (_FIRST_OPAQUE - 1)
        return self._opaque

    def _changed(self, config: BrokerConfig, store_config: StoreConfig) -> None:
        self.retention.reconfigure(store_config)
        self._on_changed(config, store_config)


def _unless_busy(handler: Handler, flow: FlowControl, clock: Clock) -> Handler:
    def guarded(channel: Channel, command: Command) -> Answer:
        busy = flow.busy(Work.ADMIN, clock.monotonic())
        if busy is not None:
            return response(command, ResponseCode.SYSTEM_BUSY, remark=busy)
        return handler(channel, command)

    return guarded


def entries_rejected(state: BrokerState, tables: ClientTables) -> int:
    """How many entries of the broker's state files lie beside them because they could not be used."""
    catalog = state.catalog
    files = (catalog.topic_table, catalog.group_table, tables.offsets, tables.delays, tables.modes, state.filters)
    return sum(file.rejected for file in files)
