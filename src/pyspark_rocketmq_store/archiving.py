"""The work of an archive task: it writes one segment as Parquet files, and verifies them before they count.

The checksum of every record is verified. A file gets its final name only after its rows, read back, have the checksum
of the columns that were decoded from the log. So a crash leaves no half file, and another attempt replaces it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Final
from zlib import crc32

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from aerobee.errors import StoreError
from aerobee.hot.log.record import VERIFY_RECORD
from aerobee.model.numbers import plain_int
from aerobee.runtime.seams import Disk
from pyspark_rocketmq.columns import rows as r
from pyspark_rocketmq.columns import schema as c
from pyspark_rocketmq.columns.decode import BadMessageError, cut
from pyspark_rocketmq.columns.rows import Ints
from pyspark_rocketmq_store.manifest import Archived, ArchivedFile, directory_of, file_name
from pyspark_rocketmq_store.planning import SegmentPart
from pyspark_rocketmq_store.reading import read_rows
from pyspark_rocketmq_store.settings import ScanSettings

# The columns of a file: all but the topic, which is in the name of its directory.
COLUMNS: Final = tuple(name for name in c.COLUMNS if name != c.TOPIC)
_ROW_GROUP_BYTES: Final = 32 << 20
_HELD_BYTES_MAX: Final = 256 << 20
_OPEN_FILES_MAX: Final = 128
_DAY_MS: Final = 86_400_000
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
# Columns whose values repeat. For the others a dictionary costs time and saves nothing.
_DICTIONARIES: Final = [
    *(c.BROKER, c.QUEUE_ID, c.TAGS, c.BORN_HOST, c.STORE_HOST, c.SYS_FLAG, c.FLAG, c.RECONSUME_TIMES),
    *("properties.key_value.key", "system_properties.key_value.key"),
]

_JOURNALS: Final = b"rmq_sys_AEROBEE_"

Key = tuple[bytes, int]  # the name of a topic, and days since 1970


@dataclass(slots=True)
class _Facts:
    """The result of the first pass over a segment."""

    keys: list[Key] = field(default_factory=list)
    records: int = 0
    first_ms: int = (1 << 63) - 1
    last_ms: int = -(1 << 63)


def archive_segment(
    disk: Disk,
    settings: ScanSettings,
    segment: SegmentPart,
    archive: str,
    broker: str,
    attempt: str,
    generations: Mapping[str, str] | None = None,
) -> Archived:
    """Write and verify the files of a segment, and return them. The caller writes the manifest.

    `generations` are those of the store's topics at the moment whose deletions the segment knows.
    """
    facts = _look(disk, settings, segment)
    files: list[ArchivedFile] = []
    queues: dict[str, dict[str, tuple[int, int]]] = {}
    for begin in range(0, len(facts.keys), _OPEN_FILES_MAX):
        writers = {
            key: _Writer(disk, archive, broker, segment, key, attempt)
            for key in facts.keys[begin : begin + _OPEN_FILES_MAX]
        }
        try:
            _fill(disk, settings, segment, broker, writers)
            for writer in writers.values():
                files.append(writer.finish())
                _merge(queues.setdefault(writer.topic, {}), writer.queues)
        finally:
            for writer in writers.values():
                writer.abandon()
    return Archived(
        broker=broker,
        start=segment.segment_start,
        end=segment.segment_end,
        records=facts.records,
        rows=sum(one.rows for one in files),
        first_store_ms=facts.first_ms if facts.records else 0,
        last_store_ms=facts.last_ms if facts.records else 0,
        files=tuple(files),
        queues=queues,
        generations={topic: known for topic in queues if (known := (generations or {}).get(topic)) is not None},
    )


def _look(disk: Disk, settings: ScanSettings, segment: SegmentPart) -> _Facts:
    """Return the topics and days of the segment. This pass verifies every checksum."""
    facts = _Facts()
    seen: set[Key] = set()
    for data, rows in read_rows(disk, settings_checked(settings), segment):
        facts.records += len(rows)
        stored = rows[:, r.STORE_TIMESTAMP]
        facts.first_ms, facts.last_ms = (
            min(facts.first_ms, plain_int(stored.min())),
            max(facts.last_ms, plain_int(stored.max())),
        )
        # Our own journals hold rows of sinks and state of the group. Nobody reads them as messages.
        seen.update(key for key, _ in _parts(data, rows) if not key[0].startswith(_JOURNALS))
    facts.keys = sorted(seen)
    return facts


def settings_checked(settings: ScanSettings) -> ScanSettings:
    """Return settings that verify every checksum, take all topics and skip nothing."""
    return ScanSettings(settings.root, settings.log_directory, verify=VERIFY_RECORD, broker=settings.broker)


def _parts(data: bytes, rows: Ints) -> Iterator[tuple[Key, Ints]]:
    """Return the rows by topic and day."""
    days = rows[:, r.STORE_TIMESTAMP] // _DAY_MS
    left = np.arange(len(rows))
    while len(left):
        row = rows[left[0]]
        topic = data[plain_int(row[r.TOPIC_AT]) : plain_int(row[r.TOPIC_AT] + row[r.TOPIC_SIZE])]
        day = plain_int(days[left[0]])
        mine = r.of_topics(data, rows[left], [topic]) & (days[left] == day)
        yield (topic, day), rows[left[mine]]
        left = left[~mine]


def _fill(disk: Disk, settings: ScanSettings, segment: SegmentPart, broker: str, writers: dict[Key, _Writer]) -> None:
    plain = ScanSettings(settings.root, settings.log_directory)

    def fail(error: BadMessageError) -> None:
        raise StoreError(f"{segment.path}: {error.message}") from error

    for data, rows in read_rows(disk, plain, segment):
        for key, part in _parts(data, rows):
            writer = writers.get(key)
            if writer is not None:
                for batch in cut(data, part, COLUMNS, broker=broker, on_bad=fail):
                    writer.add(batch)
        if sum(writer.held for writer in writers.values()) > _HELD_BYTES_MAX:
            max(writers.values(), key=lambda writer: writer.held).flush()


def _merge(into: dict[str, tuple[int, int]], more: dict[str, tuple[int, int]]) -> None:
    for queue, (low, high) in more.items():
        known = into.get(queue, (low, high))
        into[queue] = (min(low, known[0]), max(high, known[1]))


class _Writer:
    """One Parquet file that is being written, under a temporary name."""

    def __init__(self, disk: Disk, archive: str, broker: str, segment: SegmentPart, key: Key, attempt: str) -> None:
        self.topic = key[0].decode("utf-8", "replace")
        self.date = (_EPOCH + timedelta(days=key[1])).date().isoformat()
        self.queues: dict[str, tuple[int, int]] = {}
        self.held = 0
        self._disk = disk
        self._archive = archive
        self._below = directory_of(self.topic, self.date)
        self._name = file_name(broker, segment.segment_start)
        self._temporary: str | None = f"{archive}/{self._below}/.{self._name}.{attempt}.tmp"
        disk.make_dirs(f"{archive}/{self._below}")
        self._batches: list[pa.RecordBatch] = []
        self._sum = ColumnSums(COLUMNS)
        self._out = pq.ParquetWriter(
            self._temporary,
            c.arrow_schema(COLUMNS),
            compression="zstd",
            compression_level=1,
            use_dictionary=_DICTIONARIES,
            write_statistics=[c.QUEUE_ID, c.QUEUE_OFFSET, c.COMMITLOG_OFFSET, c.STORE_TIMESTAMP, c.BORN_TIMESTAMP],
        )

    def add(self, batch: pa.RecordBatch) -> None:
        self._sum.add(batch)
        ids = batch.column(c.QUEUE_ID).to_numpy()
        offsets = batch.column(c.QUEUE_OFFSET).to_numpy()
        for queue in np.unique(ids):
            mine = offsets[ids == queue]
            _merge(self.queues, {str(queue): (plain_int(mine.min()), plain_int(mine.max()))})
        self._batches.append(batch)
        self.held += batch.nbytes
        if self.held >= _ROW_GROUP_BYTES:
            self.flush()

    def flush(self) -> None:
        """Write the rows that are held as a row group."""
        if self._batches:
            self._out.write_table(pa.Table.from_batches(self._batches), row_group_size=1 << 30)
        self._batches, self.held = [], 0

    def finish(self) -> ArchivedFile:
        """Close the file, read it back, compare it, sync it, and give it its final name."""
        assert self._temporary is not None
        self.flush()
        self._out.close()
        size = self._compare(self._temporary)
        directory = f"{self._archive}/{self._below}"
        self._disk.rename(self._temporary, f"{directory}/{self._name}")
        self._temporary = None
        self._disk.sync_dir(directory)
        self._disk.sync_dir(directory.rpartition("/")[0])
        return ArchivedFile(
            f"{self._below}/{self._name}", self.topic, self.date, self._sum.rows, size, self._sum.text()
        )

    def _compare(self, path: str) -> int:
        found = ColumnSums(COLUMNS)
        with pq.ParquetFile(path) as written:
            for batch in written.iter_batches(batch_size=8192, columns=list(COLUMNS)):
                found.add(batch)
        if (found.rows, found.text()) != (self._sum.rows, self._sum.text()):
            raise StoreError(f"{path}: what was written is not what the log holds; nothing was archived")
        file = self._disk.open(path)
        try:
            file.sync()
            return file.size()
        finally:
            file.close()

    def abandon(self) -> None:
        """Remove the file if it did not get its final name."""
        if self._temporary is not None:
            self._out.close()
            if self._disk.exists(self._temporary):
                self._disk.unlink(self._temporary)
            self._temporary = None


class ColumnSums:
    """Checksums of whole columns, one each of values, sizes and nulls. They do not depend on the batches."""

    def __init__(self, columns: Sequence[str]) -> None:
        self.rows = 0
        self._columns = columns
        self._sums: dict[str, int] = {}

    def add(self, batch: pa.RecordBatch) -> None:
        """Add the next rows."""
        self.rows += batch.num_rows
        for name in self._columns:
            self._array(name, batch.column(name))

    def text(self) -> str:
        """Return one checksum of all columns."""
        return f"{crc32(repr(sorted(self._sums.items())).encode()):08x}"

    def _more(self, name: str, data: object) -> None:
        self._sums[name] = crc32(memoryview(data), self._sums.get(name, 0))  # type: ignore[arg-type]

    def _array(self, name: str, array: pa.Array) -> None:
        kind = array.type
        if not len(array):
            return
        nulls = array.is_null().to_numpy(zero_copy_only=False) if array.null_count else np.zeros(len(array), np.bool_)
        self._more(f"{name} nulls", np.ascontiguousarray(nulls))
        if pa.types.is_map(kind):
            offsets = array.offsets.to_numpy()
            self._more(f"{name} sizes", np.diff(offsets))
            low, high = plain_int(offsets[0]), plain_int(offsets[-1])
            self._array(f"{name} keys", array.keys.slice(low, high - low))
            self._array(f"{name} values", array.items.slice(low, high - low))
        elif pa.types.is_string(kind) or pa.types.is_binary(kind):
            _, bounds, data = array.buffers()
            offsets = np.frombuffer(bounds, np.int32)[array.offset : array.offset + len(array) + 1]
            self._more(f"{name} sizes", np.diff(offsets))
            if data is not None:
                self._more(f"{name} bytes", memoryview(data)[plain_int(offsets[0]) : plain_int(offsets[-1])])
        else:
            width = kind.bit_width // 8
            values = memoryview(array.buffers()[1])
            self._more(f"{name} values", values[array.offset * width : (array.offset + len(array)) * width])
