"""Deleting topics and segments: what happens to the log, the note of deletions and the queues, in which order."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from aerobee.errors import StoreError, StoreFencedError

if TYPE_CHECKING:
    from aerobee.store.messagestore import MessageStore


def delete_oldest_segment(store: MessageStore) -> bool:
    """Delete the first segment. See `MessageStore.delete_oldest_segment`."""
    starts = store.log.segments.starts
    if len(starts) < 2 or starts[1] > min(store.dispatcher.position, store.flusher.flushed):
        return False
    try:
        store.sync_now()
        store.queues.flusher.save()
        store.log.segments.delete(starts[:1])
        store.queues.drop_below(store.log.start)
        if store.index is not None:
            store.index.delete_expired(store.log.start)
    except StoreFencedError as error:
        store.fence(error)
        raise
    except OSError as error:
        raise StoreError(f"a segment cannot be deleted: {error}") from error
    return True


def delete_topics(store: MessageStore, topics: Collection[bytes]) -> None:
    """Delete topics as of now. See `MessageStore.delete_topics`."""
    try:
        store.sync_now()
        store.advance()
        store.deletions.note(topics, store.log.start, store.log.end)
        store.dispatcher.topics_deleted()
        store.queues.delete_topics(topics)
    except StoreFencedError as error:
        store.fence(error)
        raise
    except OSError as error:
        raise StoreError(f"topics cannot be deleted: {error}") from error


def delete_topics_below(store: MessageStore, topics: Collection[bytes], place: int) -> None:
    """Delete what the log holds of topics below a place, when dispatch has come there.

    Nothing behind the place is dispatched yet, so the queues hold nothing that stays. What was noted before is not
    done again: the queues may hold records of topics made since. An OSError comes out: dispatch is tried again then.
    """
    new = [topic for topic in topics if store.deletions.position_of(topic) < place]
    if new:
        store.sync_now()
        store.deletions.note(new, store.log.start, place)
        store.dispatcher.topics_deleted()
        store.queues.delete_topics(new)
        store.count_again_from(place)
