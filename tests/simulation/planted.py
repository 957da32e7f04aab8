"""Bugs that the simulation must find: each breaks one promise of the product, by a patch that a test takes back."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest

from aerobee.broker.delay.schedule import DelaySchedule
from aerobee.broker.log.sendrules import Candidate
from aerobee.broker.membership.locks import GroupLocks
from aerobee.broker.send.dedup import Dedup
from aerobee.client.consumer.push.queue import ConcurrentQueue, OrderedQueue
from aerobee.client.consumer.push.sendback import RetrySender
from aerobee.client.producer.orderedsending import OrderedSends
from aerobee.client.producer.selectors import hashed_index
from aerobee.model.queue import MessageQueue
from aerobee.namesrv.handlers import NameServer
from aerobee.store import opening
from aerobee.store.metadata.offsets import ConsumerOffsetTable
from aerobee.testing.simulation.world import Machine

Plant = Callable[[pytest.MonkeyPatch], None]


def acknowledged_before_the_sync(patch: pytest.MonkeyPatch) -> None:
    """Call a sync of the log done while nothing has reached the disk."""
    equip = Machine._equip

    def lying(self: Machine) -> None:
        equip(self)
        self.disk.lie_about_sync(30, times=None, path="commitlog")

    patch.setattr(Machine, "_equip", lying)


def committed_before_handling(patch: pytest.MonkeyPatch) -> None:
    """Move the offset of a consumer when messages arrive, not when they are handled."""
    arrived = ConcurrentQueue._arrived

    def early(self: ConcurrentQueue, process: Any, messages: Any) -> None:
        self.engine.offsets.table.advance(self.queue, process.next_offset)
        arrived(self, process, messages)

    patch.setattr(ConcurrentQueue, "_arrived", early)


def committed_beyond_a_failure(patch: pytest.MonkeyPatch) -> None:
    """Count a message as done that failed and that no broker took back."""
    patch.setattr(ConcurrentQueue, "_later", lambda self, process, messages: self._finished(process, messages))


def retry_dropped(patch: pytest.MonkeyPatch) -> None:
    """Give no failed message back, and continue as if it were given back."""

    async def forgotten(self: RetrySender, message: Any, queue: Any, delay_level: int) -> bool:
        return True

    patch.setattr(RetrySender, "send_back", forgotten)


def order_not_kept_after_a_failure(patch: pytest.MonkeyPatch) -> None:
    """Continue an ordered queue with the next message when one fails."""

    async def skipped(self: OrderedQueue, process: Any, messages: Any, outcome: Any) -> float:
        self._finished(process, messages)
        return 0.0

    patch.setattr(OrderedQueue, "_again", skipped)


def delayed_message_early(patch: pytest.MonkeyPatch) -> None:
    """End each delay level half a second too soon."""
    due_ms = DelaySchedule._due_ms
    patch.setattr(DelaySchedule, "_due_ms", lambda self, *arguments: due_ms(self, *arguments) - 500)


def half_message_readable(patch: pytest.MonkeyPatch) -> None:
    """Store a half message like any other."""
    patch.setattr(Candidate, "is_half", property(lambda self: False))


def queues_not_rebuilt(patch: pytest.MonkeyPatch) -> None:
    """Take the consume queues as they are at a start after a crash, behind the log or not."""

    def trusted(store: Any, report: Any) -> None:
        for sink in store.sinks:
            sink.recover(store.log.start, store.log.end)
        store.queues.check_units(store.log.segments, store.log.start)
        store.dispatcher.recover(store.log.end, [store.log.end for _ in store.sinks])
        store.queues.finish_recovery()

    patch.setattr(opening, "_recover_sinks", trusted)


def repeat_stored_again(patch: pytest.MonkeyPatch) -> None:
    """Forget at once what idempotent producers sent."""
    patch.setattr(Dedup, "find", lambda self, mark, name: None)


def lock_given_twice(patch: pytest.MonkeyPatch) -> None:
    """Give the lock of an ordered queue to everyone who asks."""

    def given(self: Any, group: str, queues: Iterable[Any], *_: object) -> list[Any]:
        return list(dict.fromkeys(queues))

    patch.setattr(GroupLocks, "lock", given)


def key_moved_when_a_broker_is_away(patch: pytest.MonkeyPatch) -> None:
    """Choose the queue of a sharding key among those that are writable now."""

    def among_writable(self: OrderedSends, topic: str, key: str) -> MessageQueue | None:
        publish = self._sender.publish(topic)
        return None if publish is None else publish.queues[hashed_index(key, len(publish.queues))]

    patch.setattr(OrderedSends, "queue_of", among_writable)


def offsets_ahead_after_a_restart(patch: pytest.MonkeyPatch) -> None:
    """Start a broker with offsets that are one too high."""
    decode = ConsumerOffsetTable.decode

    def ahead(self: ConsumerOffsetTable, data: Any) -> None:
        decode(self, data)
        for queues in self.table.values():
            for queue_id in queues:
                queues[queue_id] += 1

    patch.setattr(ConsumerOffsetTable, "decode", ahead)


def dead_route_kept(patch: pytest.MonkeyPatch) -> None:
    """Keep naming a broker whose connection is gone."""
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
        key_moved_when_a_broker_is_away,
        offsets_ahead_after_a_restart,
        dead_route_kept,
    )
}
