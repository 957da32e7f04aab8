"""Declares settings: a dataclass field that carries its RocketMQ key, its bounds and its meaning.

Each component declares a class:

    @dataclass(frozen=True, slots=True, kw_only=True)
    class StoreConfig(Settings):
        flush_interval_commit_log_ms: int = setting(500, java="flushIntervalCommitLog", minimum=1, doc="...")

Building an object checks every bound and relation. A ConfigError reports all problems at once. A whole number lies
between 0 and Java's largest int unless its declaration says otherwise. `loader.py` reads files, and `reference.py`
makes the manual.
"""

from __future__ import annotations

import dataclasses
import enum
import math
import typing
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import NoneType
from typing import Any, TypeVar, cast

from aerobee.errors import ConfigError
from aerobee.model.numbers import parse_float, parse_int

T = TypeVar("T")
Value = int | float | bool | str | enum.Enum | None

_METADATA_KEY = "aerobee.setting"

# Java's largest int is the largest size that most of RocketMQ's keys can hold.
INT_MAX = 2**31 - 1
LONG_MAX = 2**63 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """The declaration of one setting."""

    name: str  # the field's name in Python
    java: str  # RocketMQ's key
    kind: type  # int, float, bool, str or an Enum
    optional: bool  # None is allowed
    default: Value
    doc: str
    aliases: tuple[str, ...]  # other spellings of the key that files hold
    env: str | None  # environment variable that also sets it
    minimum: float | None
    maximum: float | None
    clamp: bool  # a value out of bounds is replaced by the bound, as RocketMQ does, instead of refused
    reloadable: bool  # may change while the server runs
    effect: str | None  # for a key that is accepted without effect: a sentence that says why
    own: bool  # Aerobee has this key and Apache does not
    secret: bool  # never printed


def setting(  # noqa: PLR0913 (a declaration, all by keyword)
    default: T,
    *,
    java: str,
    doc: str,
    aliases: tuple[str, ...] = (),
    env: str | None = None,
    minimum: float | None = None,
    maximum: float | None = None,
    clamp: bool = False,
    reloadable: bool = False,
    effect: str | None = None,
    own: bool = False,
    secret: bool = False,
) -> T:
    """Declare a field of a Settings class."""
    if type(default) is int:
        minimum = 0 if minimum is None else minimum
        maximum = INT_MAX if maximum is None else maximum
    metadata = {
        "java": java,
        "doc": doc,
        "aliases": aliases,
        "env": env,
        "minimum": minimum,
        "maximum": maximum,
        "clamp": clamp,
        "reloadable": reloadable,
        "effect": effect,
        "own": own,
        "secret": secret,
    }
    return dataclasses.field(default=default, metadata={_METADATA_KEY: metadata})


class Settings:
    """The base of every configuration class. Subclasses are frozen, slotted, keyword-only dataclasses."""

    __slots__ = ()

    def __post_init__(self) -> None:
        problems: list[str] = []
        for one in settings_of(type(self)):
            value = getattr(self, one.name)
            bounded = bound(one, value)
            if bounded is not value and bounded != value:
                object.__setattr__(self, one.name, bounded)
            problems.extend(value_problems(one, bounded))
        if not problems:
            problems.extend(self.relations())
        if problems:
            raise ConfigError(problems)

    def relations(self) -> Iterable[str]:
        """Return the problems between settings that are valid one by one."""
        return ()


def settings_of(cls: type[Settings]) -> tuple[Setting, ...]:
    """Return the declared settings of a class, in order."""
    found = _DECLARED.get(cls)
    if found is None:
        found = _DECLARED[cls] = _declared(cls)
    return found


_DECLARED: dict[type[Settings], tuple[Setting, ...]] = {}


def _declared(cls: type[Settings]) -> tuple[Setting, ...]:
    hints = typing.get_type_hints(cls)
    found = []
    for field in dataclasses.fields(cast(Any, cls)):
        metadata = field.metadata.get(_METADATA_KEY)
        if metadata is not None:
            kind, optional = _kind_of(hints[field.name])
            found.append(Setting(name=field.name, kind=kind, optional=optional, default=field.default, **metadata))
    return tuple(found)


def _kind_of(hint: Any) -> tuple[type, bool]:
    options = typing.get_args(hint)
    if NoneType in options:
        (kind,) = (option for option in options if option is not NoneType)
        return cast(type, kind), True
    return cast(type, hint), False


def parse(one: Setting, text: str) -> Value:
    """Return the value of a text. Raise ValueError that says what is wrong with it.

    Numbers are plain, as RocketMQ writes them. RocketMQ: MixAll.properties2Object (which ignores bad values).
    """
    text = text.strip()
    if one.optional and not text:
        return None
    if one.kind is bool:
        lowered = text.lower()
        if lowered not in ("true", "false"):
            raise ValueError(f"{text!r} is neither true nor false")
        return lowered == "true"
    if one.kind is int:
        return parse_int(text)
    if one.kind is float:
        return parse_float(text)
    if issubclass(one.kind, enum.Enum):
        if text not in one.kind.__members__:
            raise ValueError(f"{text!r} is not one of {', '.join(one.kind.__members__)}")
        return one.kind[text]
    return text


def render(value: Value) -> str:
    """Return a value as RocketMQ's files and `getBrokerConfig` write it."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, enum.Enum):
        return value.name
    return str(value)


def bound(one: Setting, value: Value) -> Value:
    """Return the value, or the nearer bound if the setting clamps."""
    if not one.clamp or isinstance(value, str | enum.Enum | None):
        return value
    if one.minimum is not None and value < one.minimum:
        return math.trunc(one.minimum)
    if one.maximum is not None and value > one.maximum:
        return math.trunc(one.maximum)
    return value


def value_problems(one: Setting, value: Value) -> list[str]:
    """Return what is wrong with a typed value, in words."""
    if value is None and one.optional:
        return []
    wanted = (int, float) if one.kind is float else one.kind
    if not isinstance(value, wanted) or (isinstance(value, bool) and one.kind is not bool):
        return [f"{one.java}: {value!r} is not {_kind_name(one.kind)}"]
    if isinstance(value, int | float) and not isinstance(value, bool):
        if value != value:
            return [f"{one.java}: not a number"]
        if one.minimum is not None and value < one.minimum:
            return [f"{one.java}: {value} is below {one.minimum}"]
        if one.maximum is not None and value > one.maximum:
            return [f"{one.java}: {value} is above {one.maximum}"]
    return []


def _kind_name(kind: type) -> str:
    names: dict[type, str] = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}
    return names.get(kind, kind.__name__)


def to_properties(config: Settings) -> dict[str, str]:
    """Return every setting as text under RocketMQ's key, with secrets masked."""
    found = {}
    for one in settings_of(type(config)):
        value = getattr(config, one.name)
        found[one.java] = "******" if one.secret and value else render(value)
    return found


def replace_values(config: T, values: Mapping[str, Value]) -> T:
    """Return a new, checked object with other values for the named fields."""
    return cast(T, dataclasses.replace(cast(Any, config), **values))
