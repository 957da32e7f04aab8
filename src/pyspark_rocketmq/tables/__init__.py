"""Topics into tables, exactly once and without a jar: `to_delta` and `to_iceberg` write a stream to a table.

Tasks write Parquet files. The driver then commits all files of a batch at once, together with the id of the query and
the number of the batch. A batch that is run again is recognised by them.
"""

from __future__ import annotations

from pyspark_rocketmq.tables.writers import to_delta, to_iceberg

__all__ = ["to_delta", "to_iceberg"]
