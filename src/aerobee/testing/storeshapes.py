"""How a store of the fault suites is built and what is sent to it, drawn from a seed.

Owns the variety: flush type, tiny segments, queue and index files of a few entries, every kind of record.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from aerobee.hot.log.javahash import tags_code
from aerobee.hot.log.layout import TRANSACTION_COMMIT, TRANSACTION_PREPARED, TRANSACTION_ROLLBACK
from aerobee.hot.log.properties import encode_properties
from aerobee.hot.log.record import Draft
from aerobee.runtime.seams import Clock, Disk
from aerobee.store.config import FlushDiskType, StoreConfig
from aerobee.store.dispatch import Sink
from aerobee.store.index import MessageIndex
from aerobee.store.messagestore import MessageStore
from aerobee.testing.entropy import SeededEntropy
from aerobee.testing.history import SCHEDULE_TOPIC

ROOT = "/store"
HOST_V4 = bytes((10, 1, 2, 3, 0, 0, 0x2A, 0x9F))
HOST_V6 = bytes(range(32, 48)) + bytes((0, 0, 0x2A, 0x9F))
LONG_TOPIC = b"long-" * 27  # 135 bytes: only a V2 record can carry it
TOPICS = (b"orders", b"%RETRY%group", LONG_TOPIC)


@dataclass(frozen=True, slots=True)
class Shape:
    """One configuration. `late_syncs`: a sync completes some steps after it was asked for."""

    sync_flush: bool
    segment_size: int
    units_per_file: int
    with_index: bool
    late_syncs: bool
    queue_count: int  # of each topic
    topic_count: int
    with_crc: bool = True

    @staticmethod
    def draw(entropy: SeededEntropy) -> Shape:
        return Shape(
            sync_flush=entropy.chance(0.6),
            segment_size=entropy.choose((4096, 4096, 8192, 16384, 65536)),
            units_per_file=entropy.choose((2, 5, 16, 90)),
            with_index=entropy.chance(0.7),
            late_syncs=entropy.chance(0.5),
            queue_count=entropy.choose((1, 2)),
            topic_count=entropy.choose((1, 2, 3)),
        )

    def config(self) -> StoreConfig:
        return _config_of(self)

    def store(self, disk: Disk, clock: Clock, sinks: tuple[Sink, ...] = ()) -> MessageStore:
        """Return a store that is not opened yet."""
        config = self.config()
        index = (MessageIndex(disk, ROOT, config),) if self.with_index else ()
        return MessageStore(ROOT, config, disk, clock, (*index, *sinks))


@cache
def _config_of(shape: Shape) -> StoreConfig:
    """Return the settings of a shape, checked once: that takes longer than opening a small store."""
    return StoreConfig(
        mapped_file_size_commit_log=shape.segment_size,
        mapped_file_size_consume_queue=shape.units_per_file * 20,
        flush_disk_type=FlushDiskType.SYNC_FLUSH if shape.sync_flush else FlushDiskType.ASYNC_FLUSH,
        flush_commit_log_least_pages=0,
        max_message_size=shape.segment_size - 512,
        max_hash_slot_num=16,
        max_index_num=24,
        enabled_append_prop_crc=shape.with_crc,
    )


class DraftMaker:
    """Makes drafts of every kind; no two are alike."""

    def __init__(self, shape: Shape, entropy: SeededEntropy) -> None:
        self._shape = shape
        self._entropy = entropy
        self._count = 0

    def batch(self) -> list[Draft]:
        """Return what one append takes: mostly one message, sometimes several that fit a segment together."""
        count = self._entropy.choose((1, 1, 1, 2, 5))
        room = self._shape.segment_size - 512
        drafts: list[Draft] = []
        for _ in range(count):
            draft = self.draft(room)
            room -= len(draft.body) + len(draft.properties) + 400
            drafts.append(draft)
            if room < 1000:
                break
        return drafts

    def draft(self, body_size_max: int) -> Draft:
        entropy = self._entropy
        self._count += 1
        number = self._count
        topic = TOPICS[entropy.below(self._shape.topic_count)]
        queue_id, sys_flag = entropy.below(self._shape.queue_count), 0
        tags = entropy.choose(("", "red", "blue"))
        keys = entropy.choose(("", f"key{number % 7}", f"key{number % 5} other"))
        properties = {"KEYS": keys, "UNIQ_KEY": f"U{number:06d}", "TAGS": tags}
        kind = entropy.below(10)
        if kind == 0:
            topic, sys_flag = b"RMQ_SYS_TRANS_HALF_TOPIC", TRANSACTION_PREPARED
        elif kind == 1:
            sys_flag = entropy.choose((TRANSACTION_COMMIT, TRANSACTION_ROLLBACK))
        elif kind == 2:
            topic, queue_id = SCHEDULE_TOPIC, entropy.below(3)
            properties["DELAY"] = str(queue_id + 1)
        return Draft(
            topic,
            queue_id,
            number,
            sys_flag,
            1_700_000_000_000 + number,
            entropy.choose((HOST_V4, HOST_V6)),
            entropy.choose((HOST_V4, HOST_V6)),
            0,
            0,
            self._body(min(body_size_max, self._shape.segment_size - 1024)),
            encode_properties({name: value for name, value in properties.items() if value}),
            tags_code(tags) if tags else 0,
            keys,
            properties["UNIQ_KEY"],
        )

    def _body(self, size_max: int) -> bytes:
        entropy = self._entropy
        size = entropy.choose((0, 1, 20, 100, 100, 300, 300, 600, size_max // 4, size_max))
        return entropy.token(max(0, min(size, size_max)))
