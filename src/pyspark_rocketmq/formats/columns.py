"""Decoded bodies as Arrow columns. A row that Arrow cannot hold is found and counts as malformed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

import pyarrow as pa

from pyspark_rocketmq.formats.decoders import BodyDecoder, Fields, MalformedBodyError, short

_NOTHING: Fields = {}
# Arrow writes a decimal out with all its zeros before it looks at the size. Twice the digits that a column can have are
# enough for every number that fits.
_EXPONENT_MAX: Final = 76


class DecodedBodies:
    """The bodies of one batch: their fields, and the reason for each body that could not be read."""

    def __init__(self, decoder: BodyDecoder, bodies: Sequence[bytes], kind: pa.StructType) -> None:
        self.reasons: list[str | None] = [None] * len(bodies)
        rows: list[Fields] = []
        decode = decoder.decode
        for index, body in enumerate(bodies):
            try:
                rows.append(decode(body))
            except MalformedBodyError as error:
                self.reasons[index] = error.message
                rows.append(_NOTHING)
        try:
            self.column = build(rows, kind)
        except (pa.ArrowException, ValueError, TypeError, OverflowError):
            self._drop_impossible(rows, kind)
            self.column = build(rows, kind)

    def _drop_impossible(self, rows: list[Fields], kind: pa.StructType) -> None:
        """Find the rows that Arrow cannot hold, for example a number with too many digits."""
        for index, row in enumerate(rows):
            try:
                build([row], kind)
            except (pa.ArrowException, ValueError, TypeError, OverflowError) as error:
                self.reasons[index] = short(error)
                rows[index] = _NOTHING


def build(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """Return an Arrow array of values, field by field. Arrow's own way is slow for dicts."""
    if not pa.types.is_struct(kind):
        _require_representable(values, kind)
        return pa.array(values, kind)
    fields = [kind.field(index) for index in range(kind.num_fields)]
    children = []
    for field in fields:
        name = field.name
        children.append(build([None if one is None else one.get(name) for one in values], field.type))
    mask = pa.array([one is None for one in values], pa.bool_())
    return pa.StructArray.from_arrays(children, fields=fields, mask=mask)


def _require_representable(values: Iterable[Any], kind: pa.DataType) -> None:
    """Raise ValueError for a decimal so large or so small that Arrow would work on it for minutes, as on 1e-9999999."""
    if not _has_decimal(kind):
        return
    if pa.types.is_decimal(kind):
        for one in values:
            if one is not None and not -_EXPONENT_MAX <= one.adjusted() <= _EXPONENT_MAX:
                raise ValueError(f"a number with the exponent {one.adjusted()} does not fit {kind}")
    elif pa.types.is_list(kind):
        _require_representable((inner for one in values if one is not None for inner in one), kind.value_type)
    elif pa.types.is_map(kind):
        _require_representable((inner for one in values if one is not None for inner in one.values()), kind.item_type)
    else:
        rows = [one for one in values if one is not None]
        for index in range(kind.num_fields):
            field = kind.field(index)
            _require_representable((one.get(field.name) for one in rows), field.type)


def _has_decimal(kind: pa.DataType) -> bool:
    inner = [kind.field(index).type for index in range(kind.num_fields)]
    return pa.types.is_decimal(kind) or any(map(_has_decimal, inner))
