"""The base of all bodies: frozen dataclasses whose fields are the JSON fields of Apache's classes.

Keys are written in sorted order, as fastjson2 does. None is left out. An absent field has its default value.
Sets and lists are tuples. The keys of a table may be texts, numbers or MessageQueues.
RocketMQ: RemotingSerializable.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from types import UnionType
from typing import Any, Self, Union, get_args, get_origin, get_type_hints

from aerobee.model.dialect import (
    DialectError,
    Each,
    Items,
    Slices,
    dump_slices,
    dumps,
    loads_object,
    loads_slices,
    object_of,
)
from aerobee.model.fields import bool_of, float_of, int_key, int_of, str_of
from aerobee.model.queue import MessageQueue

Encode = Callable[[Any], Any]
Decode = Callable[[Any, str], Any]
# Like Decode, but it yields after each slice of a list or table.
DecodeSlices = Callable[[Any, str], Slices[Any]]

_DECODE_SLICE = 100


class Body:
    """The base of all bodies."""

    __slots__ = ()

    def to_json(self) -> dict[str, Any]:
        """Return the JSON object."""
        data: dict[str, Any] = {}
        for row in _plan(type(self)):
            value = getattr(self, row.attribute)
            if value is not None:
                data[row.name] = value if row.encode is None else row.encode(value)
        return data

    def to_lazy_json(self) -> dict[str, Any]:
        """Return what `to_json` does, but make members of lists and tables only when `dump_slices` writes them."""
        data: dict[str, Any] = {}
        for row in _plan(type(self)):
            value = getattr(self, row.attribute)
            if value is not None:
                lazily = row.lazily or row.encode
                data[row.name] = value if lazily is None else lazily(value)
        return data

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Return the body of a JSON object. Raises DialectError with the name of a wrong field."""
        values: dict[str, Any] = {}
        for row in _plan(cls):
            value = data.get(row.name)
            if value is not None:
                values[row.attribute] = row.decode(value, row.name)
        return cls(**values)

    @classmethod
    def from_json_slices(cls, data: Mapping[str, Any]) -> Slices[Self]:
        """Return what `from_json` does, and yield after each slice of a list or table."""
        values: dict[str, Any] = {}
        for row in _plan(cls):
            value = data.get(row.name)
            if value is None:
                continue
            if row.decode_slices is not None:
                values[row.attribute] = yield from row.decode_slices(value, row.name)
            else:
                values[row.attribute] = row.decode(value, row.name)
        return cls(**values)

    def encode(self) -> bytes:
        """Return the bytes of the body."""
        return dumps(self.to_json())

    def encode_slices(self) -> Slices[bytes]:
        """Return the bytes of the body, built in slices."""
        return dump_slices(self.to_lazy_json())

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Return the body of these bytes. Raises DialectError."""
        return cls.from_json(loads_object(data))

    @classmethod
    def decode_slices(cls, data: bytes) -> Slices[Self]:
        """Return what `decode` does in slices, for bodies that may be large."""
        value = object_of((yield from loads_slices(data))) if data else {}
        return (yield from cls.from_json_slices(value))


def wire(name: str, default: Any) -> Any:
    """Return a field whose wire name is not its own name in camel case."""
    return dataclasses.field(default=default, metadata={"wire": name})


@dataclasses.dataclass(frozen=True, slots=True)
class _Codec:
    """The way to write and read values of one type. If `encode` is None, values are written as they are."""

    encode: Encode | None
    decode: Decode
    lazily: Encode | None = None
    decode_slices: DecodeSlices | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class _Row(_Codec):
    """One field of a body."""

    attribute: str = ""
    name: str = ""


_plans: dict[type, tuple[_Row, ...]] = {}


def _plan(cls: type) -> tuple[_Row, ...]:
    plan = _plans.get(cls)
    if plan is None:
        hints = get_type_hints(cls)
        rows = []
        for item in dataclasses.fields(cls):
            name = item.metadata.get("wire") or _camel(item.name)
            codec = _codec(hints[item.name])
            rows.append(_Row(codec.encode, codec.decode, codec.lazily, codec.decode_slices, item.name, name))
        plan = _plans[cls] = tuple(sorted(rows, key=lambda row: row.name))
    return plan


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


_SCALARS: dict[object, Decode] = {
    int: lambda value, name: int_of({name: value}, name),
    bool: lambda value, name: bool_of({name: value}, name),
    float: lambda value, name: float_of({name: value}, name),
    str: lambda value, name: str_of({name: value}, name),
    Any: lambda value, name: value,
}


def _codec(hint: Any) -> _Codec:
    """Return the way to write and read values of this type."""
    scalar = _SCALARS.get(hint)
    if scalar is not None:
        return _Codec(None, scalar)
    origin, args = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        return _codec(next(arg for arg in args if arg is not type(None)))
    if origin is tuple:
        return _list_codec(_codec(args[0]))
    if origin is dict:
        return _table_codec(args[0], _codec(args[1]))
    return _object_codec(hint)


def _object_codec(cls: Any) -> _Codec:
    def decode(value: Any, name: str) -> Any:
        return cls.from_json(checked(value, name))

    def decode_slices(value: Any, name: str) -> Slices[Any]:
        return (yield from cls.from_json_slices(checked(value, name)))

    def checked(value: Any, name: str) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise DialectError(f"<{name}> is not an object")
        return value

    # A body with a `to_json` of its own is not built field by field.
    has_fields = isinstance(cls, type) and issubclass(cls, Body)
    return _Codec(
        lambda value: value.to_json(),
        decode,
        (lambda value: value.to_lazy_json()) if has_fields and cls.to_json is Body.to_json else None,
        decode_slices if has_fields and cls.from_json.__func__ is Body.from_json.__func__ else None,  # type: ignore[attr-defined]
    )


def _list_codec(of: _Codec) -> _Codec:
    def encode(value: Any) -> Any:
        return list(value) if of.encode is None else [of.encode(item) for item in value]

    def lazily(value: Any) -> Any:
        make = of.lazily or of.encode
        return Each(value if make is None else map(make, value))

    def decode(value: Any, name: str) -> Any:
        return tuple(of.decode(item, name) for item in checked(value, name) if item is not None)

    def decode_slices(value: Any, name: str) -> Slices[Any]:
        found = []
        for number, item in enumerate(checked(value, name), 1):
            if item is not None:
                found.append(
                    of.decode(item, name) if of.decode_slices is None else (yield from of.decode_slices(item, name))
                )
            if number % _DECODE_SLICE == 0:
                yield
        return tuple(found)

    def checked(value: Any, name: str) -> list[Any]:
        if not isinstance(value, list):
            raise DialectError(f"<{name}> is not a list")
        return value

    return _Codec(encode, decode, lazily, decode_slices)


def _table_codec(key: Any, of: _Codec) -> _Codec:
    read_key: Callable[[Any], Any] = MessageQueue.from_key if key is MessageQueue else int_key if key is int else str

    def encode(value: Any) -> Any:
        items = value.items()
        if of.encode is not None:
            items = [(k, of.encode(item)) for k, item in items]
        return {k.to_key(): item for k, item in items} if key is MessageQueue else dict(items)

    def lazily(value: Any) -> Any:
        make = of.lazily or of.encode
        pairs = ((k, item if make is None else make(item)) for k, item in value.items())
        return Items(((k.to_key(), item) for k, item in pairs) if key is MessageQueue else pairs)

    def decode(value: Any, name: str) -> Any:
        items = checked(value, name).items()
        return {read_key(k): of.decode(item, name) for k, item in items if item is not None}

    def decode_slices(value: Any, name: str) -> Slices[Any]:
        found = {}
        for number, (k, item) in enumerate(checked(value, name).items(), 1):
            if item is not None:
                made = of.decode(item, name) if of.decode_slices is None else (yield from of.decode_slices(item, name))
                found[read_key(k)] = made
            if number % _DECODE_SLICE == 0:
                yield
        return found

    def checked(value: Any, name: str) -> dict[Any, Any]:
        if not isinstance(value, dict):
            raise DialectError(f"<{name}> is not an object")
        return value

    return _Codec(encode, decode, lazily, decode_slices)
