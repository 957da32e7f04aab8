"""Numbers that commands take."""

from __future__ import annotations

import math
from typing import Any

import click


class NumberRange(click.FloatRange):
    """A range of numbers. NaN and infinity are refused: NaN is neither below nor above any bound."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        found: float = super().convert(value, param, ctx)
        if not math.isfinite(found):
            self.fail(f"{value} is not a number that can be counted with.", param, ctx)
        return found
