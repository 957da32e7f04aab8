"""Everything a broker does for its clients beside send and pull, built from what the broker's parts share."""

from __future__ import annotations

from dataclasses import dataclass

from aerobee.broker.handlers.assignment import AssignmentHandlers, Routes
from aerobee.broker.handlers.clients import ClientHandlers
from aerobee.broker.handlers.effects import ClientEffects
from aerobee.broker.handlers.locks import LockHandlers
from aerobee.broker.handlers.offsets import OffsetHandlers
from aerobee.broker.handlers.query import QueryHandlers
from aerobee.broker.handlers.recall import RecallHandler
from aerobee.broker.handlers.reply import ReplyHandler
from aerobee.broker.handlers.send import SendSettings
from aerobee.broker.handlers.sendback import SendBackHandler
from aerobee.broker.handlers.special import SpecialSends
from aerobee.broker.housekeeping import Housekeeping
from aerobee.broker.putcounts import PutCounts
from aerobee.broker.scheduler import Scheduler
from aerobee.broker.state import BrokerState
from aerobee.net.server import Handler
from aerobee.store.metadata.offsets import ConsumerOffsetTable, DelayOffsetTable
from aerobee.store.metadata.plain import MessageRequestModeTable


@dataclass(frozen=True, slots=True)
class ClientTables:
    """What is kept in files for clients."""

    offsets: ConsumerOffsetTable
    delays: DelayOffsetTable
    modes: MessageRequestModeTable


@dataclass(frozen=True, slots=True)
class ClientSide:
    """`effects` observes the ports, `special` is given to SendHandler, the rest is ticked."""

    effects: ClientEffects
    special: SpecialSends
    scheduler: Scheduler
    housekeeping: Housekeeping
    handlers: dict[int, Handler]


def build_client_side(
    state: BrokerState, settings: SendSettings, tables: ClientTables, counts: PutCounts, routes: Routes
) -> ClientSide:
    """`counts.stored` is the `stored` of `state.puts`."""
    catalog, clock, entropy = state.catalog, state.clock, state.entropy
    effects = ClientEffects(state.clients, state.channel, state.polls)
    parts = (
        ClientHandlers(catalog, state.clients, effects, clock, lambda: state.config, state.filters),
        OffsetHandlers(state.store, catalog, state.offsets, clock),
        LockHandlers(state.locks, clock),
        QueryHandlers(state.store),
        RecallHandler(settings.region),
        AssignmentHandlers(catalog, state.clients, tables.modes, routes, clock),
        SendBackHandler(state.store, catalog, state.puts, state.stats, state.levels, settings, clock, entropy),
        ReplyHandler(catalog, state.clients, state.puts, settings, lambda: state.config, state.channel, clock, entropy),
    )
    handlers: dict[int, Handler] = {}
    for part in parts:
        handlers.update(part.handlers())
    return ClientSide(
        effects,
        SpecialSends(catalog, state.locks, state.levels, settings, lambda: state.config, clock),
        Scheduler(
            state.store,
            tables.delays,
            state.levels,
            state.puts,
            clock,
            save_interval_ms=state.store.config.flush_delay_offset_interval_ms,
        ),
        Housekeeping(effects, state.locks, state.stats, counts, tables.offsets, state.config, clock),
        handlers,
    )
