"""Bugs that the simulation must find: each breaks one promise of the product, by a patch that a test takes back."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest

from aerobee.broker.delay.schedule import DelaySchedule
from aerobee.broker.log.sendrules import Candidate
from aerobee.broker.membership.locks import QueueLocks
from aerobee.broker.send.dedup import Dedup
from aerobee.client.consumer.push.queue import ConcurrentQueue, OrderedQueue
from aerobee.client.consumer.push.sendback import SendBack
from aerobee.namesrv.handlers import NameServer
from aerobee.store import opening
from aerobee.store.metadata.offsets import ConsumerOffsetTable
from aerobee.testing.simulation.world import Machine

Plant = Callable[[pytest.MonkeyPatch], None]


def acknowledged_before_the_sync(patch: pytest.MonkeyPatch) -> None:
    """A sync of the log is called done while nothing has reached the disk."""
    equip = Machine._equip

    def lying(self: Machine) -> None:
        equip(self)
        self.disk.lie_about_sync(30, times=None, path="commitlog")

    patch.setattr(Machine, "_equip", lying)


def committed_before_handling(patch: pytest.MonkeyPatch) -> None:
    """A consumer moves its offset when messages arrive, not when they are handled."""
    arrived = ConcurrentQueue._arrived

    def early(self: ConcurrentQueue, process: Any, messages: Any) -> None:
        self.engine.offsets.table.advance(self.queue, process.next_offset)
        arrived(self, process, messages)

    patch.setattr(ConcurrentQueue, "_arrived", early)


def committed_beyond_a_failure(patch: pytest.MonkeyPatch) -> None:
    """A message that failed and that no broker took back counts as done."""
    patch.setattr(ConcurrentQueue, "_later", lambda self, process, messages: self._finished(process, messages))


def retry_dropped(patch: pytest.MonkeyPatch) -> None:
    """A message that failed is not given back, and the consumer goes on as if it were."""

    async def forgotten(self: SendBack, message: Any, queue: Any, delay_level: int) -> bool:
        return True

    patch.setattr(SendBack, "send_back", forgotten)


def order_not_kept_after_a_failure(patch: pytest.MonkeyPatch) -> None:
    """An ordered queue goes on with the next message when one fails."""

    async def skipped(self: OrderedQueue, process: Any, messages: Any, outcome: Any) -> float:
        self._finished(process, messages)
        return 0.0

    patch.setattr(OrderedQueue, "_again", skipped)


def delayed_message_early(patch: pytest.MonkeyPatch) -> None:
    """A delay level is over half a second too soon."""
    due_ms = DelaySchedule._due_ms
    patch.setattr(DelaySchedule, "_due_ms", lambda self, *arguments: due_ms(self, *arguments) - 500)


def half_message_readable(patch: pytest.MonkeyPatch) -> None:
    """A half message is stored like any other."""
    patch.setattr(Candidate, "is_half", property(lambda self: False))


def queues_not_rebuilt(patch: pytest.MonkeyPatch) -> None:
    """A start after a crash takes the consume queues as they are, behind the log or not."""

    def trusted(store: Any, report: Any) -> None:
        for sink in store.sinks:
            sink.recover(store.log.start, store.log.end)
        store.queues.check_units(store.log.segments, store.log.start)
        store.dispatcher.recover(store.log.end, [store.log.end for _ in store.sinks])
        store.queues.finish_recovery()

    patch.setattr(opening, "_recover_sinks", trusted)


def repeat_stored_again(patch: pytest.MonkeyPatch) -> None:
    """A broker does not know a message again that an idempotent producer sends twice."""
    patch.setattr(Dedup, "find", lambda self, mark, name: None)


def lock_given_twice(patch: pytest.MonkeyPatch) -> None:
    """A broker gives the lock of an ordered queue to everyone who asks."""

    def given(self: Any, group: str, queues: Iterable[Any], client_id: str, now_s: float) -> list[Any]:
        return list(dict.fromkeys(queues))

    patch.setattr(QueueLocks, "lock", given)


def offsets_ahead_after_a_restart(patch: pytest.MonkeyPatch) -> None:
    """A broker starts with offsets that are one too high."""
    decode = ConsumerOffsetTable.decode

    def ahead(self: ConsumerOffsetTable, data: Any) -> None:
        decode(self, data)
        for queues in self.table.values():
            for queue_id in queues:
                queues[queue_id] += 1

    patch.setattr(ConsumerOffsetTable, "decode", ahead)


def dead_route_kept(patch: pytest.MonkeyPatch) -> None:
    """A name server goes on naming a broker whose connection is gone."""
    patch.setattr(NameServer, "channel_closed", lambda self, channel: None)


PLANTED: dict[str, Plant] = {
    plant.__name__: plant
    for plant in (
        acknowledged_before_the_sync,
        committed_before_handling,
        committed_beyond_a_failure,
        retry_dropped,
        order_not_kept_after_a_failure,
        delayed_message_early,
        half_message_readable,
        queues_not_rebuilt,
        repeat_stored_again,
        lock_given_twice,
        offsets_ahead_after_a_restart,
        dead_route_kept,
    )
}
