"""Apache's JSON dialect, for bodies on the wire and for `config/*.json`.

fastjson2 writes the keys of maps as they are: integers without quotes (`{0:"10.0.0.1:10911"}`) and whole objects
(`{{"brokerName":"b","queueId":0,"topic":"t"}:{...}}`).
The reader accepts both forms, and quoted integers (as text: `fields.int_key` accepts either). Of two equal keys the
last counts, as in fastjson. NaN, unquoted words and single quotes are refused.
The writer writes integer keys without quotes and an ObjectKey as an object. It leaves out None in a dict, writes NaN
and infinity as null and doubles as Java does, and escapes only what must be escaped.
RocketMQ: RemotingSerializable.encode, decode, toJson.
"""

from __future__ import annotations

import json.decoder
import math
import re
import sys
from collections.abc import Generator, Iterable, Mapping
from typing import Any, Final, TypeAlias, TypeVar

import msgspec

from aerobee.errors import LocalProtocolError, RemoteProtocolError
from aerobee.model.numbers import plain_int

DEPTH_MAX = 32
SIZE_MAX = 64 << 20
# Larger texts are read in slices, one value after the other: the fast reader cannot pause.
WHOLE_MAX: Final = 64 << 10
# The most objects and lists of a text read in slices. Each takes many times the memory of its two bytes.
CONTAINERS_MAX: Final = 100_000
# The numbers of values between two pauses. A slice takes about a millisecond.
_READ_SLICE: Final = 500
_WRITE_SLICE: Final = 200

T = TypeVar("T")
# Work that is done in slices: the caller can do something else at each yield. See net/turns.py.
Slices: TypeAlias = Generator[None, None, T]


class ObjectKey(tuple[tuple[str, Any], ...]):
    """An object used as a key: its (name, value) pairs in the order in which they are written."""

    __slots__ = ()

    @classmethod
    def of(cls, fields: Mapping[str, Any]) -> ObjectKey:
        """Return the key of a flat object; raise TypeError where a value is a list or an object."""
        key = cls(fields.items())
        hash(key)
        return key

    def fields(self) -> dict[str, Any]:
        """Return the object as a dict."""
        return dict(self)


class DialectError(RemoteProtocolError):
    """A text is not Apache's JSON."""


def loads(data: bytes | bytearray | memoryview, *, size_max: int = SIZE_MAX) -> Any:
    """Return the value of a body; raise DialectError where it is not Apache's JSON.

    Plain JSON is read by msgspec, which is fast, and everything else by the reader below.
    """
    if len(data) > size_max:
        raise DialectError(f"{len(data)} bytes of JSON exceed {size_max}")
    raw = bytes(data)
    try:
        value = msgspec.json.decode(raw)
    except RecursionError:
        raise DialectError(f"JSON nested deeper than {DEPTH_MAX}") from None
    except ValueError:
        return run_slices(_read(raw))
    if raw.count(b"{") + raw.count(b"[") > DEPTH_MAX:
        _check_depth(value)
    return value


def loads_slices(data: bytes) -> Slices[Any]:
    """Read a body as `loads` does, with a pause after each slice where the text is long."""
    if len(data) > WHOLE_MAX:
        return (yield from _read(data, CONTAINERS_MAX))
    return loads(data)


def run_slices(slices: Slices[T]) -> T:
    """Run all slices without a pause and return their result."""
    try:
        while True:
            next(slices)
    except StopIteration as stop:
        result: T = stop.value
        return result


def object_of(value: Any) -> dict[Any, Any]:
    """Return the loaded value; raise DialectError unless it is an object."""
    if not isinstance(value, dict):
        raise DialectError("the body is not a JSON object")
    return value


def loads_object(data: bytes | bytearray | memoryview) -> dict[Any, Any]:
    """Read a body that is an object; an empty body is an empty object. Raise DialectError for any other value."""
    return object_of(loads(data)) if len(data) else {}


def dumps(value: object, *, pretty: bool = False) -> bytes:
    """Return the bytes that Apache would write, with `pretty` those of its configuration files (tabs)."""
    out: list[str] = []
    _write(value, out, 0, pretty)
    return "".join(out).encode("utf-8", "replace")


class Items:
    """An object whose members are made while they are written, for tables that are too large to make at once."""

    __slots__ = ("pairs",)

    def __init__(self, pairs: Iterable[tuple[object, object]]) -> None:
        self.pairs = pairs


class Each:
    """A list whose items are made while they are written."""

    __slots__ = ("values",)

    def __init__(self, values: Iterable[object]) -> None:
        self.values = values


def dump_slices(value: object) -> Slices[bytes]:
    """Write a value as `dumps` does, with a pause after each slice. The value may contain `Items` and `Each`."""
    out: list[str] = []
    parts: list[bytes] = []
    yield from _write_slices(value, out, parts, 1)
    parts.append("".join(out).encode("utf-8", "replace"))
    return b"".join(parts)


class WrittenJson(str):
    """JSON text that `written` made. The writer copies it unchanged."""

    __slots__ = ()


def written(value: object, depth: int) -> WrittenJson:
    """Write a part of a pretty text, `depth` objects deep, to be used many times: large tables change little."""
    out: list[str] = []
    _write(value, out, depth, True)
    return WrittenJson("".join(out))


def dumps_plain(value: object) -> bytes:
    """Write a value without doubles and None, whose keys are all strings, faster than `dumps` does."""
    return msgspec.json.encode(value)


def java_double(value: float) -> str:
    """Write a double as Java's Double.toString does: plain between 0.001 and 10,000,000, else with an exponent."""
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        text = repr(value)
        return text if "e" not in text else format(value, "f")
    sign, digits, exponent = _digits(value)
    return f"{sign}{digits[0]}.{digits[1:] or '0'}E{exponent}"


def _digits(value: float) -> tuple[str, str, int]:
    mantissa, exponent = f"{value!r}e0".split("e")[:2]
    sign = "-" if mantissa.startswith("-") else ""
    whole, _, fraction = mantissa.lstrip("-").partition(".")
    digits = (whole + fraction).lstrip("0")
    point = int(exponent) + len(whole) - (len(whole + fraction) - len(digits))
    return sign, digits.rstrip("0") or "0", point - 1


# Reading


def _check_depth(value: object) -> None:
    """Raise DialectError where a value is nested too deeply. The check goes level by level, without recursion."""
    level: list[Any] = [value]
    for _ in range(DEPTH_MAX):
        deeper: list[Any] = []
        for item in level:
            children: Iterable[Any] = item.values() if type(item) is dict else item if type(item) is list else ()
            deeper.extend(child for child in children if type(child) is dict or type(child) is list)
        if not deeper:
            return
        level = deeper
    raise DialectError(f"JSON nested deeper than {DEPTH_MAX}")


_SPACE = re.compile(r"[ \t\n\r]*")
_NUMBER = re.compile(r"(-?(?:0|[1-9][0-9]{0,30}))(\.[0-9]{1,60})?([eE][+-]?[0-9]{1,4})?")
_INT_KEY = re.compile(r"(-?[0-9]{1,19})[ \t\n\r]*:")
_WORDS = {"t": ("true", True), "f": ("false", False), "n": ("null", None)}
_BLANK = " \t\n\r"


def _read(raw: bytes, containers_max: int = sys.maxsize) -> Slices[Any]:
    """Read a text in one pass, without recursion, with a pause after each slice of values."""
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError:
        raise DialectError("the body is not UTF-8") from None
    reader = _Reader(text)
    while not reader.read(_READ_SLICE):
        if reader.containers > containers_max:
            raise DialectError(f"more than {containers_max} objects and lists")
        yield
    return reader.value


class _Reader:
    """A reader of one text that can pause between any two values."""

    __slots__ = ("_around", "_at", "_inside", "_key", "_text", "containers", "value")

    def __init__(self, text: str) -> None:
        self.value: Any = None
        self.containers = 0
        self._text = text
        self._at = _skip(text, 0)
        # _inside is the container that is being read and _key the key of its next value. _around has the same two for
        # each container around it.
        self._inside: Any = None
        self._key: Any = None
        self._around: list[tuple[Any, Any]] = []

    def read(self, count: int) -> bool:
        """Read the next `count` values; return whether the text has ended."""
        for _ in range(count):
            head = self._text[self._at : self._at + 1]
            if head == "{" or head == "[":
                if self._opens(head):
                    continue
            elif head == '"':
                self.value, self._at = _string(self._text, self._at)
            else:
                self.value, self._at = _scalar(self._text, self._at, head)
            if self._is_over():
                return True
        return False

    def _opens(self, head: str) -> bool:
        """Enter a container; return False where it is empty and so a whole value already."""
        self.containers += 1
        if len(self._around) >= DEPTH_MAX:
            raise DialectError(f"JSON nested deeper than {DEPTH_MAX}")
        text, at = self._text, _skip(self._text, self._at + 1)
        if text[at : at + 1] == ("}" if head == "{" else "]"):
            self.value, self._at = {} if head == "{" else [], at + 1
            return False
        self._around.append((self._inside, self._key))
        if head == "[":
            self._inside, self._at = [], at
        else:
            self._inside = {}
            self._key, self._at = _key(text, at)
        return True

    def _is_over(self) -> bool:
        """Put the value into its container, and so each container that ends with it; return whether the text ends."""
        text = self._text
        while True:
            at = _skip(text, self._at)
            if self._key is _OBJECT_KEY:
                self._key, self._at = _as_key(self.value, text, at), _skip(text, at + 1)
                return False
            inside = self._inside
            if inside is None:
                if at != len(text):
                    raise DialectError(f"more text after the value, at {at}")
                return True
            is_object = type(inside) is dict
            if is_object:
                inside[self._key] = self.value
            else:
                inside.append(self.value)
            mark = text[at : at + 1]
            if mark == ",":
                self._at = _skip(text, at + 1)
                if is_object:
                    self._key, self._at = _key(text, self._at)
                return False
            if mark != ("}" if is_object else "]"):
                raise DialectError(f"no comma or {'brace' if is_object else 'bracket'} at {at}")
            self._at = at + 1
            self.value = inside
            self._inside, self._key = self._around.pop()


# This is the key while the object that will be the key is read.
_OBJECT_KEY = object()


def _skip(text: str, at: int) -> int:
    return _SPACE.match(text, at).end() if text[at : at + 1] in _BLANK else at  # type: ignore[union-attr]


def _scalar(text: str, at: int, head: str) -> tuple[Any, int]:
    if head in _WORDS:
        word, meaning = _WORDS[head]
        if text.startswith(word, at):
            return meaning, at + len(word)
    number = _NUMBER.match(text, at)
    if number is None:
        raise DialectError(f"no JSON value at {at}")
    # The patterns bound the number of digits.
    if number[2] is None and number[3] is None:
        return int(number[1]), number.end()
    real = float(number[0])
    if math.isinf(real):
        raise DialectError(f"the number at {at} is too large")
    return real, number.end()


def _string(text: str, at: int) -> tuple[str, int]:
    try:
        value: str
        value, end = json.decoder.scanstring(text, at + 1, True)  # type: ignore[attr-defined]
        if not value.isascii():
            # Half of a pair of \\u escapes is no text: it could be neither sent nor stored.
            value.encode()
        return value, end
    except ValueError as problem:
        raise DialectError(f"bad string at {at}: {problem}") from None


def _key(text: str, at: int) -> tuple[Any, int]:
    """Return a key, a string or an integer, and where its value begins; for an object, where the object begins."""
    head = text[at : at + 1]
    if head == "{":
        return _OBJECT_KEY, at
    if head != '"':
        number = _INT_KEY.match(text, at)
        if number is None:
            raise DialectError(f"no key at {at}")
        return int(number[1]), _skip(text, number.end())
    key, at = _string(text, at)
    at = _skip(text, at)
    if text[at : at + 1] != ":":
        raise DialectError(f"no colon at {at}")
    return key, _skip(text, at + 1)


def _as_key(value: Any, text: str, at: int) -> ObjectKey:
    if text[at : at + 1] != ":":
        raise DialectError(f"no colon at {at}")
    try:
        return ObjectKey.of(value)
    except TypeError:
        raise DialectError(f"the object used as a key before {at} is not flat") from None


# Writing


def _write(value: object, out: list[str], depth: int, pretty: bool) -> None:
    kind = type(value)
    if kind is str:
        out.append(_quoted(value))  # type: ignore[arg-type]
    elif kind is int:
        out.append(str(value))
    elif kind is WrittenJson:
        out.append(value)  # type: ignore[arg-type]
    elif value is None or value is True or value is False:
        out.append("null" if value is None else "true" if value else "false")
    elif isinstance(value, float):
        out.append(java_double(value) if math.isfinite(value) else "null")
    elif isinstance(value, Mapping):
        _write_object(value.items(), out, depth + 1, pretty)
    elif isinstance(value, ObjectKey):
        _write_object(value, out, depth + 1, pretty)
    elif isinstance(value, (list, tuple, set, frozenset)):
        _write_array(value, out, depth + 1, pretty)
    elif isinstance(value, (str, int)):
        _write(str(value) if isinstance(value, str) else plain_int(value), out, depth, pretty)
    else:
        raise LocalProtocolError(f"{kind.__name__} has no JSON form")


def _write_object(items: Iterable[tuple[object, object]], out: list[str], depth: int, pretty: bool) -> None:
    if depth > DEPTH_MAX:
        raise LocalProtocolError(f"JSON nested deeper than {DEPTH_MAX}")
    between = "," if not pretty else ",\n" + "\t" * depth
    out.append("{")
    first = True
    for key, item in items:
        if item is None:
            continue
        out.append(between[1:] if first else between)
        first = False
        _write_key(key, out, depth, pretty)
        _write(item, out, depth, pretty)
    if pretty and not first:
        out.append("\n" + "\t" * (depth - 1))
    out.append("}")


def _write_key(key: object, out: list[str], depth: int, pretty: bool = False) -> None:
    if type(key) is str:
        out.append(_quoted(key))
    elif isinstance(key, (int, str, ObjectKey)):
        _write(key, out, depth, pretty)
    else:
        raise LocalProtocolError(f"{type(key).__name__} cannot be a JSON key")
    out.append(":")


def _write_array(items: Iterable[object], out: list[str], depth: int, pretty: bool) -> None:
    if depth > DEPTH_MAX:
        raise LocalProtocolError(f"JSON nested deeper than {DEPTH_MAX}")
    between = "," if not pretty else ",\n" + "\t" * depth
    # In pretty text fastjson2 writes the brackets of an empty list on two lines.
    out.append("[" + between[1:])
    first = True
    for item in items:
        if not first:
            out.append(between)
        first = False
        _write(item, out, depth, pretty)
    out.append("]" if not pretty else "\n" + "\t" * (depth - 1) + "]")


def _write_slices(value: object, out: list[str], parts: list[bytes], depth: int) -> Slices[None]:
    """Write a value that may be large: one member after the other, each slice turned into bytes."""
    is_object = isinstance(value, (Mapping, Items))
    items: Iterable[Any]
    if isinstance(value, Items):
        items = value.pairs
    elif isinstance(value, Mapping):
        items = value.items()
    else:
        items = value.values if isinstance(value, Each) else value  # type: ignore[assignment]
    if depth > DEPTH_MAX:
        raise LocalProtocolError(f"JSON nested deeper than {DEPTH_MAX}")
    out.append("{" if is_object else "[")
    first, done = True, 0
    for member in items:
        item = member
        if is_object:
            key, item = member
            if item is None:
                continue
            out.append("" if first else ",")
            _write_key(key, out, depth)
        elif not first:
            out.append(",")
        first = False
        if _is_long(item):
            yield from _write_slices(item, out, parts, depth + 1)
        else:
            _write(item, out, depth, False)
        done += 1
        if done % _WRITE_SLICE == 0:
            parts.append("".join(out).encode("utf-8", "replace"))
            out.clear()
            yield
    out.append("}" if is_object else "]")


def _is_long(value: object) -> bool:
    """Return whether a value is written in slices: it is large, or something inside it may be."""
    if isinstance(value, (Items, Each)):
        return True
    if isinstance(value, ObjectKey) or not isinstance(value, (Mapping, list, tuple)):
        return False
    members: Iterable[object] = value.values() if isinstance(value, Mapping) else value
    return len(value) > _WRITE_SLICE or any(isinstance(one, (Mapping, list, tuple, Items, Each)) for one in members)


_PLAIN = re.compile(r"[A-Za-z0-9_%.:@#+|*/ -]*")


def _quoted(text: str) -> str:
    if _PLAIN.fullmatch(text):
        return f'"{text}"'
    return json.dumps(text, ensure_ascii=False)
