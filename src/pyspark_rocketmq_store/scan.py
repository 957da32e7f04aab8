"""The reader that Spark calls. Its partitions are stretches of the log, and filters of a query reduce what is read.

While Spark's switch for pushing filters is off, a reader that defines `pushFilters` fails every read. Only one process
of Spark asks for filters. So only that process gets the reader that accepts them.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSourceReader,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    LessThan,
    LessThanOrEqual,
)
from pyspark.sql.types import StructType

from aerobee.runtime.disk import InlineDisk
from pyspark_rocketmq.columns import schema as c
from pyspark_rocketmq_store.planning import SegmentPart, narrowed, plan
from pyspark_rocketmq_store.reading import read_stretch
from pyspark_rocketmq_store.settings import ScanSettings, WantedRecords, read_settings

_PUSHING: Final = "pyspark.sql.worker.data_source_pushdown_filters"


class LogPartition(InputPartition):
    """The stretch of one task. It is None in the partition that Spark makes from an empty list."""

    def __init__(self, stretch: SegmentPart) -> None:
        super().__init__(stretch)


class StoreReader(DataSourceReader):
    """A reader that does not know the filters of the query."""

    def __init__(self, settings: ScanSettings, columns: tuple[str, ...]) -> None:
        self.settings = settings
        self.columns = columns

    def partitions(self) -> list[InputPartition]:
        """Return the partitions. Spark calls this once for a query, on the driver."""
        return [LogPartition(stretch) for stretch in plan(InlineDisk(), self.settings)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the batches of a partition. Spark calls this in a task."""
        stretch = partition.value
        if stretch is None:
            return
        yield from read_stretch(InlineDisk(), self.settings, stretch, self.columns)


class FilteringStoreReader(StoreReader):
    """A reader that uses the filters of the query. Spark applies them again, as times here have only milliseconds."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 (Spark's name)
        """Use the filters to read less, and return all of them, so that Spark applies them too."""
        for one in filters:
            self.settings = narrowed(self.settings, wanted_of(one))
        return filters


def wanted_of(one: Filter) -> WantedRecords:
    """Return which records a filter leaves to be read, as far as it can be used."""
    column = getattr(one, "attribute", ())
    value: Any = getattr(one, "value", None)
    if column == (c.TOPIC,):
        if isinstance(one, EqualTo):
            return WantedRecords(topics=frozenset([str(value).encode()]))
        if isinstance(one, In):
            return WantedRecords(topics=frozenset(str(name).encode() for name in value if name is not None))
    if column == (c.STORE_TIMESTAMP,) and isinstance(value, datetime):
        # The range is rounded outwards.
        low = int(value.timestamp() * 1000) - 1
        high = low + 3
        if isinstance(one, EqualTo):
            return WantedRecords(from_ms=low, until_ms=high)
        if isinstance(one, (GreaterThan, GreaterThanOrEqual)):
            return WantedRecords(from_ms=low)
        if isinstance(one, (LessThan, LessThanOrEqual)):
            return WantedRecords(until_ms=high)
    return WantedRecords()


def store_reader(options: Mapping[str, str], schema: StructType) -> StoreReader:
    """Return the reader for this process."""
    settings, columns = read_settings(options), c.require_columns(schema)
    pushing = _PUSHING in sys.modules or getattr(sys.modules["__main__"].__spec__, "name", None) == _PUSHING
    # Not all processes may have it: see pyspark_rocketmq.source.batch.batch_reader.
    if pushing and settings.pushdown:
        return FilteringStoreReader(settings, columns)
    return StoreReader(settings, columns)
