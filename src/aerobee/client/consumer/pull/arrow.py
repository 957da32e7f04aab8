"""Messages as Arrow record batches, with the columns of the Spark source. pyarrow is imported when it is first used."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from aerobee.errors import AerobeeError
from aerobee.model.message import Message


def record_batch(messages: Sequence[Message]) -> Any:
    """Return a `pyarrow.RecordBatch`. Absent keys and tags are null; times are microseconds in UTC, as Spark's."""
    try:
        import pyarrow
    except ImportError as error:
        raise AerobeeError("poll_arrow needs pyarrow", hint="pip install pyarrow") from error
    text, whole = pyarrow.string(), pyarrow.int64()
    moment = pyarrow.timestamp("us", tz="UTC")
    columns = {
        "topic": pyarrow.array([m.topic for m in messages], text),
        "broker": pyarrow.array([m.broker for m in messages], text),
        "queue_id": pyarrow.array([m.queue_id for m in messages], pyarrow.int32()),
        "queue_offset": pyarrow.array([m.queue_offset for m in messages], whole),
        "message_id": pyarrow.array([m.message_id for m in messages], text),
        "keys": pyarrow.array([m.keys or None for m in messages], text),
        "tags": pyarrow.array([m.tags or None for m in messages], text),
        "body": pyarrow.array([m.body for m in messages], pyarrow.binary()),
        "properties": pyarrow.array([list(m.properties.items()) for m in messages], pyarrow.map_(text, text)),
        "born_timestamp": pyarrow.array([m.born_timestamp * 1000 for m in messages], whole).cast(moment),
        "store_timestamp": pyarrow.array([m.store_timestamp * 1000 for m in messages], whole).cast(moment),
    }
    return pyarrow.RecordBatch.from_arrays(list(columns.values()), names=list(columns))
