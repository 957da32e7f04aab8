"""Iceberg tables, written with the library `pyiceberg`. A batch is one snapshot that names query and batch.

The number of the last batch is also a property of the table, set in the same transaction. Snapshots expire, it stays.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa

from aerobee.model.numbers import int_or
from pyspark_rocketmq.formats.decoders import MissingLibraryError
from pyspark_rocketmq.tables.values import TableError, WrittenFile, new_columns, plain_schema, require_partition_columns

QUERY: Final = "aerobee.query"
BATCH: Final = "aerobee.batch"
_TRIES: Final = 5
_RETRIES: Final = "commit.retry.num-retries"


@dataclass(frozen=True, slots=True)
class IcebergFiles:
    """The data directory of a table, and what its file system needs. The text of this contains no secrets."""

    root: str
    properties: dict[str, str] = field(repr=False)

    def create(self, name: str) -> AbstractContextManager[Any]:
        return self._open(name)

    @contextlib.contextmanager
    def _open(self, name: str) -> Iterator[Any]:
        from pyiceberg.io import load_file_io

        io = load_file_io(self.properties, self.root)
        with io.new_output(self.place(name)).create() as sink:
            yield sink

    def place(self, name: str) -> str:
        return f"{self.root}/{name}"


class IcebergFormat:
    """One Iceberg table of a catalog."""

    keeps_partition_columns = True

    def __init__(
        self, catalog: str | Mapping[str, str], table: str, partition_by: tuple[str, ...], merge_schema: bool
    ) -> None:
        try:
            from pyiceberg.catalog import load_catalog
        except ImportError:
            raise MissingLibraryError("an Iceberg table", "pyiceberg", "tables") from None
        if "." not in table:
            raise TableError(f"table {table}: an Iceberg table is named NAMESPACE.TABLE")
        self._catalog = load_catalog(catalog) if isinstance(catalog, str) else load_catalog(None, **catalog)
        self._table_name = table
        self._partition_by = partition_by
        self._merge_schema = merge_schema

    def _table(self) -> Any:
        table = self._catalog.load_table(self._table_name)
        # pyiceberg would commit again over the commit of another driver of this query. We look at the table first.
        table.metadata.properties[_RETRIES] = "0"
        return table

    def prepare(self, schema: pa.Schema) -> IcebergFiles:
        from pyiceberg.exceptions import NoSuchTableError

        require_partition_columns(schema, self._partition_by)
        try:
            table = self._table()
        except NoSuchTableError:
            table = self._create(schema)
        have = [table.schema().find_column_name(one.source_id) for one in table.spec().fields]
        if have != list(self._partition_by) or any(str(one.transform) != "identity" for one in table.spec().fields):
            names = ", ".join(f"{one.transform}({name})" for one, name in zip(table.spec().fields, have, strict=True))
            raise TableError(
                f"the Iceberg table is partitioned by {names or 'nothing'}: partition_by must say the same"
            )
        new_columns(plain_schema(table.schema().as_arrow()), schema, self._merge_schema)
        return IcebergFiles(f"{table.location()}/data", dict(table.io.properties))

    def _create(self, schema: pa.Schema) -> Any:
        from pyiceberg.exceptions import TableAlreadyExistsError

        self._catalog.create_namespace_if_not_exists(self._table_name.rpartition(".")[0])
        try:
            with self._catalog.create_table_transaction(self._table_name, schema) as made:
                with made.update_spec() as spec:
                    for name in self._partition_by:
                        spec.add_identity(name)
        except TableAlreadyExistsError:
            pass  # another driver of this query was first
        return self._table()

    def committed(self, query: str) -> int:
        return _committed(self._table(), query)

    def commit(self, files: list[WrittenFile], query: str, batch: int, schema: pa.Schema) -> bool:
        from pyiceberg.exceptions import CommitFailedException

        for left in reversed(range(_TRIES)):
            table = self._table()
            if _committed(table, query) >= batch:
                return False
            try:
                with table.transaction() as transaction:
                    if new_columns(plain_schema(table.schema().as_arrow()), schema, self._merge_schema):
                        with transaction.update_schema() as change:
                            change.union_by_name(schema)
                    transaction.set_properties({f"{QUERY}.{query}": str(batch)})
                    transaction.add_files(
                        [one.path for one in files],
                        snapshot_properties={QUERY: query, BATCH: str(batch)},
                        check_duplicate_files=False,
                    )
                return True
            except CommitFailedException as error:
                if not left:
                    raise TableError(f"Iceberg table {self._table_name}: {error}") from error
        raise AssertionError("the last try returns or raises")

    def discard(self, files: list[WrittenFile]) -> None:
        io = self._table().io
        for one in files:
            with contextlib.suppress(OSError):
                io.delete(one.path)


def _committed(table: Any, query: str) -> int:
    return int_or(table.properties.get(f"{QUERY}.{query}", ""), -1)
