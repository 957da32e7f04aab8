"""RocketMQ topics as Spark tables: the data source `rocketmq`. Spark finds it by the name of this package.

Spark imports every `pyspark_*` module of the driver's Python at the first `format(...)` of a session. If one of them
raises, Spark finds none. Therefore this file imports almost nothing, and refuses an old PySpark only when it is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader
    from pyspark.sql.types import StructType
else:
    try:
        from pyspark.sql.datasource import DataSource
    except ImportError:  # pyspark below 4.0, or none
        DataSource = object

__all__ = ["DefaultSource", "register"]

_NEEDED = (4, 2)
# The option of `pyspark_rocketmq.warmup`.
_WARM_UP = "aerobee.warmUp"


class DefaultSource(DataSource):
    """The data source behind `format("rocketmq")` of `read`, `readStream`, `write` and `writeStream`.

    Its parts are imported when they are used.
    """

    def __init__(self, options: dict[str, str]) -> None:
        """Take the options. Spark calls this at `load()`, `save()` and `start()`: an unknown name is an error there."""
        _demand_spark()
        super().__init__(options)
        from pyspark_rocketmq.optionnames import require_known

        if _WARM_UP not in self.options:
            require_known(self.options)

    @classmethod
    def name(cls) -> str:
        """Return the word for `format(...)`."""
        return "rocketmq"

    def schema(self) -> StructType:
        """Return the columns for a query that names none. Spark asks at `load()`, so wrong options are errors there."""
        _demand_spark()
        from pyspark_rocketmq.optionnames import require_readable

        if _WARM_UP not in self.options:
            require_readable(self.options)
        if "format" in self.options:
            from pyspark_rocketmq.source.typed import full_schema

            return full_schema(dict(self.options))
        from pyspark_rocketmq.columns.schema import DEFAULT_SCHEMA, spark_schema

        if "columns" in self.options:
            from pyspark_rocketmq.source.settings import columns_of

            return spark_schema(columns_of(self.options["columns"]))
        return DEFAULT_SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader of a batch query."""
        _demand_spark()
        if _WARM_UP in self.options:
            from pyspark_rocketmq.warmup import NoRows

            return NoRows()
        from pyspark_rocketmq.source.batch import batch_reader

        return batch_reader(dict(self.options), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 (Spark's name)
        """Return the reader of a streaming query."""
        _demand_spark()
        from aerobee.errors import AerobeeError
        from pyspark_rocketmq.source.stream import refusing_reader, stream_reader

        try:
            return stream_reader(dict(self.options), schema)
        except AerobeeError as error:
            return refusing_reader(error)

    def writer(self, schema: StructType, overwrite: bool) -> Any:
        """Return the writer of a batch query."""
        _demand_spark()
        from pyspark_rocketmq.sink.batch import batch_writer

        return batch_writer(dict(self.options), schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> Any:  # noqa: N802 (Spark's name)
        """Return the writer of a streaming query."""
        _demand_spark()
        from pyspark_rocketmq.sink.stream import stream_writer

        return stream_writer(dict(self.options), schema, overwrite)


def register(spark: SparkSession) -> None:
    """Register `format("rocketmq")` in `spark`. This is needed only if Spark cannot find the package (`--py-files`)."""
    _demand_spark()
    spark.dataSource.register(DefaultSource)


def _demand_spark() -> None:
    """Raise ImportError if PySpark is missing, or has no admission control for Python sources."""
    try:
        import pyspark
    except ImportError as missing:
        raise ImportError("format rocketmq needs PySpark: pip install 'aerobee[spark]'") from missing
    from aerobee.model.numbers import parse_int

    major, minor = (parse_int(part) for part in pyspark.__version__.split(".")[:2])
    if (major, minor) < _NEEDED:
        raise ImportError(
            f"format rocketmq needs PySpark {_NEEDED[0]}.{_NEEDED[1]} or newer, found {pyspark.__version__}: "
            "pip install 'aerobee[spark]'"
        )
