"""A RocketMQ store directory as a Spark table without a broker: the data source `rocketmq_store`, and the archive.

Spark finds `DefaultSource` by the name of this package. As in `pyspark_rocketmq`, no import in it may fail.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.datasource import DataSource, DataSourceReader
    from pyspark.sql.types import StructType
else:
    try:
        from pyspark.sql.datasource import DataSource
    except ImportError:  # pyspark is older than 4.0 or not installed
        DataSource = object

__all__ = ["DefaultSource", "register"]


class DefaultSource(DataSource):
    """The data source of `spark.read.format("rocketmq_store").load(DIR)`. It only reads, and only batches."""

    def __init__(self, options: dict[str, str]) -> None:
        """Take the options. Spark calls this at `load()`: wrong ones, and a missing directory, are errors there."""
        super().__init__(options)
        from aerobee.runtime.disk import InlineDisk
        from pyspark_rocketmq_store.settings import read_settings, require_log

        require_log(InlineDisk(), read_settings(self.options).log_directory)

    @classmethod
    def name(cls) -> str:
        """Return the word for `format(...)`."""
        return "rocketmq_store"

    def schema(self) -> StructType:
        """Return the columns that are read if the user names none."""
        from pyspark_rocketmq.columns.schema import DEFAULT_SCHEMA

        return DEFAULT_SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader of a batch."""
        from pyspark_rocketmq_store.scan import store_reader

        return store_reader(dict(self.options), schema)


def register(spark: SparkSession) -> None:
    """Register the format with `spark`. This is needed only if Spark cannot find the package (`--py-files`)."""
    spark.dataSource.register(DefaultSource)
