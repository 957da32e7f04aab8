"""How a command reaches the roots in `aerobee.app`, which stand above commands: by name, when it is run."""

from __future__ import annotations

import importlib
from typing import Any


def root(name: str) -> Any:
    """The module `aerobee.app.<name>`."""
    return importlib.import_module(f"aerobee.app.{name}")
