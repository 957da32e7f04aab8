"""Delta tables, written with the library `deltalake`. A batch is one commit with a `txn` action: query and batch."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.fs as pafs

from aerobee.model.numbers import plain_int
from aerobee.runtime.clock import SystemClock
from pyspark_rocketmq.formats.decoders import MissingLibraryError
from pyspark_rocketmq.tables.values import TableError, WrittenFile, new_columns, plain_schema, require_partition_columns

_TRIES: Final = 5
# Features that change how rows must be written. The commit of files would not follow their rules.
_REFUSED: Final = ("delta.columnMapping.mode", "delta.constraints.", "delta.identity.", "delta.generationExpression")


@dataclass(frozen=True, slots=True)
class DeltaFiles:
    """The directory of a table: a path, or a URL that Arrow and deltalake both know (s3://, gs://, abfss://)."""

    uri: str

    def create(self, name: str) -> AbstractContextManager[Any]:
        return self._open(name)

    @contextlib.contextmanager
    def _open(self, name: str) -> Iterator[Any]:
        system, root = self.system()
        with system.open_output_stream(f"{root}/{name}") as sink:
            yield sink

    def place(self, name: str) -> str:
        return name

    def system(self) -> tuple[Any, str]:
        """Return Arrow's file system, and the path of the table in it."""
        if "://" in self.uri:
            system, root = pafs.FileSystem.from_uri(self.uri)
            return system, root.rstrip("/")
        return pafs.LocalFileSystem(), self.uri.rstrip("/")


class DeltaFormat:
    """One Delta table."""

    keeps_partition_columns = False

    def __init__(self, uri: str, partition_by: tuple[str, ...], merge_schema: bool, name: str | None = None) -> None:
        try:
            import deltalake  # noqa: F401 (only whether it is there)
        except ImportError:
            raise MissingLibraryError("a Delta table", "deltalake", "tables") from None
        self._files = DeltaFiles(uri)
        self._partition_by = partition_by
        self._merge_schema = merge_schema
        self._name = name

    def _table(self) -> Any:
        from deltalake import DeltaTable

        return DeltaTable(self._files.uri)

    def prepare(self, schema: pa.Schema) -> DeltaFiles:
        from deltalake import DeltaTable, Field, Schema

        require_partition_columns(schema, self._partition_by)
        if not DeltaTable.is_deltatable(self._files.uri):
            # Two drivers may create it at once: "ignore" lets the second go on.
            DeltaTable.create(
                self._files.uri, schema, mode="ignore", partition_by=list(self._partition_by), name=self._name
            )
        table = self._table()
        have = plain_schema(pa.schema(table.schema()))
        _require_plain(table, self._partition_by)
        missing = new_columns(have, schema, self._merge_schema)
        if missing:
            by_name = {one.name: one for one in Schema.from_arrow(pa.schema(missing)).fields}
            table.alter.add_columns([Field(one.name, by_name[one.name].type, nullable=True) for one in missing])
        return self._files

    def committed(self, query: str) -> int:
        found = self._table().transaction_version(query)
        return -1 if found is None else plain_int(found)

    def commit(self, files: list[WrittenFile], query: str, batch: int, schema: pa.Schema) -> bool:
        from deltalake import CommitProperties, Transaction
        from deltalake.exceptions import CommitFailedError
        from deltalake.transaction import AddAction

        now_ms = SystemClock().now_ms()
        adds = [
            AddAction(one.path, one.size, dict(one.values), now_ms, True, json.dumps({"numRecords": one.rows}))
            for one in files
        ]
        properties = CommitProperties(app_transactions=[Transaction(query, batch, now_ms)])
        for left in reversed(range(_TRIES)):
            table = self._table()
            found = table.transaction_version(query)
            if found is not None and found >= batch:
                return False
            try:
                table.create_write_transaction(
                    adds, "append", table.schema(), list(self._partition_by), commit_properties=properties
                )
                return True
            except CommitFailedError as error:
                # Another driver of this query, or another writer, was first. The next look at the table tells which.
                if not left:
                    raise TableError(f"Delta table {self._files.uri}: {error}") from error
        raise AssertionError("the last try returns or raises")

    def discard(self, files: list[WrittenFile]) -> None:
        system, root = self._files.system()
        for one in files:
            with contextlib.suppress(OSError):
                system.delete_file(f"{root}/{one.path}")


def _require_plain(table: Any, partition_by: tuple[str, ...]) -> None:
    """Raise TableError for a table with other partitions, or with rules that only its own writers can keep."""
    metadata = table.metadata()
    if list(metadata.partition_columns) != list(partition_by):
        have = ", ".join(metadata.partition_columns) or "nothing"
        raise TableError(f"the Delta table is partitioned by {have}: partition_by must say the same")
    for name, value in metadata.configuration.items():
        if name.startswith(_REFUSED) and value != "none":
            raise TableError(f"the Delta table has {name}, which a stream cannot be written with")
