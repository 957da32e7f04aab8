"""Everything a broker does for its clients beside send and pull, built from what the broker's parts share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from aerobee.broker.batches.driver import Batches
from aerobee.broker.batches.requests import BatchHandlers
from aerobee.broker.delay.recall import RecallHandler
from aerobee.broker.delay.scheduler import Scheduler
from aerobee.broker.delay.timers.driver import TimerService
from aerobee.broker.delay.timers.placing import Placing
from aerobee.broker.housekeeping import Housekeeping
from aerobee.broker.log.putcounts import PutCounts
from aerobee.broker.membership.assignment import AssignmentHandlers, Routes
from aerobee.broker.membership.effects import ClientEffects
from aerobee.broker.membership.lockrequests import LockHandlers
from aerobee.broker.membership.requests import ClientHandlers
from aerobee.broker.offsets.requests import OffsetHandlers
from aerobee.broker.pull.bulk import BulkPullHandler
from aerobee.broker.pull.query import QueryHandlers
from aerobee.broker.retry.sendback import SendBackHandler
from aerobee.broker.send.handler import SendSettings
from aerobee.broker.send.reply import ReplyHandler
from aerobee.broker.send.special import SpecialSends
from aerobee.broker.state import BrokerState
from aerobee.broker.transactions.driver import Transactions
from aerobee.broker.transactions.requests import TransactionHandler
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
    timers: TimerService
    transactions: Transactions
    batches: Batches
    housekeeping: Housekeeping
    handlers: dict[int, Handler]

    def open(self) -> int:
        """Take up delays, timers and transactions from the open store; how many deliveries were spared from being
        repeated. Tables must be loaded."""
        spared = self.scheduler.open() + self.timers.open()
        self.transactions.open()
        self.batches.open()
        return spared

    def parts(self) -> dict[str, Callable[[int], None]]:
        """What is to be ticked with the time of day (ms), each for itself: one that fails must not stop the others."""
        return {
            "housekeeping": lambda now_ms: self.housekeeping.tick(),
            "delay levels": self.scheduler.tick,
            "timers": self.timers.tick,
            "transactions": self.transactions.tick,
            "batches": self.batches.tick,
        }

    def tick(self, now_ms: int) -> None:
        """Tick all parts; the first failure is the caller's."""
        for work in self.parts().values():
            work(now_ms)

    def look_again(self) -> None:
        """The clock was set: nothing may rely on when it meant to look."""
        self.scheduler.look_again()

    def is_behind(self, now_ms: int) -> bool:
        """Whether delays, timers or check-backs that are due have not been done."""
        return any(part.is_behind(now_ms) for part in (self.scheduler, self.timers, self.transactions))

    def closers(self, close_store: Callable[[], None]) -> tuple[Callable[[], None], ...]:
        """What saves all progress, in this order: each speaks of what the one before it has got to disk."""
        parts = (self.transactions, self.housekeeping, self.scheduler, self.timers)
        return (close_store, *(part.close for part in parts))

    def pending(self) -> dict[str, str]:
        """What waits, for the broker's runtime info."""
        return {
            "timerMessagePending": str(self.timers.pending),
            "timerMessageDelivered": str(self.timers.delivered),
            "transactionHalfPending": str(self.transactions.pending),
            "transactionChecks": str(self.transactions.asked),
            "batchChunksPending": str(self.batches.pending),
            "batchRowsSetAside": str(self.batches.set_aside),
        }


def build_client_side(
    state: BrokerState, settings: SendSettings, tables: ClientTables, counts: PutCounts, routes: Routes
) -> ClientSide:
    """`counts.stored` is the `stored` of `state.puts`."""
    catalog, clock, entropy = state.catalog, state.clock, state.entropy
    effects = ClientEffects(state.clients, state.channel, state.polls)
    placing = Placing(state.levels, lambda: state.store.config, clock)
    transactions = Transactions(state, placing)
    batches = Batches(state, placing)
    parts = (
        ClientHandlers(catalog, state.clients, effects, clock, lambda: state.config, state.filters),
        OffsetHandlers(state.store, catalog, state.offsets, clock),
        LockHandlers(state.locks, clock),
        QueryHandlers(state.store),
        BulkPullHandler(state),
        RecallHandler(
            catalog, state.puts, placing, settings, state.name, lambda: state.config, lambda: state.store.config, clock
        ),
        TransactionHandler(transactions, state.flow, clock),
        BatchHandlers(batches, catalog, settings, state.flow, clock),
        AssignmentHandlers(catalog, state.clients, tables.modes, routes, clock),
        SendBackHandler(state.store, catalog, state.puts, state.stats, state.levels, settings, clock, entropy),
        ReplyHandler(catalog, state.clients, state.puts, settings, lambda: state.config, state.channel, clock, entropy),
    )
    handlers: dict[int, Handler] = {}
    for part in parts:
        handlers.update(part.handlers())
    return ClientSide(
        effects,
        SpecialSends(catalog, state.locks, placing, state.name, settings, lambda: state.config, clock),
        Scheduler(
            state.store,
            tables.delays,
            state.levels,
            state.puts,
            clock,
            save_interval_ms=state.store.config.flush_delay_offset_interval_ms,
        ),
        TimerService(state.store, state.puts, clock),
        transactions,
        batches,
        Housekeeping(effects, state.locks, state.stats, counts, tables.offsets, state.config, clock),
        handlers,
    )
