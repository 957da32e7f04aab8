"""Makes the manual of the settings (`docs/config.md`) from their declarations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from aerobee.config.apachekeys import WITHOUT_EFFECT
from aerobee.config.refused import REFUSED
from aerobee.config.setting import INT_MAX, LONG_MAX, Setting, Settings, render, settings_of

_HEAD: Final = """\
# Settings

`python tools/config_reference.py` makes this page from the declarations in the code. Change those, not this page.

RocketMQ's `.conf` files load as they are: `key=value` lines with plain numbers. A flag is stronger than `--set
key=value`, which is stronger than the environment, the file and the default, in this order. A bad value or an unknown
key stops the start, and the error names all of them at once. `--lenient-config` turns unknown keys into warnings. A key
that Apache RocketMQ 4.9 to 5.5 has and Aerobee does not is one warning in the log.

In the tables, **R** marks settings that may change while the server runs, and **A** those that only Aerobee has.

## Refused

Aerobee does not have these features. Any value but `false` (or nothing) stops the start of a broker, of a name server
and of `aerobee up`, and is refused over the wire. [Decision 0003](decisions/0003-what-of-rocketmq-we-refuse.md) gives
the reasons.

| Key | Promise | Reason |
|---|---|---|
"""

_WITHOUT_EFFECT: Final = """
## Without effect

Aerobee accepts these keys of Apache's and warns that they do nothing.

| Keys | Reason |
|---|---|
"""


def render_reference(sections: Mapping[str, type[Settings]]) -> str:
    """Return the whole manual, with a section for each title."""
    parts = [_HEAD]
    parts.extend(f"| `{key}` | {promise} | {reason} |\n" for key, (promise, reason) in REFUSED.items())
    for title, cls in sections.items():
        parts.append(f"\n## {title}\n\n{_charter(cls)}\n")
        parts.append("\n| Key | Default | Allowed | Meaning |\n|---|---|---|---|\n")
        parts.extend(_row(one) for one in settings_of(cls))
    parts.append(_WITHOUT_EFFECT)
    declared = {one.java for cls in sections.values() for one in settings_of(cls)}
    for reason in dict.fromkeys(WITHOUT_EFFECT.values()):
        keys = sorted(key for key, why in WITHOUT_EFFECT.items() if why == reason and key not in declared)
        parts.append(f"| {', '.join(f'`{key}`' for key in keys)} | {reason} |\n")
    return "".join(parts)


def _charter(cls: type[Settings]) -> str:
    return (cls.__doc__ or "").strip().split("\n", 1)[0]


def _row(one: Setting) -> str:
    marks = (" **R**" if one.reloadable else "") + (" **A**" if one.own else "")
    key = f"`{one.java}`{marks}"
    if one.aliases:
        key += "<br>also " + ", ".join(f"`{alias}`" for alias in one.aliases)
    if one.env:
        key += f"<br>environment `{one.env}`"
    default = render(one.default)
    meaning = one.doc if one.effect is None else f"{one.doc} {one.effect}"
    cells = (key, f"`{default}`" if default else "", _allowed(one), meaning)
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n"


def _allowed(one: Setting) -> str:
    if one.kind is bool:
        return "true, false"
    if one.minimum is None and one.maximum is None:
        members = getattr(one.kind, "__members__", None)
        return ", ".join(members) if members else ""
    low = _number(one.minimum)
    if one.maximum is None or one.maximum in (INT_MAX, LONG_MAX):
        text = f"from {low}"
    else:
        text = f"{low} to {_number(one.maximum)}"
    return text + ("; beyond these, the nearer one is used" if one.clamp else "")


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:g}" if isinstance(value, float) else str(value)
