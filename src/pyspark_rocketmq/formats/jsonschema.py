"""The fields that a JSON Schema describes, and the fields that are inferred from a sample of bodies."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec
from pyspark.sql import types as t

from pyspark_rocketmq.formats.types import SchemaError

_DEPTH_MAX: Final = 32
_FIELDS_MAX: Final = 2_000
_LONG: Final = 1 << 63
_SIMPLE: Final[dict[str, t.DataType]] = {
    "string": t.StringType(), "integer": t.LongType(), "number": t.DoubleType(), "boolean": t.BooleanType(),
}  # fmt: skip
_FORMATS: Final[dict[str, t.DataType]] = {"date-time": t.TimestampType(), "date": t.DateType()}


# -- JSON Schema


def fields_of(text: str) -> t.StructType:
    """Return the fields of a JSON Schema. Raises SchemaError for what cannot be columns."""
    try:
        whole = json.loads(text)
    except (ValueError, RecursionError):
        raise SchemaError("the schema is no JSON") from None
    if not isinstance(whole, dict):
        raise SchemaError("the JSON Schema is not an object")
    if whole.get("type") == "struct":
        return t.StructType.fromJson(whole)
    found = _type(whole, whole, "the body", 0)
    if not isinstance(found, t.StructType):
        raise SchemaError("the JSON Schema does not describe an object with properties")
    return found


def _type(node: Any, whole: Mapping[str, Any], where: str, depth: int) -> t.DataType:
    if depth > _DEPTH_MAX:
        raise SchemaError(f"{where}: the JSON Schema is nested too deeply, or refers to itself")
    if not isinstance(node, dict):
        raise SchemaError(f"{where}: the JSON Schema says nothing about its type")
    if "$ref" in node:
        return _type(_referred(node["$ref"], whole, where), whole, where, depth + 1)
    for word in ("oneOf", "anyOf"):
        if word in node:
            return _type(
                _only([one for one in node[word] if one.get("type") != "null"], where), whole, where, depth + 1
            )
    kind = node.get("type")
    if isinstance(kind, list):
        kind = _only([one for one in kind if one != "null"], where)
    if kind == "object" or (kind is None and "properties" in node):
        return _object(node, whole, where, depth)
    if kind == "array":
        return t.ArrayType(_type(node.get("items"), whole, f"{where}[]", depth + 1))
    if kind == "string" and node.get("format") in _FORMATS:
        return _FORMATS[node["format"]]
    if kind not in _SIMPLE:
        raise SchemaError(f"{where}: JSON Schema type {kind!r} has no type in Spark")
    return _SIMPLE[kind]


def _object(node: Mapping[str, Any], whole: Mapping[str, Any], where: str, depth: int) -> t.DataType:
    properties = node.get("properties")
    if properties:
        return t.StructType(
            [t.StructField(name, _type(one, whole, f"field {name}", depth + 1)) for name, one in properties.items()]
        )
    values = node.get("additionalProperties")
    if isinstance(values, dict):
        return t.MapType(t.StringType(), _type(values, whole, f"{where}{{}}", depth + 1))
    raise SchemaError(f"{where}: an object without properties has no type in Spark")


def _only(kinds: list[Any], where: str) -> Any:
    if len(kinds) != 1:
        raise SchemaError(f"{where} may have several types, which a column cannot")
    return kinds[0]


def _referred(place: object, whole: Mapping[str, Any], where: str) -> Any:
    if not isinstance(place, str) or not place.startswith("#/"):
        raise SchemaError(f"{where} refers to {place!r}: only places inside the schema are read")
    found: Any = whole
    for part in place[2:].split("/"):
        found = found.get(part.replace("~1", "/").replace("~0", "~")) if isinstance(found, dict) else None
    return found


# -- a sample


def infer(bodies: Iterable[bytes]) -> t.StructType:
    """Return the fields of JSON bodies. Bodies that are no JSON object are left out.

    A field that is a number in one body and text in another is an error, because one type must be right for all.
    """
    whole: Any = None
    count = 0
    for body in bodies:
        count += 1
        try:
            found = msgspec.json.decode(body)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            continue
        if isinstance(found, dict):
            whole = _merged(whole, _seen(found, 0), "")
    if whole is None:
        raise SchemaError(
            f"no schema can be inferred: of {count} messages, none is a JSON object; give option schema"
            if count
            else "no schema can be inferred, because there are no messages yet; give option schema"
        )
    found_fields = _finished(whole)
    if not isinstance(found_fields, t.StructType):
        raise SchemaError("no schema can be inferred: the JSON objects have no fields; give option schema")
    return found_fields


class _Object(dict[str, Any]):
    """The fields of an object that is being inferred."""


class _Array(list[Any]):
    """The item of an array that is being inferred; empty if none was seen."""


def _seen(value: Any, depth: int) -> Any:
    if depth > _DEPTH_MAX:
        raise SchemaError("the bodies are nested too deeply to infer a schema; give option schema")
    if isinstance(value, dict):
        return _Object({key: _seen(one, depth + 1) for key, one in value.items()})
    if isinstance(value, list):
        item: Any = None
        for one in value:
            item = _merged(item, _seen(one, depth + 1), "[]")
        return _Array([] if item is None else [item])
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int):
        return "bigint" if -_LONG <= value < _LONG else "double"
    return {float: "double", str: "string"}.get(type(value))


def _merged(one: Any, other: Any, where: str) -> Any:
    if one is None or other is None or one == other:
        return other if one is None else one
    if isinstance(one, _Object) and isinstance(other, _Object):
        for name, kind in other.items():
            one[name] = _merged(one.get(name), kind, f"{where}.{name}" if where else name)
        if len(one) > _FIELDS_MAX:
            raise SchemaError(f"the bodies have more than {_FIELDS_MAX} different fields; give option schema")
        return one
    if isinstance(one, _Array) and isinstance(other, _Array):
        return _Array([_merged(one[0] if one else None, other[0] if other else None, f"{where}[]")])
    if {one, other} == {"bigint", "double"} if isinstance(one, str) and isinstance(other, str) else False:
        return "double"
    raise SchemaError(f"field {where or 'of the body'} has different types in different bodies; give option schema")


def _finished(kind: Any) -> t.DataType | None:
    """Return the type. A field that was always null or empty is left out, because its type is unknown."""
    if isinstance(kind, _Object):
        parts = [(name, _finished(one)) for name, one in kind.items()]
        fields = [t.StructField(name, one) for name, one in parts if one is not None]
        return t.StructType(fields) if fields else None
    if isinstance(kind, _Array):
        item = _finished(kind[0]) if kind else None
        return None if item is None else t.ArrayType(item)
    simple: dict[Any, t.DataType] = {
        "boolean": t.BooleanType(), "bigint": t.LongType(), "double": t.DoubleType(), "string": t.StringType(),
    }  # fmt: skip
    return simple.get(kind)
