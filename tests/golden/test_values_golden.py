"""Small values against Apache's: hashes, ids, properties, checksums, compressed bodies, batch bodies."""

import base64
import hashlib
import hmac
import json
import zlib
from pathlib import Path
from typing import Any

import pytest

from aerobee.hot.log.batch import decode_batch, encode_batch
from aerobee.hot.log.host import encode_host
from aerobee.hot.log.index import index_hash
from aerobee.hot.log.javahash import java_hash, tags_code
from aerobee.hot.log.properties import decode_properties, encode_properties, find_property
from aerobee.model.compression import compress, decompress, parse_compression
from aerobee.model.ids import decode_offset_message_id, offset_message_id, unique_message_id

DATA = Path(__file__).parent / "data"


def load(name: str) -> Any:
    return json.loads((DATA / name).read_bytes())


@pytest.mark.parametrize("row", load("hashes.json"), ids=lambda row: ascii(row["text"]))
def test_hash_and_tags_code_are_javas(row: dict[str, Any]) -> None:
    text = bytes.fromhex(row["utf8"]).decode()
    assert java_hash(text) == row["hashCode"]
    assert tags_code(text) == row["tagsCode"]
    assert index_hash(text) == (0 if row["hashCode"] == -(2**31) else abs(row["hashCode"]))


@pytest.mark.parametrize("row", load("ids.json")["offset"], ids=lambda row: row["id"])
def test_offset_message_id(row: dict[str, Any]) -> None:
    host = bytes.fromhex(row["host"])
    assert offset_message_id(host, row["offset"]) == row["id"]
    decoded = decode_offset_message_id(row["id"])
    assert encode_host(decoded.host) == host
    assert encode_host(row["address"], row["port"]) == host
    assert decoded.physical_offset == row["offset"]


@pytest.mark.parametrize("row", load("ids.json")["client"], ids=lambda row: row["id"])
def test_unique_message_id(row: dict[str, Any]) -> None:
    ip = encode_host(row["ip"], 0)[:-4]
    made = unique_message_id(ip, row["pid"], 0, 0, 0, 0)
    assert len(made) == len(row["id"])
    assert made[: 2 * len(ip) + 4] == row["id"][: 2 * len(ip) + 4]


@pytest.mark.parametrize("row", load("properties.json")["written"], ids=lambda row: row["encoded"][:16])
def test_properties_as_apache_writes_them(row: dict[str, Any]) -> None:
    encoded = bytes.fromhex(row["encoded"])
    assert encode_properties(row["given"]) == encoded
    assert decode_properties(encoded) == row["decoded"]


@pytest.mark.parametrize("row", load("properties.json")["read"], ids=lambda row: row["encoded"])
def test_properties_as_apache_reads_them(row: dict[str, Any]) -> None:
    encoded = bytes.fromhex(row["encoded"])
    assert decode_properties(encoded) == row["decoded"]
    for name, value in row["decoded"].items():
        assert find_property(encoded, name.encode()) == value.encode()


def test_checksums() -> None:
    for row in load("checksums.json"):
        assert zlib.crc32(bytes.fromhex(row["bytes"])) & 0x7FFFFFFF == row["crc32"]


@pytest.mark.parametrize("row", load("compression.json")["packed"], ids=lambda row: row["type"])
def test_compressed_bodies_unfold(row: dict[str, Any]) -> None:
    body = bytes.fromhex(load("compression.json")["body"])
    kind = parse_compression(row["type"])
    assert kind.value == row["value"]
    assert kind.flag & 0x700 == row["flag"]
    assert decompress(bytes.fromhex(row["compressed"]), kind.flag) == body
    assert decompress(compress(body, kind), kind.flag) == body


def test_batch_body() -> None:
    batch = load("batch.json")
    encoded = bytes.fromhex(batch["encoded"])
    parts = decode_batch(encoded, 100)
    assert [(flag, body, decode_properties(block)) for flag, body, block in parts] == [
        (row["flag"], bytes.fromhex(row["body"]), row["properties"]) for row in batch["messages"]
    ]
    assert encode_batch(parts) == encoded


def test_signatures_are_hmac_sha1_over_sorted_fields_and_body() -> None:
    """The rule that authentication will follow. RocketMQ: AclUtils.combineRequestContent."""
    for row in load("signatures.json")["requests"]:
        fields = {name: value for name, value in row["fields"].items() if name != "Signature"}
        content = "".join(fields[name] for name in sorted(fields)).encode() + bytes.fromhex(row["body"])
        assert content.hex() == row["content"]
        digest = hmac.new(row["secretKey"].encode(), content, hashlib.sha1).digest()
        assert base64.b64encode(digest).decode() == row["signature"]
