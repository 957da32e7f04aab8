"""SQL over topics by name. A table is created when a query first needs it.

A query is passed to Spark unchanged. If Spark does not know a table, the name is looked up here, first among the
special tables and then among the topics of the cluster. Then a temporary view is created and the query runs again.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from aerobee.errors import InvalidArgumentError
from aerobee.runtime.process import environment
from pyspark_rocketmq.columns import schema as c
from pyspark_rocketmq.jobs import cluster
from pyspark_rocketmq.jobs.failures import BadQueryError, failure, one_line
from pyspark_rocketmq.jobs.lag import read_lag
from pyspark_rocketmq.jobs.pruning import named_columns, named_words, needed_columns, plan_of, typed_columns
from pyspark_rocketmq.jobs.trace import TRACE_TOPIC, latency, read_trace, slow_consumers

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameReader, SparkSession
    from pyspark.sql.types import StructType

TRACE_TABLES: Final = {
    "trace": "every traced event: who sent, received and finished which message",
    "trace_latency": "one row for each delivery: wait_ms, handle_ms, end_to_end_ms",
    "slow_consumers": "groups by topic, slowest first",
}
SPECIAL: Final = {
    "lag": "how far every group is behind, by queue, now",
    **TRACE_TABLES,
    "archive": "what was archived, of all topics (needs --archive)",
    "store": "the messages in the log of a store directory (needs --store)",
}
_MISSING: Final = "TABLE_OR_VIEW_NOT_FOUND"
_NAMES_MAX: Final = 64
_PLAIN_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# The name of the topic, quoted or not, then its columns if they are named, and the query.
_INSERT: Final = re.compile(
    r"insert\s+into\s+(?:table\s+)?(?:`((?:[^`]|``)+)`|([\w%|-]+))\s*(?:\(([^()]*)\)\s*(?=\(|[a-z]))?"
    r"((?:(?<=\W)(?:with|select|from|values|table)\b|\().*)",
    re.IGNORECASE | re.DOTALL,
)
_COMMENTS: Final = re.compile(r"(?:\s|--[^\n]*(?:\n|$)|/\*.*?\*/)*", re.DOTALL)
_SHOW_TABLES: Final = re.compile(r"\s*show\s+(?:tables|topics)(?:\s+(?:like\s+)?'([^']*)')?\s*;?\s*", re.IGNORECASE)
_EXPLAIN: Final = re.compile(r"explain\b", re.IGNORECASE)
# What EXPLAIN returns, instead of an error, as its first row. The error is below it.
_UNPLANNED: Final = "Error occurred during query planning"
_UNKNOWN_TABLE: Final = re.compile(r"\[TABLE_OR_VIEW_NOT_FOUND\] The table or view `((?:[^`]|``)*)` cannot be found")


@dataclass(frozen=True, slots=True)
class Places:
    """The sources of the tables."""

    namesrv: str
    archive: str | None = None
    trace_topic: str = TRACE_TOPIC
    timeout_s: float = 5.0
    store: str | None = None


def quoted(name: str) -> str:
    """Return a name as SQL requires it: `orders`, but `my-topic` in back-ticks."""
    return name if _PLAIN_NAME.fullmatch(name) else f"`{name.replace('`', '``')}`"


def statements(text: str) -> list[str]:
    """Return the statements of a text. It is divided at each semicolon outside quotes and comments."""
    found, begin, place = [], 0, 0
    while place < len(text):
        if text.startswith("--", place):
            place = _after(text, "\n", place)
        elif text.startswith("/*", place):
            place = _after(text, "*/", place)
        elif text[place] in "'\"`":
            place = _after_quote(text, place)
        else:
            if text[place] == ";":
                found.append(text[begin:place])
                begin = place + 1
            place += 1
    found.append(text[begin:])
    return [one.strip() for one in found if _from_first_word(one)]


def _from_first_word(statement: str) -> str:
    """Return a statement without the comments before it."""
    found = _COMMENTS.match(statement)
    return statement[found.end() :] if found is not None else statement


def _after(text: str, mark: str, place: int) -> int:
    end = text.find(mark, place)
    return len(text) if end < 0 else end + len(mark)


def _after_quote(text: str, place: int) -> int:
    """Return the place after the quote that begins at `place`, or the end of the text if it never ends."""
    mark, place = text[place], place + 1
    while place < len(text):
        if text[place] == "\\" and mark != "`":
            place += 1
        elif text[place] == mark:
            return place + 1
        place += 1
    return len(text)


class TopicSql:
    """SQL in a session, with topics as tables."""

    def __init__(self, spark: SparkSession, places: Places) -> None:
        self.spark = spark
        self.places = places
        self._made: list[str] = []
        # The views of the query that can be made with fewer columns, and what makes each.
        self._narrow: dict[str, Callable[[tuple[str, ...] | None], DataFrame]] = {}
        # All words of the query, if its tables need no column that is not among them.
        self._words: frozenset[str] | None = None

    def _forget(self) -> None:
        """Drop the views of the last query, because Spark keeps what it once planned to read of a view."""
        made, self._made = self._made, []
        self._narrow = {}
        for name in made:
            self.spark.catalog.dropTempView(name)

    def query(self, text: str) -> DataFrame:
        """Return the rows of one statement, not read yet. Raise BadQueryError, or the error of the cluster."""
        from pyspark.errors import PySparkException

        shown = _SHOW_TABLES.fullmatch(_from_first_word(text))
        if shown is not None:
            return self.tables(shown[1] or "*")
        insert = _INSERT.fullmatch(_from_first_word(text))
        if insert is not None:
            return self._insert((insert[1] or "").replace("``", "`") or insert[2], insert[3], insert[4])
        self._forget()
        self._words = named_words(self.spark, text)
        for _ in range(_NAMES_MAX):
            try:
                frame = self.spark.sql(text)
                if _EXPLAIN.match(_from_first_word(text)):
                    unknown = _unknown_when_explained(frame)
                    if unknown is None:
                        return frame
                    self._make(unknown)
                    continue
                return frame if self._words is not None else self._narrowed(text, frame)
            except PySparkException as error:
                missing = _missing_table(error)
                if missing is not None:
                    self._make(missing)
                elif self._words is not None:
                    # It may need more columns than it names. With all of them, Spark says what else is wrong.
                    self._words = None
                    self._forget()
                else:
                    raise failure(error) from None
        raise BadQueryError(f"more than {_NAMES_MAX} tables in one query")

    @property
    def _columns(self) -> tuple[str, ...] | None:
        """Return the columns with which the tables of the query are made, or None for all."""
        return None if self._words is None else named_columns(self._words)

    def _insert(self, name: str, columns: str | None, text: str) -> DataFrame:
        """Send the rows of a query to a topic: the columns are those of the sink. Return no rows.

        `columns` are the names that an INSERT gives to the columns of its query, or None if these have names already.
        """
        from pyspark.errors import PySparkException

        if name.lower() in SPECIAL:
            raise BadQueryError(f"{name} is no topic", hint="rows can be inserted into topics only")
        topic = self._find(name)
        rows = self.query(text)
        if columns is not None:
            names = [one.strip().strip("`") for one in columns.split(",")]
            if len(names) != len(rows.columns):
                raise BadQueryError(f"insert into {name} names {len(names)} columns, and its query {len(rows.columns)}")
            rows = rows.toDF(*names)
        writing = rows.write.format("rocketmq").mode("append").option("nameServer", self.places.namesrv)
        try:
            writing.options(**self._patience).save(topic)
        except PySparkException as error:
            raise failure(error) from None
        return self.spark.range(0).select()

    def _narrowed(self, text: str, frame: DataFrame) -> DataFrame:
        """Return the query over tables that have only the columns it names, since a source cannot see what is needed.

        Where Spark does not accept it, the query stays as it was.
        """
        from pyspark.errors import PySparkException

        plan = plan_of(frame) if self._narrow else None
        needed = None if plan is None else needed_columns(plan)
        if needed is None:
            return frame
        try:
            return self._again(text, needed or (c.QUEUE_OFFSET,))
        except PySparkException:  # the query names a column that its plan does not need
            return self._again(text, None)

    def _again(self, text: str, columns: tuple[str, ...] | None) -> DataFrame:
        for name, make in self._narrow.items():
            make(columns).createOrReplaceTempView(f"`{name.replace('`', '``')}`")
        return self.spark.sql(text)

    def tables(self, pattern: str = "*") -> DataFrame:
        """Return a table of all names that can follow FROM. In the pattern, `*` is any text and `|` means or."""
        rows = [
            (quoted(name), kind)
            for name, kind in sorted(cluster.topics(self.places.namesrv, timeout_s=self.places.timeout_s).items())
        ]
        rows += [
            (name, meaning)
            for name, meaning in SPECIAL.items()
            if name not in ("archive", "store") or getattr(self.places, name) is not None
        ]
        wanted = re.compile(re.escape(pattern).replace(r"\*", ".*").replace(r"\|", "|"), re.IGNORECASE)
        rows = [row for row in rows if wanted.fullmatch(row[0].strip("`"))]
        return self.spark.createDataFrame(rows, "table string, kind string")

    def _make(self, name: str) -> None:
        """Create a view of that name, or raise an error that suggests similar names."""
        from pyspark.errors import PySparkException

        try:
            frame = self._special(name) if name.lower() in SPECIAL else self._topic(name)
            frame.createOrReplaceTempView(f"`{name.replace('`', '``')}`")
            self._made.append(name)
        except PySparkException as error:
            raise failure(error) from None

    def _special(self, name: str) -> DataFrame:
        places = self.places
        wanted = name.lower()
        if wanted == "lag":
            return read_lag(self.spark, places.namesrv, timeout_s=places.timeout_s)
        if wanted == "archive":
            if places.archive is None:
                raise BadQueryError("no archive is named", hint="--archive DIR says where it is")
            from pyspark_rocketmq_store.archive import read

            return read(self.spark, places.archive, columns=self._columns)
        if wanted == "store":
            if places.store is None:
                raise BadQueryError("no store directory is named", hint="--store DIR says where it is")
            self._narrow[name] = self._scan
            return self._scan(self._columns)
        if places.trace_topic not in cluster.topics(places.namesrv, timeout_s=places.timeout_s):
            raise BadQueryError(
                f"nothing was traced: there is no topic {places.trace_topic}",
                hint="Clients write it when tracing is on: Producer(..., trace=True); Java: enableMsgTrace.",
            )
        events = read_trace(self.spark, places.namesrv, places.trace_topic)
        return {"trace": lambda: events, "trace_latency": lambda: latency(events)}.get(
            wanted, lambda: slow_consumers(events)
        )()

    def _topic(self, name: str) -> DataFrame:
        topic = self._find(name)
        if self.places.archive is not None:
            from pyspark_rocketmq_store.archive import read

            return read(
                self.spark, self.places.archive, name_server=self.places.namesrv, topic=topic, options=self._patience,
                columns=self._columns,
            )  # fmt: skip
        if self._is_typed(topic):
            typed = self._live(topic).option("format", "registered")
            if self._words is None:
                return typed.load()
            wanted = typed_columns(self._words, self._typed_schema(topic))
            if wanted is not None:
                return typed.schema(wanted).load()

        def live(columns: tuple[str, ...] | None) -> DataFrame:
            reader = self._live(topic)
            return (reader if columns is None else reader.schema(c.spark_schema(columns))).load()

        self._narrow[name] = live
        return live(self._columns)

    def _scan(self, columns: tuple[str, ...] | None) -> DataFrame:
        """Return the table of the store directory."""
        assert self.places.store is not None
        reader = self.spark.read.format("rocketmq_store")
        return (reader if columns is None else reader.schema(c.spark_schema(columns))).load(self.places.store)

    def _is_typed(self, topic: str) -> bool:
        """Return whether a schema is stored for the bodies of a topic: its fields are then columns."""
        from pyspark_rocketmq.formats.stored import read_stored
        from pyspark_rocketmq.options import COMMON, endpoint_of, read_options
        from pyspark_rocketmq.source.cluster import Cluster

        endpoint = endpoint_of(read_options({"nameServer": self.places.namesrv}, COMMON), environment())
        return read_stored(Cluster(endpoint), topic) is not None

    def _typed_schema(self, topic: str) -> StructType:
        from pyspark_rocketmq.source.typed import full_schema

        return full_schema({**self._options(topic), "format": "registered"})

    def _live(self, topic: str) -> DataFrameReader:
        return self.spark.read.format("rocketmq").options(**self._options(topic))

    def _options(self, topic: str) -> dict[str, str]:
        return {"nameServer": self.places.namesrv, "topic": topic, **self._patience}

    @property
    def _patience(self) -> dict[str, str]:
        """Return the option that limits how long a query waits for a broker that is away."""
        return {"retryTimeoutMs": str(int(self.places.timeout_s * 1000))}

    def _find(self, name: str) -> str:
        """Return the topic that is meant. Case matters only if two topics differ by nothing else."""
        known = cluster.topics(self.places.namesrv, timeout_s=self.places.timeout_s)
        alike = [topic for topic in known if topic.lower() == name.lower()]
        if len(alike) > 1 and self.spark.conf.get("spark.sql.caseSensitive") != "true":
            raise BadQueryError(
                f"topics {' and '.join(alike)} differ only by case", hint="set spark.sql.caseSensitive=true"
            )
        if name in known:
            return name
        if len(alike) == 1:
            return alike[0]
        names = [*(topic for topic, kind in known.items() if kind == "normal"), *SPECIAL]
        near = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
        hint = f"Did you mean {quoted(near[0])}?" if near else "`show tables` lists what there is."
        raise InvalidArgumentError(f"no topic or table {name}", hint=hint)


def _unknown_when_explained(frame: DataFrame) -> str | None:
    """Return the table that Spark does not know of an explained query. Raise BadQueryError for what else is wrong.

    Spark's EXPLAIN returns an error as its rows, as if it were a plan.
    """
    rows = [str(row[0]) for row in frame.collect()]
    if not rows or not rows[0].startswith(_UNPLANNED):
        return None
    said = "\n".join(rows)
    found = _UNKNOWN_TABLE.search(said)
    if found is None:
        raise BadQueryError(one_line(said.partition("\n")[2] or said.partition(":")[2]))
    return found[1].replace("``", "`")


def _missing_table(error: Any) -> str | None:
    """Return the name without dots that Spark does not know, if this is the error."""
    if error.getCondition() != _MISSING:
        return None
    parts = re.findall(r"`((?:[^`]|``)*)`", (error.getMessageParameters() or {}).get("relationName", ""))
    return parts[0].replace("``", "`") if len(parts) == 1 else None


# -- results


def shown(value: object, width_max: int = 200) -> str:
    """Return a value as one line: bytes as text if they are UTF-8, otherwise as hexadecimal."""
    if value is None:
        return "NULL"
    if isinstance(value, bytes | bytearray):
        raw = bytes(value)
        try:
            text = raw.decode()
        except UnicodeDecodeError:
            text = "0x" + raw.hex()
    elif hasattr(value, "isoformat"):
        text = value.isoformat(sep=" ", timespec="milliseconds") if hasattr(value, "hour") else value.isoformat()
    elif isinstance(value, dict):
        text = " ".join(f"{key}={shown(one)}" for key, one in value.items())
    else:
        text = str(value)
    text = "".join(c if c.isprintable() else "." for c in text)
    return text if len(text) <= width_max else text[: width_max - 3] + "..."


def as_json(value: object) -> Any:
    """Return a value in JSON's types: bytes as text if they are UTF-8, else as base64; times as ISO 8601 in UTC."""
    import base64

    if isinstance(value, bytes | bytearray):
        try:
            return bytes(value).decode()
        except UnicodeDecodeError:
            return base64.b64encode(value).decode()
    if isinstance(value, dict):
        return {str(key): as_json(one) for key, one in value.items()}
    if hasattr(value, "asDict"):
        return {key: as_json(one) for key, one in value.asDict().items()}
    if isinstance(value, list | tuple):
        return [as_json(one) for one in value]
    if hasattr(value, "isoformat"):
        return value.isoformat() + ("Z" if hasattr(value, "hour") else "")
    return value if isinstance(value, str | int | float | bool | None) else str(value)


def first_rows(frame: DataFrame, count: int) -> tuple[list[tuple[Any, ...]], bool]:
    """Return at most `count` rows, and whether there are more."""
    from pyspark.errors import PySparkException

    try:
        rows = [tuple(row) for row in frame.take(count + 1)]
    except PySparkException as error:
        raise failure(error) from None
    return rows[:count], len(rows) > count


def every_row(frame: DataFrame) -> Iterator[dict[str, Any]]:
    """Return all rows, one partition at a time, since they may not fit into memory."""
    from pyspark.errors import PySparkException

    try:
        for row in frame.toLocalIterator(prefetchPartitions=True):
            yield {name: as_json(value) for name, value in zip(frame.columns, row, strict=True)}
    except PySparkException as error:
        raise failure(error) from None


def require_archive_at(directory: str) -> None:
    """Raise InvalidArgumentError where a directory holds no archive. This needs no Spark."""
    from pyspark_rocketmq_store.archive import manifests

    manifests(directory)


def require_store_at(directory: str) -> None:
    """Raise an error where a directory holds no commit log. This needs no Spark."""
    from aerobee.runtime.disk import InlineDisk
    from pyspark_rocketmq_store.planning import segments_of

    if not segments_of(InlineDisk(), f"{directory.rstrip('/')}/commitlog"):
        raise InvalidArgumentError(f"{directory}/commitlog has no segment", hint="give the directory above commitlog")


def require_new(target: Path, *, replace: bool = False) -> None:
    """Raise an error for a target that exists, or whose directory does not exist."""
    if target.is_dir():
        raise InvalidArgumentError(f"{target} is a directory", hint="end the name with a slash to write files into it")
    if target.exists() and not replace:
        raise InvalidArgumentError(f"{target} exists", hint="--yes replaces it")
    if not target.absolute().parent.is_dir():
        raise InvalidArgumentError(f"no directory {target.parent}")


def write_parquet(frame: DataFrame, target: Path, *, replace: bool = False) -> int:
    """Write rows as one Parquet file, or as a directory if `target` ends with a slash, and return their number."""
    from pyspark.errors import PySparkException

    require_new(target, replace=replace)
    whole = target.with_name(f".{target.name}.parts")
    try:
        frame.coalesce(1).write.mode("overwrite").parquet(str(whole))
        return _one_file(whole, target)
    except PySparkException as error:
        raise failure(error) from None
    finally:
        _remove(whole)


def write_parquet_directory(frame: DataFrame, target: str, *, replace: bool = False) -> None:
    """Write a directory as Spark does: in parallel, to any path that Spark supports."""
    from pyspark.errors import PySparkException

    try:
        frame.write.mode("overwrite" if replace else "errorifexists").parquet(target)
    except PySparkException as error:
        raise failure(error) from None


def _one_file(parts: Path, target: Path) -> int:
    import pyarrow.parquet as pq

    found = sorted(parts.glob("part-*.parquet"))
    if len(found) != 1:
        raise InvalidArgumentError(
            f"the result is not on this machine ({len(found)} files)", hint="end the name with a slash: a directory"
        )
    rows: int = pq.ParquetFile(found[0]).metadata.num_rows
    found[0].replace(target)
    return rows


def _remove(directory: Path) -> None:
    import shutil

    shutil.rmtree(directory, ignore_errors=True)
