"""The names and types of the columns that source, store scan and archive share, and the check of a user's `.schema()`.

A missing value is NULL: `keys` and `tags` of a message without them, `broker` if it is not known. All other values are
those of `aerobee.model.message.Message`. Times have the type TIMESTAMP (UTC).
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import Final

import pyarrow as pa
from pyspark.sql.types import (
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from aerobee.errors import InvalidArgumentError

TOPIC: Final = "topic"
BROKER: Final = "broker"
QUEUE_ID: Final = "queue_id"
QUEUE_OFFSET: Final = "queue_offset"
MESSAGE_ID: Final = "message_id"
KEYS: Final = "keys"
TAGS: Final = "tags"
BODY: Final = "body"
PROPERTIES: Final = "properties"
BORN_TIMESTAMP: Final = "born_timestamp"
STORE_TIMESTAMP: Final = "store_timestamp"
RECONSUME_TIMES: Final = "reconsume_times"
COMMITLOG_OFFSET: Final = "commitlog_offset"
BORN_HOST: Final = "born_host"
STORE_HOST: Final = "store_host"
SYS_FLAG: Final = "sys_flag"
SYSTEM_PROPERTIES: Final = "system_properties"
FLAG: Final = "flag"
OFFSET_ID: Final = "offset_id"
PREPARED_TRANSACTION_OFFSET: Final = "prepared_transaction_offset"

_STRING_MAP: Final = MapType(StringType(), StringType())
_TYPES: Final[dict[str, tuple[DataType, pa.DataType]]] = {
    TOPIC: (StringType(), pa.string()),
    BROKER: (StringType(), pa.string()),
    QUEUE_ID: (IntegerType(), pa.int32()),
    QUEUE_OFFSET: (LongType(), pa.int64()),
    MESSAGE_ID: (StringType(), pa.string()),
    KEYS: (StringType(), pa.string()),
    TAGS: (StringType(), pa.string()),
    BODY: (BinaryType(), pa.binary()),
    PROPERTIES: (_STRING_MAP, pa.map_(pa.string(), pa.string())),
    BORN_TIMESTAMP: (TimestampType(), pa.timestamp("us", "UTC")),
    STORE_TIMESTAMP: (TimestampType(), pa.timestamp("us", "UTC")),
    RECONSUME_TIMES: (IntegerType(), pa.int32()),
    COMMITLOG_OFFSET: (LongType(), pa.int64()),
    BORN_HOST: (StringType(), pa.string()),
    STORE_HOST: (StringType(), pa.string()),
    SYS_FLAG: (IntegerType(), pa.int32()),
    SYSTEM_PROPERTIES: (_STRING_MAP, pa.map_(pa.string(), pa.string())),
    FLAG: (IntegerType(), pa.int32()),
    OFFSET_ID: (StringType(), pa.string()),
    PREPARED_TRANSACTION_OFFSET: (LongType(), pa.int64()),
}

COLUMNS: Final[tuple[str, ...]] = tuple(_TYPES)
DEFAULT_COLUMNS: Final[tuple[str, ...]] = COLUMNS[: COLUMNS.index(RECONSUME_TIMES)]


def spark_schema(columns: Sequence[str]) -> StructType:
    """Return the Spark schema of these columns, in this order."""
    return StructType([StructField(name, _TYPES[name][0]) for name in columns])


def arrow_schema(columns: Sequence[str]) -> pa.Schema:
    """Return the Arrow schema of these columns, as Spark converts `spark_schema(columns)`."""
    return pa.schema([pa.field(name, _TYPES[name][1]) for name in columns])


DEFAULT_SCHEMA: Final = spark_schema(DEFAULT_COLUMNS)
FULL_SCHEMA: Final = spark_schema(COLUMNS)


def require_columns(schema: StructType) -> tuple[str, ...]:
    """Return the column names of a user's `.schema()`. Raises InvalidArgumentError for a wrong column."""
    if not schema.fields:
        raise InvalidArgumentError(f"the schema names no column; there are {', '.join(COLUMNS)}")
    seen: set[str] = set()
    for field in schema.fields:
        if field.name not in _TYPES:
            raise unknown_column(field.name)
        if field.name in seen:
            raise InvalidArgumentError(f"column {field.name!r} is named twice in the schema")
        seen.add(field.name)
        wanted = _TYPES[field.name][0]
        if field.dataType != wanted:
            raise InvalidArgumentError(
                f"column {field.name!r} is {wanted.simpleString().upper()}, not "
                f"{field.dataType.simpleString().upper()}: cast it after load()"
            )
        if not field.nullable:
            raise InvalidArgumentError(f"column {field.name!r}: leave NOT NULL out, every column may be NULL to Spark")
    return tuple(field.name for field in schema.fields)


def unknown_column(name: str) -> InvalidArgumentError:
    """Return the error for a column that does not exist."""
    return InvalidArgumentError(f"no column {name!r}: {_nearest(name)}")


def _nearest(name: str) -> str:
    near = difflib.get_close_matches(name.lower(), COLUMNS, n=1, cutoff=0.5)
    return f"did you mean {near[0]!r}?" if near else f"there are {', '.join(COLUMNS)}"
