"""The manual of the settings (`docs/config.md`), made from their declarations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from aerobee.config.promises import PROMISES
from aerobee.config.setting import INT_MAX, LONG_MAX, Setting, Settings, render, settings_of

_HEAD: Final = """\
# Settings

Made from the code by `python tools/config_reference.py`; change the declarations, not this file.

RocketMQ's `.conf` files load as they are (`key=value` lines, plain numbers). Precedence: flag, `--set
key=value`, environment, file, default. A bad value or an unknown key stops the start, and all are named
at once; `--lenient-config` makes unknown keys a warning. A key that Apache's 4.9 to 5.5 knows and that
means nothing here is one warning in the log. **R** marks what may change while the server runs, **A**
what only Aerobee has.

There is no access control and no replication yet. {promises} promise them,
so any value but `false` stops the start of a broker, a name server and `aerobee up`, and is refused over the wire.
"""


def render_reference(sections: Mapping[str, type[Settings]]) -> str:
    """The whole manual; a section for each title."""
    *first, last = (f"`{key}`" for key in PROMISES)
    parts = [_HEAD.format(promises=f"{', '.join(first)} and {last}")]
    for title, cls in sections.items():
        parts.append(f"\n## {title}\n\n{_charter(cls)}\n")
        parts.append("\n| Key | Default | Allowed | Meaning |\n|---|---|---|---|\n")
        parts.extend(_row(one) for one in settings_of(cls))
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
    return text + ("; else the nearer of the two" if one.clamp else "")


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:g}" if isinstance(value, float) else str(value)
