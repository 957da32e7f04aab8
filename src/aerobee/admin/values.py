"""What admin functions return: frozen values that know themselves as JSON, in the words of all our outputs."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, cast


class Value:
    """Base of the values. Fields and properties become members under their own names."""

    __slots__ = ()

    def to_json(self) -> dict[str, Any]:
        names = [field.name for field in dataclasses.fields(cast(Any, self))]
        names += [name for name, one in vars(type(self)).items() if isinstance(one, property)]
        return {name: _plain(getattr(self, name)) for name in names}


def _plain(value: object) -> Any:
    if isinstance(value, Value):
        return value.to_json()
    if isinstance(value, Mapping):
        return {str(key): _plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    return value
