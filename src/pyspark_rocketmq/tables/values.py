"""What tasks and driver tell each other about files, and the errors of table writes."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Final, Protocol

import pyarrow as pa

from aerobee.errors import AerobeeError
from aerobee.model.numbers import plain_int

# The types that a partition may be named by, as Arrow's predicates.
_PARTITION_KINDS: Final[tuple[Callable[[pa.DataType], bool], ...]] = (
    pa.types.is_string, pa.types.is_integer, pa.types.is_boolean, pa.types.is_date32,
)  # fmt: skip


# Types that Spark has and no table: void and intervals.
_NO_KINDS: Final[tuple[Callable[[pa.DataType], bool], ...]] = (
    pa.types.is_null, pa.types.is_duration, pa.types.is_interval,
)  # fmt: skip


class TableError(AerobeeError):
    """A stream cannot be written to a table. The message says what does not fit."""


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """A Parquet file that a task has closed. `values` are the values of the partition columns."""

    path: str
    size: int
    rows: int
    values: Mapping[str, Any]
    # The id of the query, as Spark told it to the task.
    query: str

    def to_text(self) -> str:
        """Return the row that a task gives back."""
        values = {name: None if one is None else _partition_text(one) for name, one in self.values.items()}
        return json.dumps([self.path, self.size, self.rows, values, self.query])

    @classmethod
    def from_text(cls, text: str) -> WrittenFile:
        """Return the file of a task's row."""
        path, size, rows, values, query = json.loads(text)
        return cls(path, plain_int(size), plain_int(rows), values, query)


def _partition_text(value: Any) -> str:
    """Return a partition value as tables have it. A truth value is `true` or `false`, and text stays as it is."""
    return str(value).lower() if isinstance(value, bool) else str(value)


class FileStore(Protocol):
    """Where the files of a table are. It is sent to tasks."""

    def create(self, name: str) -> AbstractContextManager[Any]:
        """Return a new file to write into."""
        ...

    def place(self, name: str) -> str:
        """Return the name of a file as the table's log has it."""
        ...


class TableFormat(Protocol):
    """One kind of table, in the driver."""

    # Whether files hold the columns that the table is partitioned by.
    keeps_partition_columns: bool

    def prepare(self, schema: pa.Schema) -> FileStore:
        """Create the table if it does not exist, or check that the columns fit, and return where files go."""
        ...

    def committed(self, query: str) -> int:
        """Return the last batch of a query that is in the table, or -1."""
        ...

    def commit(self, files: list[WrittenFile], query: str, batch: int, schema: pa.Schema) -> bool:
        """Add the files in one transaction. Return False if the batch is in the table already."""
        ...

    def discard(self, files: list[WrittenFile]) -> None:
        """Remove files that are in no transaction."""
        ...


def require_partition_columns(schema: pa.Schema, columns: tuple[str, ...]) -> None:
    """Raise TableError for a partition column that does not exist, or cannot name a partition."""
    for name in columns:
        if name not in schema.names:
            raise TableError(f"partition_by: there is no column {name}; there are {', '.join(schema.names)}")
        kind = schema.field(name).type
        if not any(is_kind(kind) for is_kind in _PARTITION_KINDS):
            raise TableError(
                f"partition_by: column {name} is {kind}; text, whole numbers, booleans and dates are possible"
            )
    if len(columns) == len(schema.names):
        raise TableError("partition_by: at least one column must remain beside the partition columns")


def require_storable(schema: pa.Schema) -> None:
    """Raise TableError for a column that is there twice, and for one of a type that tables do not have."""
    seen: set[str] = set()
    for field in schema:
        if field.name.lower() in seen:
            raise TableError(f"column {field.name} is there twice (case does not count)", hint="rename one of them")
        seen.add(field.name.lower())
        odd = next((kind for kind in _leaves(field.type) if any(is_kind(kind) for is_kind in _NO_KINDS)), None)
        if odd is not None:
            raise TableError(f"column {field.name} has the type {odd}, which tables do not have: cast it")


def _leaves(kind: pa.DataType) -> Iterator[pa.DataType]:
    """Yield the types that a type is made of in the end."""
    if pa.types.is_nested(kind):
        for index in range(kind.num_fields):
            yield from _leaves(kind.field(index).type)
    else:
        yield kind


def new_columns(have: pa.Schema, want: pa.Schema, merge_schema: bool) -> list[pa.Field]:
    """Return the columns that the table lacks. Raise TableError for columns that do not fit."""
    by_low = {name.lower(): name for name in have.names}
    missing = []
    for field in want:
        name = by_low.get(field.name.lower())
        if name is None:
            missing.append(field)
        elif name != field.name:
            raise TableError(f"column {field.name}: the table has {name}, which differs only by case")
        elif have.field(name).type != field.type:
            raise TableError(f"column {field.name} is {field.type}, the table has {have.field(name).type}: cast it")
    if missing and not merge_schema:
        names = ", ".join(field.name for field in missing)
        raise TableError(f"the table has no column {names}", hint="merge_schema=True adds new columns to the table")
    return missing


def plain_schema(schema: pa.Schema) -> pa.Schema:
    """Return a table's columns as a stream has them: libraries give large or other forms of the same types."""
    return pa.schema([pa.field(one.name, _plain(one.type)) for one in schema])


def _plain(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(one.name, _plain(one.type)) for one in kind.fields])
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.list_(pa.field("element", _plain(kind.value_type)))
    if pa.types.is_map(kind):
        return pa.map_(_plain(kind.key_type), pa.field("value", _plain(kind.item_type)))
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return pa.string()
    return pa.binary() if pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind) else kind
