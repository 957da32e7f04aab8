"""Reads of messages at places in the log that requests name.

A body may hold bytes that are a whole record, with the right place and checksum. A caller that takes a place from a
request must read through this module. Otherwise it would take those bytes for a message that passed the rules of a
send. (Apache does.)
"""

from __future__ import annotations

from aerobee.store.messagestore import MessageStore
from aerobee.store.recordhead import head_of, topic_of
from aerobee.store.steps import Steps


def sent_at(store: MessageStore, physical_offset: int) -> Steps[bytes | None]:
    """Return steps to the message there, if it was sent as one: its queue has it at the offset that it claims."""
    record = yield from store.message_at(physical_offset)
    head = None if record is None else head_of(record)
    if record is None or head is None:
        return None
    queue = store.queues.find(topic_of(record), head.queue_id)
    unit = None if queue is None else queue.unit(head.queue_offset)
    return record if unit is not None and unit[:2] == (head.physical_offset, head.size) else None


def is_hidden(store: MessageStore, record: bytes) -> bool:
    """Tell whether a message is older than its topic's own retention, so that nobody is served it any more."""
    head = head_of(record)
    queue = None if head is None else store.queues.find(topic_of(record), head.queue_id)
    return head is not None and queue is not None and head.queue_offset < queue.hidden


def hidden_below(store: MessageStore, topic: bytes, queue_id: int) -> int:
    """Return the offset below which messages of a queue are older than its topic's retention; 0 where it has none."""
    queue = store.queues.find(topic, queue_id)
    return 0 if queue is None else min(queue.hidden, queue.next_offset)
