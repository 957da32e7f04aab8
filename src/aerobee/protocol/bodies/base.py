"""The body mechanism: frozen dataclasses whose fields are Apache's JSON fields.

Keys are written sorted, as fastjson2 writes a bean; None is left out; an absent field takes its default.
Sets and lists are tuples; a table may be keyed by text, by number or by MessageQueue.
RocketMQ: RemotingSerializable.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from types import UnionType
from typing import Any, Self, Union, get_args, get_origin, get_type_hints

from aerobee.model.dialect import DialectError, dumps, loads_object
from aerobee.model.fields import bool_of, float_of, int_key, int_of, str_of
from aerobee.model.queue import MessageQueue

Encode = Callable[[Any], Any]
Decode = Callable[[Any, str], Any]


class Body:
    """Base of all bodies."""

    __slots__ = ()

    def to_json(self) -> dict[str, Any]:
        """Apache's object."""
        data: dict[str, Any] = {}
        for attribute, name, encode, _ in _plan(type(self)):
            value = getattr(self, attribute)
            if value is not None:
                data[name] = value if encode is None else encode(value)
        return data

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """From Apache's object. Raises DialectError naming the field at fault."""
        values: dict[str, Any] = {}
        for attribute, name, _, decode in _plan(cls):
            value = data.get(name)
            if value is not None:
                values[attribute] = decode(value, name)
        return cls(**values)

    def encode(self) -> bytes:
        """The body's bytes."""
        return dumps(self.to_json())

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """From the body's bytes. Raises DialectError."""
        return cls.from_json(loads_object(data))


def wire(name: str, default: Any) -> Any:
    """A field whose name on the wire is not its own in camel case."""
    return dataclasses.field(default=default, metadata={"wire": name})


_plans: dict[type, tuple[tuple[str, str, Encode | None, Decode], ...]] = {}


def _plan(cls: type) -> tuple[tuple[str, str, Encode | None, Decode], ...]:
    plan = _plans.get(cls)
    if plan is None:
        hints = get_type_hints(cls)
        rows = []
        for item in dataclasses.fields(cls):
            name = item.metadata.get("wire") or _camel(item.name)
            rows.append((item.name, name, *_codec(hints[item.name])))
        plan = _plans[cls] = tuple(sorted(rows, key=lambda row: row[1]))
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


def _codec(hint: Any) -> tuple[Encode | None, Decode]:
    """How a value of this type is written and read."""
    scalar = _SCALARS.get(hint)
    if scalar is not None:
        return None, scalar
    origin, args = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        return _codec(next(arg for arg in args if arg is not type(None)))
    if origin is tuple:
        return _list_codec(args[0])
    if origin is dict:
        return _table_codec(args[0], args[1])
    return (lambda value: value.to_json()), _object_decoder(hint)


def _object_decoder(cls: Any) -> Decode:
    def decode(value: Any, name: str) -> Any:
        if not isinstance(value, dict):
            raise DialectError(f"<{name}> is not an object")
        return cls.from_json(value)

    return decode


def _list_codec(of: Any) -> tuple[Encode, Decode]:
    encode_item, decode_item = _codec(of)

    def encode(value: Any) -> Any:
        return list(value) if encode_item is None else [encode_item(item) for item in value]

    def decode(value: Any, name: str) -> Any:
        if not isinstance(value, list):
            raise DialectError(f"<{name}> is not a list")
        return tuple(decode_item(item, name) for item in value if item is not None)

    return encode, decode


def _table_codec(key: Any, of: Any) -> tuple[Encode, Decode]:
    encode_item, decode_item = _codec(of)
    read_key: Callable[[Any], Any] = MessageQueue.from_key if key is MessageQueue else int_key if key is int else str

    def encode(value: Any) -> Any:
        items = value.items()
        if encode_item is not None:
            items = [(k, encode_item(item)) for k, item in items]
        return {k.to_key(): item for k, item in items} if key is MessageQueue else dict(items)

    def decode(value: Any, name: str) -> Any:
        if not isinstance(value, dict):
            raise DialectError(f"<{name}> is not an object")
        return {read_key(k): decode_item(item, name) for k, item in value.items() if item is not None}

    return encode, decode
