"""How messages of protobuf are declared here: a dataclass whose fields say their numbers.

    @message
    class PbResource:
        resource_namespace: str = text(1)
        name: str = text(2)

`decode(PbResource, data)` and `encode(value)` read and write them.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Final, TypeVar, dataclass_transform

from aerobee.hot.wire import protobuf
from aerobee.hot.wire.protobuf import PbField, PbTable

T = TypeVar("T")
# The largest sound requests are 32 messages with 128 properties each, and settings with 1,000 subscriptions.
REQUEST_FIELDS_MAX: Final = 20_000
_TABLES: Final[dict[type, PbTable]] = {}


def _declared(number: int, kind: int, default: object, *, many: bool = False, **more: object) -> Any:
    metadata = {"number": number, "kind": kind, "many": many, **more}
    if many:
        return dataclasses.field(default_factory=list, metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


def text(number: int, *, optional: bool = False) -> Any:
    """Declare a text; an optional one is None where it is absent."""
    return _declared(number, protobuf.STRING, None if optional else "", optional=optional)


def texts(number: int) -> Any:
    """Declare a list of texts."""
    return _declared(number, protobuf.STRING, None, many=True)


def int32(number: int, *, optional: bool = False, many: bool = False, oneof: str = "") -> Any:
    """Declare a number of 32 bits, or one of an enum."""
    given = optional or bool(oneof)
    return _declared(number, protobuf.INT32, None if given else 0, many=many, optional=given, oneof=oneof)


def int64(number: int, *, optional: bool = False, oneof: str = "") -> Any:
    """Declare a number of 64 bits."""
    given = optional or bool(oneof)
    return _declared(number, protobuf.INT64, None if given else 0, optional=given, oneof=oneof)


def boolean(number: int, *, optional: bool = False) -> Any:
    """Declare a truth value."""
    return _declared(number, protobuf.BOOL, None if optional else False, optional=optional)


def float32(number: int) -> Any:
    """Declare a float."""
    return _declared(number, protobuf.FLOAT, 0.0)


def raw(number: int) -> Any:
    """Declare bytes."""
    return _declared(number, protobuf.BYTES, b"")


def text_map(number: int) -> Any:
    """Declare a map of texts to texts."""
    return dataclasses.field(default_factory=dict, metadata={"number": number, "kind": protobuf.TEXTS, "many": False})


def sub(number: int, cls: type, *, oneof: str = "") -> Any:
    """Declare a message, None where it is absent."""
    return _declared(number, protobuf.MESSAGE, None, optional=True, cls=cls, oneof=oneof)


def subs(number: int, cls: type) -> Any:
    """Declare a list of messages."""
    return _declared(number, protobuf.MESSAGE, None, many=True, cls=cls)


@dataclass_transform(field_specifiers=())
def message(cls: type[T]) -> type[T]:
    """Make a class a message."""
    made = dataclasses.dataclass(slots=True)(cls)
    declared = sorted(dataclasses.fields(made), key=lambda one: one.metadata["number"])  # type: ignore[arg-type]
    fields = []
    for one in declared:
        told = one.metadata
        oneof = told.get("oneof", "")
        rivals = tuple(
            other.name for other in declared if oneof and other is not one and other.metadata.get("oneof") == oneof
        )
        field = PbField(
            told["number"],
            one.name,
            told["kind"],
            many=told["many"],
            optional=told.get("optional", False),
            rivals=rivals,
        )
        if "cls" in told:
            field.table = _TABLES[told["cls"]]
        fields.append(field)
    _TABLES[made] = PbTable(made, fields)
    return made


def table_of(cls: type) -> PbTable:
    """Return the table of a message."""
    return _TABLES[cls]


def messages() -> list[type]:
    """Return every message that was declared."""
    return list(_TABLES)


def decode(cls: type[T], data: bytes) -> T:
    """Return the message that the bytes are. Raise RemoteProtocolError where they are none."""
    made = protobuf.decode_message(_TABLES[cls], data)
    assert isinstance(made, cls)
    return made


def decode_request(cls: type[T], data: bytes) -> T:
    """Return what a client sent, as `decode` does. Raise RemoteProtocolError also where it has too many fields: a
    message of four megabytes can be two million empty ones, and reading those would hold up everybody else."""
    made = protobuf.decode_message(_TABLES[cls], data, REQUEST_FIELDS_MAX)
    assert isinstance(made, cls)
    return made


def encode(value: object) -> bytes:
    """Return a message as bytes."""
    return protobuf.encode_message(_TABLES[type(value)], value)
