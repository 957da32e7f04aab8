"""The names of RocketMQ's versions, which frames carry as numbers. RocketMQ: MQVersion."""

from __future__ import annotations

import functools
from typing import Final

HIGHER: Final = "HIGHER_VERSION"


@functools.cache
def _names() -> tuple[str, ...]:
    """Return the names by number. From 3.0.1 to 5.9.9 each version has two; 3.3.0 to 3.9.0 do not exist."""
    found = ["V3_0_0_SNAPSHOT", "V3_0_0_ALPHA1", *(f"V3_0_0_BETA{number}" for number in range(1, 6))]
    found += [name for number in range(6, 10) for name in (f"V3_0_0_BETA{number}_SNAPSHOT", f"V3_0_0_BETA{number}")]
    found.append("V3_0_0_FINAL")
    versions = [(3, 0, patch) for patch in range(1, 16)]
    versions += [(at // 100, at // 10 % 10, at % 10) for at in range(310, 600) if at not in range(330, 400, 10)]
    for version in versions:
        name = "V" + "_".join(map(str, version))
        found += [f"{name}_SNAPSHOT", name]
    return tuple(found)


def version_name(version: int) -> str:
    """Return the name of a version number, such as V5_5_0."""
    names = _names()
    return names[version] if 0 <= version < len(names) else HIGHER
