"""Small stores for tests: tiny segments, drafts from a body, everything a queue serves."""

from __future__ import annotations

from typing import Any

from aerobee.hot.log.javahash import tags_code
from aerobee.hot.log.properties import encode_properties
from aerobee.hot.log.record import Draft, Record, decode_records
from aerobee.runtime.seams import Clock, Disk
from aerobee.store.config import FlushDiskType, StoreConfig
from aerobee.store.dispatch import Sink
from aerobee.store.messagestore import MessageStore
from aerobee.store.reads import GetMessageStatus
from aerobee.testing.clock import VirtualClock

HOST = bytes((127, 0, 0, 1, 0, 0, 0x2A, 0x9F))
ROOT = "/store"


def small_config(*, sync: bool = True, segment: int = 4096, **settings: Any) -> StoreConfig:
    """Return settings with segments of 4 KiB and queue files of 16 units."""
    settings.setdefault("mapped_file_size_consume_queue", 16 * 20)
    settings.setdefault("max_message_size", min(2048, segment - 512))
    settings.setdefault("max_hash_slot_num", 100)
    settings.setdefault("max_index_num", 400)
    return StoreConfig(
        mapped_file_size_commit_log=segment,
        flush_disk_type=FlushDiskType.SYNC_FLUSH if sync else FlushDiskType.ASYNC_FLUSH,
        **settings,
    )


def draft(
    body: bytes = b"body",
    topic: bytes = b"topic",
    queue_id: int = 0,
    *,
    tags: str = "",
    keys: str = "",
    uniq_key: str = "",
    sys_flag: int = 0,
) -> Draft:
    """Return a message on its way in."""
    properties = {"TAGS": tags, "KEYS": keys, "UNIQ_KEY": uniq_key}
    encoded = encode_properties({name: value for name, value in properties.items() if value})
    code = tags_code(tags) if tags else 0
    return Draft(topic, queue_id, 0, sys_flag, 1, HOST, HOST, 0, 0, body, encoded, code, keys, uniq_key)


def make_store(
    disk: Disk,
    config: StoreConfig | None = None,
    *,
    root: str = ROOT,
    clock: Clock | None = None,
    sinks: tuple[Sink, ...] = (),
    hot_bytes: int = 1 << 30,
) -> MessageStore:
    """Return a store that is not opened yet."""
    return MessageStore(root, config or small_config(), disk, clock or VirtualClock(), sinks, hot_bytes=hot_bytes)


def read_queue(store: MessageStore, topic: bytes = b"topic", queue_id: int = 0) -> list[Record]:
    """Return every message the queue serves, from its first on."""
    found: list[Record] = []
    offset = store.min_offset(topic, queue_id)
    while True:
        result = store.get_messages(topic, queue_id, offset)
        if result.status is GetMessageStatus.COLD:
            result = store.fetch_now(result)
        for buffer in result.buffers:
            found.extend(decode_records(bytes(buffer)))
        if result.next_begin_offset <= offset:
            return found
        offset = result.next_begin_offset


def records_by_key(store: MessageStore, topic: str, key: str) -> list[bytes]:
    """Return the records that the index has under a key and that were not deleted, newest first."""
    assert store.index is not None
    found = [store.run(store.message_at(offset)) for offset in store.index.query(topic, key, 64).offsets]
    return [record for record in found if record is not None]


def bodies(store: MessageStore, topic: bytes = b"topic", queue_id: int = 0) -> list[bytes]:
    return [record.body for record in read_queue(store, topic, queue_id)]
