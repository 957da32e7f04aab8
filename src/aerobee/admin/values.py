"""The base of what admin functions return: frozen values that become JSON."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, cast


class Value:
    """The base of these values. Fields and properties become JSON members under their own names."""

    __slots__ = ()

    def to_json(self) -> dict[str, object]:
        names = [field.name for field in dataclasses.fields(cast(Any, self))]
        names += [name for name, one in vars(type(self)).items() if isinstance(one, property)]
        return {name: _plain(getattr(self, name)) for name in names}


def _plain(value: object) -> object:
    if isinstance(value, Value):
        return value.to_json()
    if isinstance(value, Mapping):
        return {str(key): _plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    return value
