"""Log records against those Apache's CommitLog wrote: V1, V2, IPv6, transactions, batch, record checksum."""

import json
from pathlib import Path
from typing import Any

import pytest

from aerobee.hot.log.properties import decode_properties
from aerobee.hot.log.record import (
    BLANK,
    VERIFY_BODY,
    VERIFY_RECORD,
    VERIFY_SEALED,
    ZERO,
    Draft,
    check_record,
    decode_record,
    encode_blank,
    encode_records,
    records_size,
)
from aerobee.hot.log.scan import scan_records
from aerobee.model.ids import offset_message_id

DATA = Path(__file__).parent / "data"
STORES: list[dict[str, Any]] = [json.loads((DATA / name).read_bytes()) for name in ("store.json", "store_crc.json")]
RECORDS = [(store["crc"], row) for store in STORES for row in store["records"]]
IDS = [f"{row['name']}{'-crc' if crc else ''}" for crc, row in RECORDS]
LEVELS_MS = [1000, 5000, 10000, 30000]


def plain_properties(row: dict[str, Any]) -> bytes:
    """The property bytes as the sender gave them: those of the record without Apache's checksum."""
    block = decode_record(bytes.fromhex(row["bytes"]), 0).properties
    at = block.find(b"__CRC32#")
    return block if at < 0 else block[:at]


def draft_of(row: dict[str, Any]) -> Draft:
    draft = Draft(
        topic=row["topic"].encode(),
        queue_id=row["queueId"],
        flag=row["flag"],
        sys_flag=row["sysFlag"],
        born_timestamp=row["bornTimestamp"],
        born_host=bytes.fromhex(row["bornHost"]),
        store_host=bytes.fromhex(row["storeHost"]),
        reconsume_times=row["reconsumeTimes"],
        prepared_transaction_offset=row["preparedTransactionOffset"],
        body=bytes.fromhex(row["body"]),
        properties=plain_properties(row),
        tags_code=row["tagsCode"],
        keys=row["keys"] or "",
        uniq_key=row["uniqKey"] or "",
    )
    draft.queue_offset = row["queueOffset"]
    return draft


@pytest.mark.parametrize(("crc", "row"), RECORDS, ids=IDS)
def test_encoded_as_apache_does(crc: bool, row: dict[str, Any]) -> None:
    draft = draft_of(row)
    assert records_size([draft], crc, 1 << 22) == row["size"]
    encoded = encode_records([draft], row["physicalOffset"], row["storeTimestamp"], crc)
    assert encoded.hex() == row["bytes"]
    assert (draft.size, draft.physical_offset, draft.body_crc) == (
        row["size"],
        row["physicalOffset"],
        row["bodyCrc"],
    )


@pytest.mark.parametrize(("crc", "row"), RECORDS, ids=IDS)
def test_decoded_as_apache_does(crc: bool, row: dict[str, Any]) -> None:
    data = bytes.fromhex(row["bytes"])
    record = decode_record(data, 0)
    assert {
        "topic": record.topic.decode(),
        "queueId": record.queue_id,
        "flag": record.flag,
        "sysFlag": record.sys_flag,
        "queueOffset": record.queue_offset,
        "physicalOffset": record.physical_offset,
        "size": record.size,
        "bornTimestamp": record.born_timestamp,
        "bornHost": record.born_host.hex(),
        "storeTimestamp": record.store_timestamp,
        "storeHost": record.store_host.hex(),
        "reconsumeTimes": record.reconsume_times,
        "preparedTransactionOffset": record.prepared_transaction_offset,
        "bodyCrc": record.body_crc,
        "body": record.body.hex(),
        "msgId": offset_message_id(record.store_host, record.physical_offset),
    }.items() <= row.items()
    assert decode_properties(record.properties) == (row["properties"] or {})
    assert check_record(data, 0, row["physicalOffset"], VERIFY_BODY) == row["size"]
    assert check_record(data, 0, row["physicalOffset"], VERIFY_SEALED if crc else VERIFY_RECORD) == row["size"]


def log_files(store: dict[str, Any]) -> list[tuple[int, bytes]]:
    return [
        (int(name.rpartition("/")[2]), bytes.fromhex(file["bytes"]).ljust(file["size"], b"\0"))
        for name, file in store["files"].items()
        if name.startswith("commitlog/")
    ]


@pytest.mark.parametrize("store", STORES, ids=["plain", "crc"])
def test_scan_of_whole_log_files(store: dict[str, Any]) -> None:
    """Every record is found with what dispatch needs; the first file ends in a blank, the last in zeros."""
    found: list[Draft] = []
    reasons = []
    for start, content in log_files(store):
        drafts, consumed, reason = scan_records(content, start, VERIFY_RECORD, 0, LEVELS_MS)
        found += drafts
        reasons.append(reason)
        if reason == BLANK:
            assert content[consumed : consumed + 8] == encode_blank(len(content) - consumed)
        else:
            assert start + consumed == store["endOffset"]
    assert reasons == [BLANK] * (len(reasons) - 1) + [ZERO]
    assert len(reasons) > 1
    assert [
        (d.physical_offset, d.size, d.queue_offset, d.tags_code, d.keys, d.uniq_key, d.store_timestamp) for d in found
    ] == [
        (
            row["physicalOffset"],
            row["size"],
            row["queueOffset"],
            row["tagsCode"],
            row["keys"] or "",
            row["uniqKey"] or "",
            row["storeTimestamp"],
        )
        for row in store["records"]
    ]


def test_batch_is_one_encoding() -> None:
    """The three messages of a batch, encoded in one call, are the bytes Apache laid end to end."""
    for store in STORES:
        rows = [row for row in store["records"] if row["name"].startswith("batch_")]
        drafts = [draft_of(row) for row in rows]
        encoded = encode_records(drafts, rows[0]["physicalOffset"], rows[0]["storeTimestamp"], store["crc"])
        assert encoded.hex() == "".join(row["bytes"] for row in rows)
