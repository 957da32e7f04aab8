"""All cases by name.

The stage checks what a case did to others, so a case need not look at answers. Where an answer itself can be wrong
(success for what must be refused), the case asserts it.
"""

from __future__ import annotations

from aerobee.testing.hostile import (
    everycode,
    forgeries,
    frames,
    groups,
    http2floods,
    metricsport,
    nameserver,
    offsets,
    pops,
    races,
    sends,
    settings,
    sinks,
)
from aerobee.testing.hostile.requests import CASES

# The modules register their cases when they are imported.
MODULES = (
    sends,
    groups,
    settings,
    offsets,
    pops,
    frames,
    sinks,
    forgeries,
    races,
    nameserver,
    http2floods,
    metricsport,
    everycode,
)

__all__ = ["CASES", "MODULES"]
