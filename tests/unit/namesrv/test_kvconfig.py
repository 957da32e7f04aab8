from __future__ import annotations

from pathlib import Path

import pytest

from aerobee.errors import ConfigError
from aerobee.namesrv.kvconfig import KVConfig
from aerobee.runtime.disk import InlineDisk


def opened(path: str) -> KVConfig:
    kv = KVConfig(InlineDisk(), path)
    kv.load()
    return kv


def test_values_survive_a_restart_in_apaches_form(tmp_path: Path) -> None:
    path = tmp_path / "namesrv" / "kvConfig.json"
    kv = opened(str(path))
    kv.put("ORDER_TOPIC_CONFIG", "T", "broker-a:4")
    # The text Apache 5.5.0 writes for the same table.
    assert path.read_text() == '{"configTable":{"ORDER_TOPIC_CONFIG":{"T":"broker-a:4"}}}'
    again = opened(str(path))
    assert again.get("ORDER_TOPIC_CONFIG", "T") == "broker-a:4"
    assert again.get("ORDER_TOPIC_CONFIG", "other") is None
    assert again.get("other", "T") is None


def test_the_last_key_leaves_its_namespace_behind(tmp_path: Path) -> None:
    path = str(tmp_path / "kv.json")
    kv = opened(path)
    kv.put("n", "k", "v")
    kv.delete("n", "k")
    kv.delete("n", "k")
    kv.delete("unknown", "k")
    assert kv.namespace("n") == {} and opened(path).namespace("n") == {}
    assert kv.namespace("unknown") is None


def test_a_damaged_file_gives_way_to_the_one_before(tmp_path: Path) -> None:
    path = tmp_path / "kv.json"
    kv = opened(str(path))
    kv.put("n", "k", "1")
    kv.put("n", "k", "2")
    path.write_text('{"configTable":{"n":')
    again = opened(str(path))
    assert again.get("n", "k") == "1"
    good = Path(f"{path}.bak").read_bytes()
    again.put("n", "k", "3")
    assert Path(f"{path}.bak").read_bytes() == good
    assert opened(str(path)).get("n", "k") == "3"
    path.write_text("[]")
    Path(f"{path}.bak").write_text("[]")
    with pytest.raises(ConfigError) as raised:
        opened(str(path))
    assert len(raised.value.problems) == 2


def test_without_a_path_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    kv = opened("")
    kv.put("n", "k", "v")
    assert kv.get("n", "k") == "v" and list(tmp_path.iterdir()) == []


def test_a_value_that_could_not_be_kept_is_not_shown(tmp_path: Path) -> None:
    target = tmp_path / "kv.json"
    kv = opened(str(target))
    kv.put("n", "k", "1")
    (tmp_path / "kv.json.tmp").mkdir()
    revision = kv.revision
    with pytest.raises(OSError):
        kv.put("n", "k", "2")
    assert kv.get("n", "k") == "1" and kv.revision == revision


def test_every_change_is_a_new_revision() -> None:
    kv = opened("")
    kv.put("n", "k", "1")
    first = kv.revision
    kv.put("n", "k", "2")
    kv.delete("n", "k")
    assert kv.revision == first + 2
