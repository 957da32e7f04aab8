"""Keyword arguments that are declared once, in a TypedDict, for the asyncio and the synchronous clients.

They behave as plain parameters do: `help()` and `inspect` show them by name, an unknown one is a TypeError that
suggests the nearest name, and a value of the wrong type is refused.
"""

from __future__ import annotations

import collections.abc
import difflib
import inspect
import math
import numbers
from collections.abc import Callable, Collection, Iterable, Mapping
from types import NoneType, UnionType
from typing import Any, ForwardRef, TypeVar, Union, get_args, get_origin, get_type_hints

from aerobee.client.core.errors import ArgumentTypeError
from aerobee.errors import InvalidArgumentError

F = TypeVar("F", bound=Callable[..., Any])


def unexpected_arguments(call: str, names: Iterable[str], known: Collection[str]) -> TypeError:
    """Return the error for argument names that `call` does not take."""
    text = f"{call}() got an unexpected keyword argument {', '.join(map(repr, names))}"
    near = {near: None for name in names if (near := _near(name, known)) is not None}
    if near:
        return TypeError(f"{text}; did you mean {' and '.join(map(repr, near))}?")
    return TypeError(f"{text}; it takes {', '.join(known)}")


def _near(name: str, known: Collection[str]) -> str | None:
    """Return the nearest known name. `delay_seconds` is near to `delay`, however long the rest is."""
    begun = [one for one in known if name.startswith(f"{one}_")]
    if begun:
        return max(begun, key=len)
    return next(iter(difflib.get_close_matches(name.lower(), known, n=1)), None)


def takes(
    options: type, defaults: Mapping[str, object] | None = None, meaning: Mapping[str, str] | None = None
) -> Callable[[F], F]:
    """Show the keys of a TypedDict as the keyword arguments of a function that takes them by `**`.

    `defaults` are shown beside the names, None for the others. `meaning` is listed below the docstring.
    """
    known = defaults or {}

    def declare(function: F) -> F:
        signature = inspect.signature(function)
        positional = [one for one in signature.parameters.values() if one.kind is not one.VAR_KEYWORD]
        named = [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=known.get(name), annotation=_text(kind))
            for name, kind in options.__annotations__.items()
        ]
        function.__signature__ = signature.replace(parameters=positional + named)  # type: ignore[attr-defined]
        if meaning and function.__doc__:
            lines = (f"    {name}: {words}" for name, words in meaning.items())
            function.__doc__ = "\n".join((inspect.cleandoc(function.__doc__), "", "Options:", *lines))
        return function

    return declare


def _text(kind: object) -> object:
    return kind.__forward_arg__ if isinstance(kind, ForwardRef) else kind


def wrong_type(name: str, wanted: str, value: object, hint: str | None = None) -> ArgumentTypeError:
    return ArgumentTypeError(f"{name} is {wanted}, not {type(value).__name__}: {_shown(value)}", hint=hint)


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def require_text(name: str, value: object) -> None:
    if not isinstance(value, str):
        raise wrong_type(name, "a str", value)


def is_number(value: object) -> bool:
    """Tell whether the value is a number. True and False are not."""
    return isinstance(value, numbers.Real) and not isinstance(value, bool)


def is_whole(value: object) -> bool:
    return isinstance(value, numbers.Integral) and not isinstance(value, bool)


def require_seconds(name: str, value: Any) -> None:
    """Raise where the value is not a time to wait: a finite number above 0."""
    if not is_number(value):
        raise wrong_type(name, "a number of seconds", value)
    if not 0 < value < math.inf:
        raise InvalidArgumentError(f"{name}={value} is not a time to wait", hint="give seconds, above 0")


def require_at_least(name: str, value: float, least: float) -> None:
    # Not `value < least`: nan is neither.
    if not value >= least:
        raise InvalidArgumentError(f"{name}={value} is below {least}")


def require_types(config: object) -> None:
    """Raise for a field of a dataclass whose value is not of its declared type."""
    for name, kind in get_type_hints(type(config)).items():
        value = getattr(config, name)
        if not _is_of(value, kind):
            raise wrong_type(name, _words(kind), value)


def _is_of(value: object, kind: Any) -> bool:
    origin = get_origin(kind)
    if origin in (Union, UnionType):
        return any(_is_of(value, one) for one in get_args(kind))
    if kind is float:
        return is_number(value)
    if kind is int:
        return is_whole(value)
    if origin is collections.abc.Callable:
        return callable(value)
    kind = origin or kind
    # Whether an object follows a protocol is seen when it is called.
    return not isinstance(kind, type) or getattr(kind, "_is_protocol", False) or isinstance(value, kind)


def _words(kind: Any) -> str:
    if get_origin(kind) in (Union, UnionType):
        return " or ".join(_words(one) for one in get_args(kind))
    if kind is NoneType:
        return "None"
    if get_origin(kind) is collections.abc.Callable:
        return "a function"
    return str(getattr(get_origin(kind) or kind, "__name__", kind))
