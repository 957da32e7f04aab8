"""A RocketMQ store directory as a Spark table, no broker needed: the data source `rocketmq_store`, and the archive.

Spark finds `DefaultSource` because of this package's name; as in `pyspark_rocketmq`, nothing here may fail to import.
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
    except ImportError:  # pyspark below 4.0, or none
        DataSource = object

__all__ = ["DefaultSource", "register"]


class DefaultSource(DataSource):
    """`spark.read.format("rocketmq_store").load(DIR)`: read only, batch only."""

    @classmethod
    def name(cls) -> str:
        """The word for `format(...)`."""
        return "rocketmq_store"

    def schema(self) -> StructType:
        """The columns when the user names none."""
        from pyspark_rocketmq.columns.schema import DEFAULT_SCHEMA

        return DEFAULT_SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:
        """A batch read."""
        from pyspark_rocketmq_store.scan import store_reader

        return store_reader(dict(self.options), schema)


def register(spark: SparkSession) -> None:
    """Make the format known to `spark`; needed only where Spark cannot find the package (`--py-files`)."""
    spark.dataSource.register(DefaultSource)
