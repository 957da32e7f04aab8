"""Owns the reader Spark calls: partitions are stretches of the log, filters of a query narrow what is read.

A reader that defines `pushFilters` fails every read while Spark's switch for it is off, and only Spark's own
process for pushing asks for filters: so that process, and no other, is given the reader that takes them.
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
from pyspark_rocketmq_store.planning import Stretch, narrowed, plan
from pyspark_rocketmq_store.reading import read_stretch
from pyspark_rocketmq_store.settings import ScanSettings, Wanted, read_settings

_PUSHING: Final = "pyspark.sql.worker.data_source_pushdown_filters"


class LogPartition(InputPartition):
    """One task's stretch; None for the one that Spark makes of an empty list."""

    def __init__(self, stretch: Stretch) -> None:
        super().__init__(stretch)


class StoreReader(DataSourceReader):
    """Reads without being told the query's filters."""

    def __init__(self, settings: ScanSettings, columns: tuple[str, ...]) -> None:
        self.settings = settings
        self.columns = columns

    def partitions(self) -> list[InputPartition]:
        """Planned once a query, on the driver."""
        return [LogPartition(stretch) for stretch in plan(InlineDisk(), self.settings)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """In a task."""
        stretch = partition.value
        if stretch is None:
            return
        yield from read_stretch(InlineDisk(), self.settings, stretch, self.columns)


class FilteringStoreReader(StoreReader):
    """Reads less, by the query's own filters. Spark applies all of them again: a time here is in milliseconds."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 (Spark's name)
        """Narrow what is read; every filter stays Spark's too."""
        for one in filters:
            self.settings = narrowed(self.settings, wanted_of(one))
        return filters


def wanted_of(one: Filter) -> Wanted:
    """What a filter leaves to be read, as far as we can use it."""
    column = getattr(one, "attribute", ())
    value: Any = getattr(one, "value", None)
    if column == (c.TOPIC,):
        if isinstance(one, EqualTo):
            return Wanted(topics=frozenset([str(value).encode()]))
        if isinstance(one, In):
            return Wanted(topics=frozenset(str(name).encode() for name in value if name is not None))
    if column == (c.STORE_TIMESTAMP,) and isinstance(value, datetime):
        # Rounded outwards.
        low = int(value.timestamp() * 1000) - 1
        high = low + 3
        if isinstance(one, EqualTo):
            return Wanted(from_ms=low, until_ms=high)
        if isinstance(one, (GreaterThan, GreaterThanOrEqual)):
            return Wanted(from_ms=low)
        if isinstance(one, (LessThan, LessThanOrEqual)):
            return Wanted(until_ms=high)
    return Wanted()


def store_reader(options: Mapping[str, str], schema: StructType) -> StoreReader:
    """The reader for the process we are in."""
    settings, columns = read_settings(options), c.require_columns(schema)
    pushing = _PUSHING in sys.modules or getattr(sys.modules["__main__"].__spec__, "name", None) == _PUSHING
    # See pyspark_rocketmq.source.batch.batch_reader: not for everybody.
    if pushing and settings.pushdown:
        return FilteringStoreReader(settings, columns)
    return StoreReader(settings, columns)
