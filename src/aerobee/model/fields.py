"""Fields of a loaded JSON object. Each is checked for its type; the DialectError names the field at fault."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from aerobee.model.dialect import DialectError
from aerobee.model.numbers import INT64_MAX, INT64_MIN, int_or


def whole_of(value: object) -> int:
    """Return a JSON value that is a 64-bit integer, quoted or not; raise DialectError for anything else."""
    if isinstance(value, str):
        found = int_or(value, None)
    else:
        # True is 1, as in fastjson.
        found = value + 0 if isinstance(value, int) and INT64_MIN <= value <= INT64_MAX else None
    if found is None:
        raise DialectError("not an integer of 64 bits")
    return found


def int_of(data: Mapping[str, Any], name: str, default: int = 0) -> int:
    """Return a 64-bit integer field, quoted or not; the default where it is absent or null."""
    value = data.get(name)
    if value is None:
        return default
    try:
        return whole_of(value)
    except DialectError:
        raise DialectError(f"<{name}> is not an integer") from None


def bool_of(data: Mapping[str, Any], name: str, default: bool = False) -> bool:
    """Return a boolean field, also where it is the text true or false."""
    value = data.get(name)
    if value is None:
        return default
    if isinstance(value, bool):
        return value
    if isinstance(value, str):
        return value.lower() == "true"
    raise DialectError(f"<{name}> is not a boolean")


def float_of(data: Mapping[str, Any], name: str, default: float = 0.0) -> float:
    """Return a number field."""
    value = data.get(name)
    if value is None:
        return default
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        try:
            return value * 1.0
        except OverflowError:
            pass
    raise DialectError(f"<{name}> is not a number")


def str_of(data: Mapping[str, Any], name: str, default: str = "") -> str:
    """Return a text field. A number becomes its text, as in fastjson."""
    value = data.get(name)
    if value is None:
        return default
    if isinstance(value, (str, int, float)):
        return str(value)
    raise DialectError(f"<{name}> is not a text")


def map_of(data: Mapping[str, Any], name: str) -> dict[Any, Any]:
    """Return an object field; an empty one where it is absent or null."""
    value = data.get(name)
    if value is None:
        return {}
    if isinstance(value, dict):
        return value
    raise DialectError(f"<{name}> is not an object")


def list_of(data: Mapping[str, Any], name: str) -> list[Any]:
    """Return a list field; an empty one where it is absent or null."""
    value = data.get(name)
    if value is None:
        return []
    if isinstance(value, list):
        return value
    raise DialectError(f"<{name}> is not a list")


def objects_of(data: Mapping[str, Any], name: str) -> list[dict[Any, Any]]:
    """Return a list field of objects."""
    items = list_of(data, name)
    for item in items:
        if not isinstance(item, dict):
            raise DialectError(f"<{name}> holds something that is not an object")
    return items


def texts_of(data: Mapping[str, Any], name: str) -> dict[str, str]:
    """Return an object field of texts without its null values."""
    return {str(key): str(value) for key, value in map_of(data, name).items() if value is not None}


def tables_of(data: Mapping[str, Any], name: str) -> dict[Any, dict[Any, Any]]:
    """Return an object field of objects without its null values."""
    found = {key: value for key, value in map_of(data, name).items() if value is not None}
    for value in found.values():
        if not isinstance(value, dict):
            raise DialectError(f"<{name}> holds something that is not an object")
    return found


def int_key(key: object) -> int:
    """Return a key of a table that Java keys by number, quoted or not."""
    try:
        return whole_of(key)
    except DialectError:
        raise DialectError(f"the key {_shown(key)} is not an integer") from None


def _shown(key: object) -> str:
    text = repr(key)
    return text if len(text) <= 100 else f"{text[:100]}..."
