"""The meaning of each column: the schema of a DataFrame is checked before anything is written."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from typing import Final

from pyspark.sql.types import StructType

from aerobee.errors import InvalidArgumentError
from pyspark_rocketmq.sinkoptions import IDEMPOTENT, SinkOptions

BODY: Final = "body"
TOPIC: Final = "topic"
TAGS: Final = "tags"
KEYS: Final = "keys"
PROPERTIES: Final = "properties"
SHARDING_KEY: Final = "sharding_key"
BROKER: Final = "broker"
QUEUE_ID: Final = "queue_id"
DELIVER_AT: Final = "deliver_at"

# These are Spark's short names of types.
COLUMNS: Final[dict[str, tuple[str, ...]]] = {
    BODY: ("binary", "string"),
    TOPIC: ("string",),
    TAGS: ("string",),
    KEYS: ("string",),
    PROPERTIES: ("map<string,string>",),
    SHARDING_KEY: ("string",),
    BROKER: ("string",),
    QUEUE_ID: ("int",),
    DELIVER_AT: ("timestamp", "bigint"),
}
_KEY_TYPES: Final = ("string", "binary", "int", "bigint")


class SinkSchemaError(InvalidArgumentError):
    """The sink cannot write some columns. The message names each of them."""


@dataclass(frozen=True, slots=True)
class Layout:
    """The position of each column of the sink in a row, or -1."""

    positions: dict[str, int]
    # The position of the idempotency key, which may be one of the columns above; -1 if the level needs none.
    key: int = -1

    def position(self, column: str) -> int:
        return self.positions.get(column, -1)


def layout_of(schema: StructType, options: SinkOptions) -> Layout:
    """Return the layout of a schema, or raise a SinkSchemaError that names all problems at once."""
    problems: list[str] = []
    positions: dict[str, int] = {}
    key = -1
    wants_key = options.guarantee == IDEMPOTENT
    for position, field in enumerate(schema.fields):
        name, kind = field.name.lower(), field.dataType.simpleString()
        is_key = wants_key and name == options.idempotency_key.lower()
        if is_key:
            key = position
            if kind not in _KEY_TYPES:
                problems.append(f"{field.name} is {kind.upper()}, an idempotency key is {_types(_KEY_TYPES)}")
        if name in COLUMNS:
            if name in positions:
                problems.append(f"{field.name} occurs twice")
            positions[name] = position
            if kind not in COLUMNS[name]:
                problems.append(f"{field.name} is {kind.upper()}, not {_types(COLUMNS[name])}")
        elif not is_key:
            near = difflib.get_close_matches(name, COLUMNS, n=1)
            problems.append(f"{field.name} is unknown" + (f" (did you mean {near[0]}?)" if near else ""))
    problems += _missing(positions, key, options)
    if problems:
        columns = ", ".join(COLUMNS)
        raise SinkSchemaError(f"columns of the rocketmq sink: {'; '.join(problems)}. It writes {columns}")
    return Layout(positions, key)


def _missing(positions: dict[str, int], key: int, options: SinkOptions) -> list[str]:
    problems: list[str] = []
    if BODY not in positions:
        problems.append("body is missing (BINARY or STRING)")
    if TOPIC not in positions and options.topic is None:
        problems.append("topic is missing: a column, or option topic")
    if BROKER in positions and QUEUE_ID not in positions:
        problems.append("broker needs queue_id too")
    if SHARDING_KEY in positions and QUEUE_ID in positions:
        problems.append("sharding_key and queue_id exclude each other: choose one")
    if options.guarantee == IDEMPOTENT and key < 0:
        problems.append(
            f"{options.idempotency_key} is missing: deliveryGuarantee=idempotent needs a column that names each row, "
            "called idempotencyKey or as option idempotencyKey says"
        )
    return problems


def _types(kinds: tuple[str, ...]) -> str:
    return " or ".join(kind.upper() for kind in kinds)
