"""Fields of a loaded JSON object, each checked for its kind; the error names the field at fault."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from aerobee.model.dialect import DialectError


def int_of(data: Mapping[str, Any], name: str, default: int = 0) -> int:
    """An integer field, also when its text is quoted; absent or null gives the default."""
    value = data.get(name)
    if value is None:
        return default
    if isinstance(value, (int, str)):
        try:
            return int(value)
        except ValueError:
            pass
    raise DialectError(f"<{name}> is not an integer")


def bool_of(data: Mapping[str, Any], name: str, default: bool = False) -> bool:
    """A boolean field, also as the text true or false."""
    value = data.get(name)
    if value is None:
        return default
    if isinstance(value, bool):
        return value
    if isinstance(value, str):
        return value.lower() == "true"
    raise DialectError(f"<{name}> is not a boolean")


def float_of(data: Mapping[str, Any], name: str, default: float = 0.0) -> float:
    """A number field."""
    value = data.get(name)
    if value is None:
        return default
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return float(value)
    raise DialectError(f"<{name}> is not a number")


def str_of(data: Mapping[str, Any], name: str, default: str = "") -> str:
    """A text field; numbers become their text, as fastjson does."""
    value = data.get(name)
    if value is None:
        return default
    if isinstance(value, (str, int, float)):
        return str(value)
    raise DialectError(f"<{name}> is not a text")


def map_of(data: Mapping[str, Any], name: str) -> dict[Any, Any]:
    """An object field; absent or null is empty."""
    value = data.get(name)
    if value is None:
        return {}
    if isinstance(value, dict):
        return value
    raise DialectError(f"<{name}> is not an object")


def list_of(data: Mapping[str, Any], name: str) -> list[Any]:
    """A list field; absent or null is empty."""
    value = data.get(name)
    if value is None:
        return []
    if isinstance(value, list):
        return value
    raise DialectError(f"<{name}> is not a list")


def objects_of(data: Mapping[str, Any], name: str) -> list[dict[Any, Any]]:
    """A list field of objects."""
    items = list_of(data, name)
    for item in items:
        if not isinstance(item, dict):
            raise DialectError(f"<{name}> holds something that is not an object")
    return items


def texts_of(data: Mapping[str, Any], name: str) -> dict[str, str]:
    """An object field of texts; null values are left out."""
    return {str(key): str(value) for key, value in map_of(data, name).items() if value is not None}


def tables_of(data: Mapping[str, Any], name: str) -> dict[Any, dict[Any, Any]]:
    """An object field of objects; null values are left out."""
    found = {key: value for key, value in map_of(data, name).items() if value is not None}
    for value in found.values():
        if not isinstance(value, dict):
            raise DialectError(f"<{name}> holds something that is not an object")
    return found


def int_key(key: object) -> int:
    """The key of a table that Java keys by number: unquoted or quoted."""
    if isinstance(key, (int, str)):
        try:
            return int(key)
        except ValueError:
            pass
    raise DialectError(f"the key {key!r} is not an integer")
