"""The first query of a session ahead of the user's: it starts Spark's Pythons and imports what a read needs.

Spark starts a Python for finding sources, one for creating them, one for planning and one for tasks, each when it is
first needed, and each imports for some tenths of a second. A read of nothing does that in the background. It must be
one of the same source: Spark starts other Pythons for sources that were registered in another way.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# The option that makes a read one of nothing. Nobody else needs it.
OPTION: Final = "aerobee.warmUp"
_log = logging.getLogger("pyspark_rocketmq")


class NoRows(DataSourceReader):
    """A reader that imports what the others import, and reads nothing."""

    def partitions(self) -> list[InputPartition]:
        """Return two partitions, so that both cores start a Python."""
        import pyspark_rocketmq.source.batch  # noqa: F401

        return [InputPartition(number) for number in range(2)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Return no rows."""
        import pyspark_rocketmq.source.pulling  # noqa: F401

        return iter(())


def warm_up(spark: SparkSession) -> threading.Thread:
    """Prepare a session for its first read of a topic, in the background. Return the thread that does it."""
    thread = threading.Thread(target=_read_nothing, args=(spark,), name="spark-warm-up", daemon=True)
    thread.start()
    return thread


def _read_nothing(spark: SparkSession) -> None:
    try:
        spark.read.format("rocketmq").option(OPTION, "true").load().count()
    except Exception as error:  # noqa: BLE001 - the session may end at any time; a read that needs it says what is wrong
        _log.debug("the session was not warmed up: %s", error)
