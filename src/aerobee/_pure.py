"""The choice between the compiled and the interpreted form of a module.

With AEROBEE_PURE=1, the source is imported even if a compiled module lies beside it.
With AEROBEE_REQUIRE_COMPILED=1, the import fails if nothing was compiled. Tests and benchmarks set it.
"""

import importlib.util
import os
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

_ROOT = Path(__file__).parent


class _SourceFirst:
    """A meta-path finder that finds the .py file of each of aerobee's modules."""

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        if not name.startswith("aerobee."):
            return None
        source = _ROOT.joinpath(*name.split(".")[1:]).with_suffix(".py")
        return importlib.util.spec_from_file_location(name, source) if source.is_file() else None


def install_if_asked() -> None:
    if os.environ.get("AEROBEE_PURE") and _SourceFirst not in sys.meta_path:
        sys.meta_path.insert(0, _SourceFirst)
    elif os.environ.get("AEROBEE_REQUIRE_COMPILED") and not any(_ROOT.glob("hot/log/layout.*.so")):
        raise ImportError("AEROBEE_REQUIRE_COMPILED is set, but hot/ is not compiled: run make setup with a C compiler")


def is_compiled() -> bool:
    """Tell whether hot/ runs compiled in this process."""
    from aerobee.hot.log import layout

    return not str(layout.__file__).endswith(".py")
