"""Apache's JSON dialect, for bodies on the wire and for `config/*.json`.

fastjson2 writes map keys as they are: integers unquoted (`{0:"10.0.0.1:10911"}`) and whole objects as keys
(`{{"brokerName":"b","queueId":0,"topic":"t"}:{...}}`).
Read: both forms, and quoted integers (kept as text: `fields.int_key` takes either). Of twin keys the last
wins, as in fastjson. NaN, unquoted words and single quotes are refused.
Written: int keys unquoted, ObjectKey as an object, None in a dict left out, NaN and infinity as null, doubles
as Java prints them, nothing escaped that need not be.
RocketMQ: RemotingSerializable.encode, decode, toJson.
"""

from __future__ import annotations

import json.decoder
import math
import re
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from aerobee.errors import LocalProtocolError, RemoteProtocolError
from aerobee.model.numbers import plain_int

DEPTH_MAX = 32
SIZE_MAX = 64 << 20


class ObjectKey(tuple[tuple[str, Any], ...]):
    """An object used as a key: its (name, value) pairs in written order."""

    __slots__ = ()

    @classmethod
    def of(cls, fields: Mapping[str, Any]) -> ObjectKey:
        """The key of a flat object. Raises TypeError when a value is a list or an object."""
        key = cls(fields.items())
        hash(key)
        return key

    def fields(self) -> dict[str, Any]:
        """The object again."""
        return dict(self)


class DialectError(RemoteProtocolError):
    """Text that is not Apache's JSON."""


def loads(data: bytes | bytearray | memoryview, *, size_max: int = SIZE_MAX) -> Any:
    """The value of a body: plain JSON the fast way, the dialect by our own scanner. Raises DialectError."""
    if len(data) > size_max:
        raise DialectError(f"{len(data)} bytes of JSON exceed {size_max}")
    raw = bytes(data)
    try:
        value = msgspec.json.decode(raw)
    except RecursionError:
        raise DialectError(f"JSON nested deeper than {DEPTH_MAX}") from None
    except ValueError:
        return _loads_dialect(raw)
    if raw.count(b"{") + raw.count(b"[") > DEPTH_MAX:
        _check_depth(value)
    return value


def loads_object(data: bytes | bytearray | memoryview) -> dict[Any, Any]:
    """As loads; anything but an object is refused, an empty body is an empty object."""
    value = loads(data) if len(data) else {}
    if not isinstance(value, dict):
        raise DialectError("the body is not a JSON object")
    return value


def dumps(value: object, *, pretty: bool = False) -> bytes:
    """The bytes Apache would write; `pretty` as in its config files (tabs)."""
    out: list[str] = []
    _write(value, out, 0, pretty)
    return "".join(out).encode("utf-8", "replace")


class Written(str):
    """Text that `written` made: it goes out as it is."""

    __slots__ = ()


def written(value: object, depth: int) -> Written:
    """A part of a pretty text, `depth` objects deep, written once and used many times: large tables change little."""
    out: list[str] = []
    _write(value, out, depth, True)
    return Written("".join(out))


def dumps_plain(value: object) -> bytes:
    """As dumps, fast, for values with string keys only, no double and no None."""
    return msgspec.json.encode(value)


def java_double(value: float) -> str:
    """A double as Java's Double.toString: plain between 0.001 and 10,000,000, else with an exponent."""
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
    """Level by level, so that no recursion is needed to find that there is too much of it."""
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


def _loads_dialect(raw: bytes) -> Any:
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError:
        raise DialectError("the body is not UTF-8") from None
    value, at = _value(text, _SPACE.match(text, 0).end(), 0)  # type: ignore[union-attr]
    if _skip(text, at) != len(text):
        raise DialectError(f"more text after the value, at {at}")
    return value


def _skip(text: str, at: int) -> int:
    return _SPACE.match(text, at).end() if text[at : at + 1] in (" ", "\t", "\n", "\r") else at  # type: ignore[union-attr]


def _value(text: str, at: int, depth: int) -> tuple[Any, int]:
    head = text[at : at + 1]
    if head == '"':
        return _string(text, at)
    if head == "{":
        return _object(text, at, depth + 1)
    if head == "[":
        return _array(text, at, depth + 1)
    if head in _WORDS:
        word, meaning = _WORDS[head]
        if text.startswith(word, at):
            return meaning, at + len(word)
    number = _NUMBER.match(text, at)
    if number is None:
        raise DialectError(f"no JSON value at {at}")
    # The patterns bound how many digits there are.
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
            # Half of a pair of \\u escapes is no text: it could be answered to nobody and stored nowhere.
            value.encode()
        return value, end
    except ValueError as problem:
        raise DialectError(f"bad string at {at}: {problem}") from None


def _object(text: str, at: int, depth: int) -> tuple[dict[Any, Any], int]:
    if depth > DEPTH_MAX:
        raise DialectError(f"JSON nested deeper than {DEPTH_MAX}")
    result: dict[Any, Any] = {}
    at = _skip(text, at + 1)
    if text[at : at + 1] == "}":
        return result, at + 1
    while True:
        key, at = _key(text, at, depth)
        value, at = _value(text, _skip(text, at), depth)
        result[key] = value
        at = _skip(text, at)
        mark = text[at : at + 1]
        if mark == "}":
            return result, at + 1
        if mark != ",":
            raise DialectError(f"no comma or brace at {at}")
        at = _skip(text, at + 1)


def _key(text: str, at: int, depth: int) -> tuple[Any, int]:
    """A string, an unquoted integer or an object, and the position after the colon."""
    head = text[at : at + 1]
    if head == '"':
        key: Any
        key, at = _string(text, at)
    elif head == "{":
        fields, at = _object(text, at, depth + 1)
        try:
            key = ObjectKey.of(fields)
        except TypeError:
            raise DialectError(f"the object used as a key before {at} is not flat") from None
    else:
        number = _INT_KEY.match(text, at)
        if number is None:
            raise DialectError(f"no key at {at}")
        return int(number[1]), number.end()
    at = _skip(text, at)
    if text[at : at + 1] != ":":
        raise DialectError(f"no colon at {at}")
    return key, at + 1


def _array(text: str, at: int, depth: int) -> tuple[list[Any], int]:
    if depth > DEPTH_MAX:
        raise DialectError(f"JSON nested deeper than {DEPTH_MAX}")
    result: list[Any] = []
    at = _skip(text, at + 1)
    if text[at : at + 1] == "]":
        return result, at + 1
    while True:
        value, at = _value(text, at, depth)
        result.append(value)
        at = _skip(text, at)
        mark = text[at : at + 1]
        if mark == "]":
            return result, at + 1
        if mark != ",":
            raise DialectError(f"no comma or bracket at {at}")
        at = _skip(text, at + 1)


# Writing


def _write(value: object, out: list[str], depth: int, pretty: bool) -> None:
    kind = type(value)
    if kind is str:
        out.append(_quoted(value))  # type: ignore[arg-type]
    elif kind is int:
        out.append(str(value))
    elif kind is Written:
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
        if type(key) is str:
            out.append(_quoted(key))
        elif isinstance(key, (int, str, ObjectKey)):
            _write(key, out, depth, pretty)
        else:
            raise LocalProtocolError(f"{type(key).__name__} cannot be a JSON key")
        out.append(":")
        _write(item, out, depth, pretty)
    if pretty and not first:
        out.append("\n" + "\t" * (depth - 1))
    out.append("}")


def _write_array(items: Iterable[object], out: list[str], depth: int, pretty: bool) -> None:
    if depth > DEPTH_MAX:
        raise LocalProtocolError(f"JSON nested deeper than {DEPTH_MAX}")
    between = "," if not pretty else ",\n" + "\t" * depth
    # fastjson2 opens an empty list on a line of its own when it writes prettily.
    out.append("[" + between[1:])
    first = True
    for item in items:
        if not first:
            out.append(between)
        first = False
        _write(item, out, depth, pretty)
    out.append("]" if not pretty else "\n" + "\t" * (depth - 1) + "]")


_PLAIN = re.compile(r"[A-Za-z0-9_%.:@#+|*/ -]*")


def _quoted(text: str) -> str:
    if _PLAIN.fullmatch(text):
        return f'"{text}"'
    return json.dumps(text, ensure_ascii=False)
