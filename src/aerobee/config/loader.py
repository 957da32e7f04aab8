"""Loads settings from a file, the environment and `--set`. Later sources win. This module opens no file.

A ConfigError reports every problem of every source at once. A key that no class declares is a warning if Apache has
such a key, and otherwise a problem that suggests the nearest name; `lenient` makes that a warning, too. Apache itself
ignores unknown keys and bad values in silence (RocketMQ: MixAll.properties2Object).
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar, cast

from aerobee.config.apachekeys import ACCESS_CLASS, APACHE_KEYS, WITHOUT_EFFECT
from aerobee.config.properties import decode_text, parse_properties
from aerobee.config.refused import REFUSED, refusal
from aerobee.config.setting import (
    Setting,
    Settings,
    Value,
    bound,
    parse,
    render,
    replace_values,
    settings_of,
    to_properties,
)
from aerobee.errors import ConfigError

C = TypeVar("C", bound=Settings)


@dataclass(frozen=True, slots=True)
class Source:
    """Texts by key, with the name of their source: a file's path, `environment` or `--set`."""

    name: str
    values: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Loaded:
    """One settings object of each class, with the warnings for the log."""

    configs: tuple[Settings, ...]
    warnings: tuple[str, ...]  # one sentence each
    origins: Mapping[str, str]  # RocketMQ's key -> name of the source that set it

    def get(self, cls: type[C]) -> C:
        """Return the object of one class."""
        for config in self.configs:
            if type(config) is cls:
                return config
        raise KeyError(cls.__name__)

    def find(self, cls: type[C]) -> C | None:
        """Return the object of one class, or None if that class was not loaded."""
        return next((config for config in self.configs if type(config) is cls), None)

    def updated(self, values: Mapping[str, str]) -> Loaded:
        """Return the settings after a change at run time. Raise ConfigError if any of the values cannot be taken.

        A value that is set already counts as no change, so that a whole file may be sent back.
        """
        return _update(self, values)

    def properties(self) -> dict[str, str]:
        """Return every setting as text under RocketMQ's key, as `getBrokerConfig` shows it."""
        merged: dict[str, str] = {}
        for config in self.configs:
            merged.update(to_properties(config))
        return merged

    def changes(self) -> list[str]:
        """Return `key=value (source)` for every setting that a source has set."""
        lines: list[str] = []
        for config in self.configs:
            shown = to_properties(config)
            lines.extend(
                f"{one.java}={shown[one.java]} ({self.origins[one.java]})"
                for one in settings_of(type(config))
                if one.java in self.origins
            )
        return lines


def file_source(path: str, data: bytes) -> Source:
    """Return the settings of a `.conf` file."""
    return Source(path, parse_properties(decode_text(data)))


def environment_source(classes: Iterable[type[Settings]], environ: Mapping[str, str]) -> Source:
    """Return the settings whose environment variable is set."""
    values = {
        one.java: environ[one.env]
        for cls in classes
        for one in settings_of(cls)
        if one.env is not None and environ.get(one.env)
    }
    return Source("environment", values)


def override_source(words: Iterable[str], name: str = "--set") -> Source:
    """Return the settings of `key=value` words on a command line."""
    values: dict[str, str] = {}
    problems = []
    for word in words:
        key, equals, value = word.partition("=")
        if not equals or not key.strip():
            problems.append(f"{name} {word!r} is not of the form key=value")
        values[key.strip()] = value
    if problems:
        raise ConfigError(problems)
    return Source(name, values)


def load(classes: Sequence[type[Settings]], *sources: Source, lenient: bool = False) -> Loaded:
    """Build one object of each class from the sources. The last source wins."""
    reading = _Reading(classes, lenient)
    for source in sources:
        reading.take(source)
    reading.judge_refused()
    configs = []
    for cls in classes:
        try:
            configs.append(cast(Any, cls)(**reading.values_of(cls)))
        except ConfigError as error:
            reading.problems.extend(error.problems)
    if reading.problems:
        raise ConfigError(_unique(reading.problems))
    return Loaded(tuple(configs), tuple(_unique(reading.warnings)), reading.origins)


class _Reading:
    """The values and problems of the sources that were read so far."""

    def __init__(self, classes: Iterable[type[Settings]], lenient: bool) -> None:
        self.lenient = lenient
        self.problems: list[str] = []
        self.warnings: list[str] = []
        self.origins: dict[str, str] = {}  # RocketMQ's key -> source
        self._refused: dict[str, tuple[str, str]] = {}  # key of REFUSED -> last source and text
        self._by_key: dict[str, list[tuple[type[Settings], Setting]]] = {}  # every spelling -> declarations
        self._values: dict[type[Settings], dict[str, Value]] = {cls: {} for cls in classes}
        for cls in classes:
            for one in settings_of(cls):
                for key in (one.java, *one.aliases):
                    self._by_key.setdefault(key, []).append((cls, one))

    def values_of(self, cls: type[Settings]) -> dict[str, Value]:
        return self._values[cls]

    def take(self, source: Source) -> None:
        spelled: dict[str, str] = {}  # RocketMQ's key -> the spelling this source used
        for key, text in source.values.items():
            declared = self._by_key.get(key)
            if declared is None and key in REFUSED:
                self._refused[key] = (source.name, text)
                continue
            if declared is None:
                self._unknown(source, key)
                continue
            java = declared[0][1].java
            if java in spelled and source.values[spelled[java]].strip() != text.strip():
                self.problems.append(f"{source.name}: {key} and {spelled[java]} are the same setting and differ")
            spelled[java] = key
            for cls, one in declared:
                self._set(source, cls, one, text)

    def _set(self, source: Source, cls: type[Settings], one: Setting, text: str) -> None:
        try:
            value = parse(one, text)
        except ValueError as error:
            self.problems.append(f"{source.name}: {one.java}: {error}")
            return
        bounded = bound(one, value)
        if bounded != value:
            self.warnings.append(f"{one.java}: {render(value)} is out of bounds, {render(bounded)} is used")
        if one.effect is not None and value != one.default:
            self.warnings.append(f"{one.java}: {one.effect}")
        self._values[cls][one.name] = bounded
        self.origins[one.java] = source.name

    def judge_refused(self) -> None:
        """Refuse the features that do not exist. All sources must be read: a later one may turn a feature off."""
        for key, (source, text) in self._refused.items():
            problem = refusal(key, text)
            if problem is None:
                self.warnings.append(f"{source}: {key} is always off in Aerobee")
            else:
                self.problems.append(f"{source}: {problem}")

    def _unknown(self, source: Source, key: str) -> None:
        owner = APACHE_KEYS.get(key)
        if owner == ACCESS_CLASS:
            # A warning would leave an operator with a server that is open, or with one that closes at its next start.
            self.problems.append(f"{source.name}: {key} belongs in the server's file: it is read at the start only")
            return
        if owner is not None:
            reason = WITHOUT_EFFECT.get(key, f"Aerobee has no counterpart of this key of Apache's {owner}")
            self.warnings.append(f"{source.name}: {key} has no effect: {reason}")
            return
        sentence = f"{source.name}: {unknown_key(key, self._by_key)}"
        (self.warnings if self.lenient else self.problems).append(sentence)


def unknown_key(key: str, known: Iterable[str]) -> str:
    """Return the sentence that refuses a key, with the declared key that is most like it."""
    nearest = nearest_key(key, known)
    return f"unknown key {key!r}" + (f", did you mean {nearest!r}?" if nearest is not None else "")


def nearest_key(key: str, known: Iterable[str]) -> str | None:
    """Return the declared key that is most like this one, ignoring capitals."""
    by_lower = {one.lower(): one for one in known}
    found = difflib.get_close_matches(key.lower(), by_lower, n=1, cutoff=0.6)
    return by_lower[found[0]] if found else None


def _update(loaded: Loaded, values: Mapping[str, str]) -> Loaded:
    reading = _Reading([type(config) for config in loaded.configs], lenient=False)
    reading.take(Source("update", values))
    reading.judge_refused()
    configs: list[Settings] = []
    for config in loaded.configs:
        changed = {}
        declared = {one.name: one for one in settings_of(type(config))}
        for name, value in reading.values_of(type(config)).items():
            if value == getattr(config, name):
                continue
            changed[name] = value
            if not declared[name].reloadable:
                reading.problems.append(f"{declared[name].java}: cannot change while running; restart to apply it")
        try:
            configs.append(replace_values(config, changed) if changed else config)
        except ConfigError as error:
            reading.problems.extend(error.problems)
    if reading.problems:
        raise ConfigError(_unique(reading.problems))
    origins = {**loaded.origins, **reading.origins}
    return Loaded(tuple(configs), tuple(_unique(reading.warnings)), origins)


def _unique(sentences: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(sentences))
