"""Rows that say only where messages are: their columns need no record."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from aerobee.model.queue import MessageQueue
from pyspark_rocketmq.columns import schema as c


def place_batch(queue: MessageQueue, first: int, count: int, columns: Sequence[str]) -> pa.RecordBatch:
    """Return the rows of `count` messages of a queue, from an offset on. Columns are those of a message's place."""
    made = {
        c.TOPIC: lambda: pa.repeat(pa.scalar(queue.topic, pa.string()), count),
        c.BROKER: lambda: pa.repeat(pa.scalar(queue.broker_name, pa.string()), count),
        c.QUEUE_ID: lambda: pa.repeat(pa.scalar(queue.queue_id, pa.int32()), count),
        c.QUEUE_OFFSET: lambda: pa.array(np.arange(first, first + count, dtype=np.int64)),
    }
    return pa.RecordBatch.from_arrays([made[name]() for name in columns], schema=c.arrow_schema(columns))
