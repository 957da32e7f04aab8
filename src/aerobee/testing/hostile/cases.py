"""Every case, by name.

A case need not look at answers: the stage looks at what it did to others. Where an answer itself would be wrong
(success for what must be refused), the case asserts it.
"""

from __future__ import annotations

from aerobee.testing.hostile import (
    everycode,
    forgeries,
    frames,
    groups,
    nameserver,
    offsets,
    races,
    sends,
    settings,
    sinks,
)
from aerobee.testing.hostile.requests import CASES

# By what they attack; their cases come into the table when they are imported.
MODULES = (sends, groups, settings, offsets, frames, sinks, forgeries, races, nameserver, everycode)

__all__ = ["CASES", "MODULES"]
