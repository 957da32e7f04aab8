"""Derived files of a store against those Apache left: consume queues, index, checkpoint."""

import json
from pathlib import Path
from typing import Any

import pytest

from aerobee.hot.log.index import (
    encode_index_entry,
    index_hash,
    index_keys,
    seconds_since,
)
from aerobee.hot.log.layout import INDEX_ENTRY_SIZE, INDEX_HEADER_SIZE, INDEX_SLOT_SIZE
from aerobee.hot.log.record import VERIFY_RECORD, Draft
from aerobee.hot.log.scan import scan_records
from aerobee.hot.log.units import decode_units, encode_units
from aerobee.runtime.disk import InlineDisk
from aerobee.store.checkpoint import decode_checkpoint
from aerobee.store.config import StoreConfig
from aerobee.store.index import MessageIndex
from aerobee.store.indexfile import ENTRY, decode_header

DATA = Path(__file__).parent / "data"
STORES: list[dict[str, Any]] = [json.loads((DATA / name).read_bytes()) for name in ("store.json", "store_crc.json")]
LEVELS_MS = [1000, 5000, 10000, 30000]
both_stores = pytest.mark.parametrize("store", STORES, ids=["plain", "crc"])


def files(store: dict[str, Any], prefix: str) -> dict[str, bytes]:
    return {
        name: bytes.fromhex(file["bytes"]).ljust(file["size"], b"\0")
        for name, file in sorted(store["files"].items())
        if name.startswith(prefix)
    }


def drafts_of(store: dict[str, Any]) -> list[Draft]:
    found: list[Draft] = []
    for name, content in files(store, "commitlog/").items():
        found += scan_records(content, int(name.rpartition("/")[2]), VERIFY_RECORD, 0, LEVELS_MS)[0]
    return found


@both_stores
def test_consume_queues_rebuilt_from_the_log(store: dict[str, Any]) -> None:
    """Apache's queue files are what our scan of its log dispatches: prepared and rolled back ones not."""
    queues: dict[str, list[Draft]] = {}
    for draft in drafts_of(store):
        if draft.sys_flag & 0xC not in (0x4, 0xC):
            queues.setdefault(f"consumequeue/{draft.topic.decode()}/{draft.queue_id}", []).append(draft)
    expected: dict[str, bytes] = {}
    for name, content in files(store, "consumequeue/").items():
        folder = name.rpartition("/")[0]
        expected[folder] = expected.get(folder, b"") + content
    assert queues.keys() == expected.keys()
    for folder, drafts in queues.items():
        units = encode_units(drafts)
        assert units == expected[folder][: len(units)]
        assert not any(expected[folder][len(units) :])
        assert decode_units(units) == [(d.physical_offset, d.size, d.tags_code) for d in drafts]


@both_stores
def test_index_file_rebuilt_from_the_log(store: dict[str, Any]) -> None:
    (content,) = files(store, "index/").values()
    header = decode_header(content)
    assert header.encode() == content[:INDEX_HEADER_SIZE]
    slots = [0] * store["hashSlots"]
    entries = [bytes(INDEX_ENTRY_SIZE)]
    for draft in drafts_of(store):
        for key in index_keys(draft):
            hashed = index_hash(key)
            seconds = seconds_since(header.begin_timestamp, draft.store_timestamp)
            slot = hashed % len(slots)
            entries.append(encode_index_entry(hashed, draft.physical_offset, seconds, slots[slot]))
            slots[slot] = len(entries) - 1
    assert header.count == len(entries)
    assert header.slots_used == sum(slot > 0 for slot in slots)
    body = b"".join(slot.to_bytes(INDEX_SLOT_SIZE, "big") for slot in slots) + b"".join(entries)
    assert content[INDEX_HEADER_SIZE:] == body.ljust(len(content) - INDEX_HEADER_SIZE, b"\0")
    first = INDEX_HEADER_SIZE + len(slots) * INDEX_SLOT_SIZE + INDEX_ENTRY_SIZE
    assert ENTRY.unpack_from(content, first)[1] == header.begin_offset


@both_stores
def test_checkpoint(store: dict[str, Any]) -> None:
    content = files(store, "checkpoint")["checkpoint"]
    checkpoint, problems = decode_checkpoint(content)
    assert problems == []
    last = store["records"][-1]
    assert checkpoint.physic_msg_timestamp == last["storeTimestamp"]
    assert checkpoint.logics_msg_timestamp == last["storeTimestamp"]
    # Apache sets it after the queues' flush, to the start of the last record dispatched.
    assert checkpoint.logics_physical_offset == last["physicalOffset"]
    assert checkpoint.encode() == content[:48]
    assert not any(content[48:])
    assert len(content) == 4096


def index_config(store: dict[str, Any]) -> StoreConfig:
    return StoreConfig(max_hash_slot_num=store["hashSlots"], max_index_num=store["indexEntries"])


@both_stores
def test_index_sink_writes_the_same_file(store: dict[str, Any], tmp_path: Path) -> None:
    index = MessageIndex(InlineDisk(), str(tmp_path), index_config(store))
    index.recover(0, 0)
    index.dispatch(drafts_of(store))
    index.close()
    (written,) = [path for path in (tmp_path / "index").iterdir() if path.name.isdigit()]
    (content,) = files(store, "index/").values()
    assert written.read_bytes() == content


@both_stores
def test_index_file_of_apache_is_queried(store: dict[str, Any], tmp_path: Path) -> None:
    (content,) = files(store, "index/").values()
    (tmp_path / "index").mkdir()
    (tmp_path / "index" / "20231114221322000").write_bytes(content)
    index = MessageIndex(InlineDisk(), str(tmp_path), index_config(store))
    index.recover(0, store["endOffset"])
    assert index.problems == []
    by_name = {row["name"]: row for row in store["records"]}
    for topic, key, name in (
        ("Full", "k2", "full"),
        ("Plain", "鍵", "many_keys"),
        ("Plain", "more7", "more_7"),
    ):
        found = index.query(topic, key, 32, 0, 2**62)
        assert by_name[name]["physicalOffset"] in found.offsets
    index.close()
