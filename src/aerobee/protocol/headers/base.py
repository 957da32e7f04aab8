"""The base of all headers: structs whose fields are the ext fields of a command, and their translation.

On the wire every ext field is a string. `decode_header` converts them to the declared types and names a field that is
missing or wrong. `encode_header` returns the strings in the order of Apache's HashMap.
RocketMQ: RemotingCommand.decodeCommandCustomHeader, makeCustomHeaderToNet.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Protocol, TypeVar

import msgspec
from msgspec import Meta, Struct

from aerobee.errors import ProtocolError
from aerobee.model.dialect import java_double
from aerobee.model.numbers import float_or, int_or
from aerobee.protocol.javaorder import field_order, map_order

Int32 = Annotated[int, Meta(ge=-(2**31), le=2**31 - 1)]
Int64 = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]


class InvalidHeaderError(ProtocolError):
    """A header field is missing or cannot be read. The frame itself was sound, so the connection stays open."""

    def __init__(self, header: str, field: str, reason: str) -> None:
        super().__init__(f"{header}: field <{field}> {reason}")
        self.header = header
        self.field = field


class Header(Struct, kw_only=True, rename="camel", gc=False):
    """The base of all headers."""

    # Apache writes four headers in declared order when the codec is binary. RocketMQ: FastCodesHeader.
    declared_order: ClassVar[bool] = False


class RpcRequestHeader(Header, kw_only=True):
    """The fields that any request may have: namespace, namespaced, broker name, oneway."""

    ns: str | None = None
    nsd: bool | None = None
    bname: str | None = None
    oway: bool | None = None


class TopicRequestHeader(RpcRequestHeader, kw_only=True):
    """The base of requests about a topic. `lo` tells whether it is a logical topic (static topic mapping)."""

    lo: bool | None = None


class TopicQueueRequestHeader(TopicRequestHeader, kw_only=True):
    """The base of requests about one queue of a topic."""


class HasExt(Protocol):
    """Anything that has ext fields, such as a Command."""

    @property
    def ext(self) -> Mapping[str, str]: ...


H = TypeVar("H", bound=Header)

_MISSING = re.compile(r"missing required field `(\w+)`")
_AT = re.compile(r"at `\$\.(\w+)`")


def decode_header(cls: type[H], source: HasExt | Mapping[str, str]) -> H:
    """Return the header of a command. Raises InvalidHeaderError with the wire name of a missing or wrong field."""
    # Nearly always it is a command; to ask whether it is a mapping costs as much as to read a field.
    given: Any = source
    ext: Mapping[str, str] = getattr(given, "ext", given)
    try:
        return msgspec.convert(ext, cls, strict=False)
    except msgspec.ValidationError:
        pass
    # The slow path reads what Java can parse and msgspec cannot: leading zeros, a plus sign, odd booleans.
    try:
        return msgspec.convert(_as_java_reads(cls, ext), cls)
    except msgspec.ValidationError as problem:
        text = str(problem)
        missing = _MISSING.search(text)
        if missing:
            raise InvalidHeaderError(cls.__name__, missing[1], "is missing") from None
        at = _AT.search(text)
        raise InvalidHeaderError(cls.__name__, at[1] if at else "?", f"is not readable: {text}") from None


def encode_header(header: Header, *, binary: bool = False) -> dict[str, str]:
    """Return the fields that are not None as strings by wire name, in Apache's order for the codec."""
    values: dict[str, object] = msgspec.to_builtins(header)
    present = tuple([name for name, value in values.items() if value is not None])
    shape = _shape(type(header))
    key = (binary and header.declared_order, present)
    order = shape.orders.get(key)
    if order is None:
        order = shape.orders[key] = shape.order(*key)
    ext: dict[str, str] = {}
    for name in order:
        value = values[name]
        ext[name] = value if isinstance(value, str) else text_of(value)
    return ext


def text_of(value: object) -> str:
    """Return a header value as the text of Java's toString."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return java_double(value)
    return str(value)


def wire_fields(cls: type[Header]) -> tuple[tuple[str, str], ...]:
    """Return (attribute, wire name) of each field, in the declared order."""
    return _shape(cls).declared


class _Shape:
    """The facts about a header class that are computed once."""

    def __init__(self, cls: type[Header]) -> None:
        fields = msgspec.structs.fields(cls)
        own = _declaring(cls)
        self.types = {f.encode_name: _scalar(f.type) for f in fields}
        pairs = [(f.name, f.encode_name) for f in fields]
        # msgspec lists the fields of the bases first. Apache writes the fields of the class itself first.
        self.declared = tuple(p for base in cls.__mro__ for p in pairs if own[p[0]] is base)
        self._hashed = field_order([(_java_name(own[a]), name) for a, name in self.declared])
        # The order for each set of present fields. In practice there are few such sets.
        self.orders: dict[tuple[bool, tuple[str, ...]], tuple[str, ...]] = {}

    def order(self, declared: bool, present: tuple[str, ...]) -> tuple[str, ...]:
        """Return the order in which Apache writes these fields."""
        if len(self.orders) >= 256:
            self.orders.clear()
        if declared:
            return tuple(name for _, name in self.declared if name in present)
        return map_order(tuple(name for name in self._hashed if name in present))


_shapes: dict[type[Header], _Shape] = {}


def _shape(cls: type[Header]) -> _Shape:
    shape = _shapes.get(cls)
    if shape is None:
        shape = _shapes[cls] = _Shape(cls)
    return shape


# Apache's packages of the headers in each module. The order of fields depends on the full name of the class.
_PACKAGES = {"base": "rpc", "route": "protocol.header.namesrv", "kv": "protocol.header.namesrv"}
_PACKAGES["controller"] = "protocol.header.controller"


def _java_name(cls: type[Header]) -> str:
    module = cls.__module__.rpartition(".")[2]
    package = cls.__dict__.get("java_package") or _PACKAGES.get(module, "protocol.header")
    return f"org.apache.rocketmq.remoting.{package}.{cls.__name__}"


def _declaring(cls: type[Header]) -> dict[str, type[Header]]:
    """Return the class that declares each attribute."""
    found: dict[str, type[Header]] = {}
    for base in cls.__mro__:
        if issubclass(base, Header):
            for name in base.__annotations__ if "__annotations__" in base.__dict__ else ():
                found.setdefault(name, base)
    return found


def _scalar(declared: object) -> type:
    """Return the int, bool, float or str in an annotation such as `Int32 | None`."""
    text = str(declared)
    for kind in (bool, int, float):
        if kind.__name__ in text:
            return kind
    return str


def _as_java_reads(cls: type[Header], ext: Mapping[str, str]) -> dict[str, object]:
    """Return the values parsed by Java's rules. Others stay strings, so that convert names the field."""
    types = _shape(cls).types
    values: dict[str, object] = {}
    for name, kind in types.items():
        text = ext.get(name)
        if text is None or (text == "" and kind is not str):
            continue
        if kind is bool:
            values[name] = text.lower() == "true"
        elif kind is int:
            values[name] = int_or(text, text)
        elif kind is float:
            values[name] = float_or(text, text)
        else:
            values[name] = text
    return values
