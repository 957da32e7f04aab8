"""The store commands as a user runs them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from aerobee.runtime.disk import InlineDisk
from aerobee.store.index import MessageIndex
from aerobee.store.messagestore import MessageStore
from aerobee.testing.clock import VirtualClock
from aerobee.testing.commands import aerobee
from aerobee.testing.disk import RecordingDisk
from aerobee.testing.offlinekit import fill, open_store, written
from aerobee.testing.storekit import ROOT, draft, small_config

QUEUE = "consumequeue/topic0/0/00000000000000000000"
LOG = "commitlog/00000000000000000000"


def told(*words: str) -> Any:
    return json.loads(aerobee("store", *words, "--json").stdout)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    written(45).export(str(tmp_path))
    return Path(f"{tmp_path}{ROOT}")


def flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 4
    path.write_bytes(data)


def tree(path: Path) -> dict[str, tuple[int, bytes]]:
    """Every file but the lock: whoever opens and closes that would drop a lock of this process."""
    return {
        str(file.relative_to(path)): (file.stat().st_mtime_ns, file.read_bytes())
        for file in path.rglob("*")
        if file.is_file() and file.name != "lock"
    }


def test_sound(store: Path) -> None:
    before = tree(store)
    done = aerobee("store", "verify", str(store))
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[-1] == "sound"
    assert "45 records" in done.stdout
    assert "\x1b" not in done.stdout
    assert aerobee("store", "inspect", str(store)).returncode == 0
    assert aerobee("store", "dump", str(store)).returncode == 0
    assert tree(store) == before


def test_damage_is_named_and_its_derived_part_repaired(store: Path) -> None:
    flip(store / QUEUE, 30)
    flip(store / LOG, 500)
    done = aerobee("store", "verify", str(store))
    assert done.returncode == 1
    assert f"DAMAGE   {QUEUE} byte 30: " in done.stdout
    assert f"DAMAGE   {LOG} byte 500: " in done.stdout
    assert done.stdout.splitlines()[-1] == "damaged in 2 places; `aerobee store repair` can repair 1 of them"
    places = [(p["path"], p["offset"]) for p in told("verify", str(store))["findings"]["problems"]]
    assert places == [(LOG, 500), (QUEUE, 30)]

    before = tree(store)
    dry = aerobee("store", "repair", str(store), "--dry-run")
    assert dry.returncode == 1
    assert "repair would repair 1 of 2" in dry.stdout
    assert tree(store) == before

    assert aerobee("store", "repair", str(store)).returncode == 130  # asks, and nobody answers
    assert tree(store) == before

    mended = aerobee("store", "repair", str(store), "--yes")
    assert mended.returncode == 1  # the log's own damage stays
    assert f"built    {QUEUE}" in mended.stdout
    places = [(p["path"], p["offset"]) for p in told("verify", str(store))["findings"]["problems"]]
    assert places == [(LOG, 500)]
    assert not (store / "repair.tmp").exists()


def test_could_not_look(tmp_path: Path, store: Path) -> None:
    for command in ("inspect", "verify", "dump", "repair"):
        done = aerobee("store", command, str(tmp_path / "nowhere"))
        assert (done.returncode, done.stdout) == (2, "")
        assert "does not exist" in done.stderr
    (store / "rocksdbstore").mkdir()
    (store / "rocksdbstore" / "000001.sst").write_bytes(b"x")
    done = aerobee("store", "verify", str(store), "--json")
    assert done.returncode == 2
    assert "RocksDB" in json.loads(done.stderr)["error"]
    assert aerobee("store", "verify").returncode == 2
    assert aerobee("store", "dump", str(store), "--from", "yesterday").returncode == 2


def test_dump_gives_json_lines(store: Path) -> None:
    done = aerobee("store", "dump", str(store), "-t", "topic1", "--limit", "2", "--all-fields")
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert [line["body"] for line in lines] == ["message 1", "message 3"]
    assert set(lines[0]) == {
        *("topic", "broker", "queue_id", "queue_offset", "message_id", "keys", "tags", "body", "body_encoding"),
        *("properties", "born_timestamp", "store_timestamp", "reconsume_times", "commitlog_offset", "born_host"),
        *("store_host", "sys_flag", "system_properties"),
    }
    assert done.stderr.startswith("2 messages")
    time = lines[1]["store_timestamp"]
    again = aerobee("store", "dump", str(store), "--from", str(time), "--to", str(time + 1))
    assert [json.loads(line)["message_id"] for line in again.stdout.splitlines()] == ["U3"]


def test_bodies_that_are_no_text_are_base64(tmp_path: Path) -> None:
    disk = RecordingDisk()
    written_store = open_store(disk)
    written_store.append([draft(b"\xff\xfe")])
    written_store.append([draft("标签😀".encode())])
    written_store.close()
    disk.export(str(tmp_path))
    lines = [json.loads(line) for line in aerobee("store", "dump", f"{tmp_path}{ROOT}").stdout.splitlines()]
    assert [(line["body"], line["body_encoding"]) for line in lines] == [("//4=", "base64"), ("标签😀", "utf-8")]


def test_a_closed_pipe_is_silent(store: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "aerobee", "store", "dump", str(store)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as run:
        assert run.stdout is not None
        assert run.stderr is not None
        run.stdout.close()
        assert run.stderr.read() == b""
    assert run.returncode == 141


def test_a_live_store_is_read_and_not_repaired(tmp_path: Path) -> None:
    config = small_config()
    disk = InlineDisk()
    root = str(tmp_path)
    live = MessageStore(root, config, disk, VirtualClock(), (MessageIndex(disk, root, config),))
    live.open()
    fill(live, 30)
    before = tree(tmp_path)
    report = told("verify", root)
    assert (report["verdict"], report["is_live"], report["records"]) == ("sound", True, 30)
    assert f"a broker is running: looked up to offset {live.log_end}" in report["findings"]["notes"]
    assert told("inspect", root)["lock_holder"] == os.getpid()
    assert len(aerobee("store", "dump", root).stdout.splitlines()) == 30
    refused = aerobee("store", "repair", root, "--yes")
    assert refused.returncode == 1
    assert f"in use by process {os.getpid()}" in refused.stderr
    assert tree(tmp_path) == before
    live.close()
    assert told("verify", root)["is_live"] is False


def test_inspect_shows_what_is_there(store: Path) -> None:
    text = aerobee("store", "inspect", str(store)).stdout
    for words in ("shut down cleanly", "00000000000000004096", "topic0", "0:0-23", "queueTable.0", "checkpoint log"):
        assert words in text
    queues = aerobee("store", "inspect", str(store), "--queues").stdout
    assert "topic1" in queues
    report = told("inspect", str(store))
    queue = {"topic": "topic0", "queue_id": 0, "min_offset": 0, "max_offset": 23, "files": 2, "size": 640}
    assert report["queues"][0] == queue


def test_the_broker_s_configuration_is_taken(tmp_path: Path, store: Path) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_text("brokerName=a\nmappedFileSizeCommitLog=4096\nmaxMessageSize=1000\nmappedFileSizeConsumeQueue=320\n")
    words = ("--set", "maxHashSlotNum=100", "--set", "maxIndexNum=400")
    assert aerobee("store", "verify", str(store), "-c", str(conf), *words).returncode == 0
    wrong = aerobee("store", "verify", str(store), "-c", str(conf))
    assert wrong.returncode == 1  # the index is not that long
    bad = aerobee("store", "verify", str(store), "--set", "maxIndexNum=many")
    assert bad.returncode == 2
    assert "maxIndexNum" in bad.stderr
