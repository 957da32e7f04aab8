import importlib.util
import pathlib
import sys
from types import ModuleType

from aerobee.config.loader import file_source, load
from aerobee.config.reference import render_reference
from aerobee.store.config import StoreConfig

ROOT = pathlib.Path(__file__).resolve().parents[3]


def tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("config_reference", ROOT / "tools" / "config_reference.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["config_reference"] = module
    spec.loader.exec_module(module)
    return module


def test_the_manual_is_not_stale() -> None:
    assert tool().main(["--check"]) == 0, "run: python tools/config_reference.py"


def test_a_row_tells_everything() -> None:
    text = render_reference({"Store": StoreConfig})
    assert (
        "| `mappedFileSizeCommitLog`<br>also `mapedFileSizeCommitLog` | `1073741824` | from 4096 "
        "| Bytes of one commit log segment. |\n"
    ) in text
    assert "| `diskMaxUsedSpaceRatio` **R** | `75` | 10 to 95; beyond these, the nearer one is used |" in text
    assert "| `flushDiskType` | `ASYNC_FLUSH` | ASYNC_FLUSH, SYNC_FLUSH |" in text
    assert "No effect" in text


def test_the_sample_files_load() -> None:
    classes = list(tool().sections().values())
    for name in ("broker.conf", "namesrv.conf"):
        loaded = load(classes, file_source(name, (ROOT / "conf" / name).read_bytes()))
        assert all("has no effect" in warning for warning in loaded.warnings), loaded.warnings
    broker = load(classes, file_source("broker.conf", (ROOT / "conf" / "broker.conf").read_bytes()))
    assert broker.get(StoreConfig).file_reserved_time_hours == 48
