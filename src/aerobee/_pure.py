"""Which of a module's two forms is imported.

AEROBEE_PURE=1: the interpreted source, even where a compiled one lies beside it.
AEROBEE_REQUIRE_COMPILED=1: an ImportError where nothing was compiled (tests and benchmarks that mean it).
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
    """A meta-path finder that answers for aerobee's own modules with their .py file."""

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
    """Whether hot/ runs compiled in this process."""
    from aerobee.hot.log import layout

    return not str(layout.__file__).endswith(".py")
