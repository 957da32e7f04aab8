"""Bugs of replicated brokers that the simulation must find. Those of replicas without brokers stand elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from aerobee.app.replica import GroupRoot
from aerobee.broker import assembly
from aerobee.broker.assembly import Broker
from aerobee.broker.groupstate.journal import StateJournal
from aerobee.broker.log.localwrites import LocalWrites
from aerobee.broker.log.puts import Puts
from aerobee.broker.membership.locks import GroupLocks
from aerobee.broker.topics.registrar import Registrar
from aerobee.broker.transactions.driver import Transactions
from aerobee.model.route import MASTER_ID
from aerobee.namesrv.routes import RouteTable
from aerobee.replication.replica import Replica

Plant = Callable[[pytest.MonkeyPatch], None]


def old_master_named_again(patch: pytest.MonkeyPatch) -> None:
    """Let a master that was replaced register once more as master, and let name servers believe it."""
    follow = GroupRoot.follow

    def proud(self: GroupRoot, epoch: int, master: Any) -> bool:
        before = self._host.registrar._standing
        went_on = follow(self, epoch, master)
        if before is not None and before.broker_id == MASTER_ID:
            self._host.registrar.stand(before)
        return went_on

    patch.setattr(GroupRoot, "follow", proud)
    patch.setattr(Registrar, "_may_register", lambda self, standing: True)
    patch.setattr(RouteTable, "_is_stale", lambda self, reg, held: False)


def answered_before_the_replicas(patch: pytest.MonkeyPatch) -> None:
    """Answer the sends of a SYNC_MASTER when this machine has them."""
    wait = Broker._wait_for_replicas

    def hasty(self: Broker, config: Any) -> None:
        wait(self, config)
        self.state.puts.early = LocalWrites(self.state.store)

    patch.setattr(Broker, "_wait_for_replicas", hasty)


def readers_see_what_is_not_confirmed(patch: pytest.MonkeyPatch) -> None:
    """Show records that this machine has stored, whatever the replicas have."""
    stored = Replica._stored

    def shown(self: Replica, local: int) -> int:
        stored(self, local)
        return local

    patch.setattr(Replica, "_stored", shown)


def late_put_counts_as_stored(patch: pytest.MonkeyPatch) -> None:
    """Tell features after a while that a put is stored, although replicas may never have it."""
    put = Puts.put

    def impatient(self: Puts, drafts: Any, done: Any, *, wait: bool = True, may_be_late: bool = False) -> None:
        put(self, drafts, done, wait=wait, may_be_late=True)

    patch.setattr(Puts, "put", impatient)


def copy_of_a_half_message_taken_for_lost(patch: pytest.MonkeyPatch) -> None:
    """Roll a transaction back whose copy the replicas have not confirmed yet."""
    look_at = Transactions._look_at

    class Everything:
        """A store that has confirmed everything."""

        def __init__(self, store: Any) -> None:
            self._store = store
            self.dispatched_offset = 1 << 60

        def __getattr__(self, name: str) -> Any:
            return getattr(self._store, name)

    def hasty(self: Transactions, half: Any, now_ms: int) -> None:
        store, self._store = self._store, Everything(self._store)  # type: ignore[assignment]
        try:
            look_at(self, half, now_ms)
        finally:
            self._store = store

    patch.setattr(Transactions, "_look_at", hasty)


def repeats_forgotten_by_a_new_master(patch: pytest.MonkeyPatch) -> None:
    """Learn nothing of what idempotent producers sent to the old master."""
    patch.setattr(assembly, "learn_sent", lambda *arguments: None)


def waiting_sends_confirmed_at_the_demotion(patch: pytest.MonkeyPatch) -> None:
    """Answer with success what waits for replicas when another broker takes over."""
    follow = Replica._follow

    def confirmed(self: Replica, effect: Any) -> None:
        if effect.was_leading:
            self._own.store.waiters.advance(self._own.end)
        follow(self, effect)

    patch.setattr(Replica, "_follow", confirmed)


def offsets_not_journalled(patch: pytest.MonkeyPatch) -> None:
    """Keep consume offsets on the master alone."""
    changes = StateJournal._journal_changes
    patch.setattr(StateJournal, "_journal_changes", lambda self, *, gather: changes(self, gather=False))


def locks_forgotten_by_a_new_master(patch: pytest.MonkeyPatch) -> None:
    """Begin to lead without the locks of ordered consumers."""
    patch.setattr(GroupLocks, "restore", lambda self, *arguments: None)


def master_goes_on_after_its_demotion(patch: pytest.MonkeyPatch) -> None:
    """Keep the broker that led, with all that it had begun, and let it follow as it is."""

    def kept(self: GroupRoot, epoch: int, master: Any) -> bool:
        broker = self._host.broker
        broker.is_following = True
        self._host.serve(broker.served())
        return True

    patch.setattr(GroupRoot, "follow", kept)


PLANTED: dict[str, Plant] = {
    plant.__name__: plant
    for plant in (
        old_master_named_again,
        answered_before_the_replicas,
        readers_see_what_is_not_confirmed,
        late_put_counts_as_stored,
        copy_of_a_half_message_taken_for_lost,
        repeats_forgotten_by_a_new_master,
        waiting_sends_confirmed_at_the_demotion,
        offsets_not_journalled,
        locks_forgotten_by_a_new_master,
        master_goes_on_after_its_demotion,
    )
}
