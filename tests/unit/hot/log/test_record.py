import struct
import zlib

import pytest

from aerobee.errors import CorruptLogError, InvalidArgumentError
from aerobee.hot.log import record as r
from aerobee.hot.log.record import Draft, check_record, decode_record, decode_records, encode_records
from aerobee.hot.log.scan import COLUMNS, scan_columns, scan_records

V4 = bytes([1, 2, 3, 4]) + (54321).to_bytes(4, "big")
STORE_V4 = bytes([10, 0, 0, 9]) + (10911).to_bytes(4, "big")
V6 = bytes.fromhex("20010db8000000000000000000000001") + (54321).to_bytes(4, "big")
STORE_V6 = bytes(15) + b"\x01" + (10911).to_bytes(4, "big")
PROPERTIES = "KEYS\x01k1 k2\x02TAGS\x01PAID\x02UNIQ_KEY\x017F000001\x02u\x01\u4f60\U0001f680\x02".encode()
STORED_AT = 1_700_000_000_123
PLACE = 123_456_789

# Written by release 5.5.0: MessageExtEncoder.encode, offsets and time as doAppend sets them, createCrc32.
APACHE = {
    "v4crc": (
        "000000B0DAA320A751C31A1F0000000300000007000000000000002A00000000075BCD15000000000000018BCFE56800"
        "010203040000D4310000018BCFE5687B0A00000900002A9F0000000200000000000000630000000A68656C6C6F2C206C"
        "6F67066F726465727300454B455953016B31206B320254414753015041494402554E49515F4B45590137463030303030"
        "31027501E4BDA0F09F9A80025F5F435243333223013836373235373133313002"
    ),
    "v4": (
        "0000009CDAA320A751C31A1F0000000300000007000000000000002A00000000075BCD15000000000000018BCFE56800"
        "010203040000D4310000018BCFE5687B0A00000900002A9F0000000200000000000000630000000A68656C6C6F2C206C"
        "6F67066F726465727300314B455953016B31206B320254414753015041494402554E49515F4B45590137463030303030"
        "31027501E4BDA0F09F9A8002"
    ),
    "v6crc": (
        "0000009BDAA320A751C31A1F0000000300000007000000000000002A00000000075BCD15000000300000018BCFE56800"
        "20010DB80000000000000000000000010000D4310000018BCFE5687B0000000000000000000000000000000100002A9F"
        "0000000200000000000000630000000A68656C6C6F2C206C6F67066F72646572730018610162025F5F43524333322301"
        "3739353632343436303202"
    ),
    "v2crc": (
        "00000119DAA320AB000000000000000300000007000000000000002A00000000075BCD15000000200000018BCFE56800"
        "010203040000D4310000018BCFE5687B0000000000000000000000000000000100002A9F000000020000000000000063"
        "00000000009D255245545259256767676767676767676767676767676767676767676767676767676767676767676767"
        "676767676767676767676767676767676767676767676767676767676767676767676767676767676767676767676767"
        "676767676767676767676767676767676767676767676767676767676767676767676767676767676767676767676767"
        "6767676767676767676767676767676767676700145F5F435243333223013238343433343033383002"
    ),
}


def draft(
    topic: bytes = b"orders",
    body: bytes = b"hello, log",
    properties: bytes = PROPERTIES,
    born: bytes = V4,
    store: bytes = STORE_V4,
) -> Draft:
    made = Draft(topic, 3, 7, 0, 1_700_000_000_000, born, store, 2, 99, body, properties, 0, "", "")
    made.queue_offset = 42
    return made


DRAFTS = {
    "v4crc": lambda: draft(),
    "v4": lambda: draft(),
    "v6crc": lambda: draft(properties=b"a\x01b", born=V6, store=STORE_V6),
    "v2crc": lambda: draft(b"%RETRY%" + b"g" * 150, b"", b"", V4, STORE_V6),
}
KINDS = sorted(DRAFTS)


def encoded(kind: str) -> bytes:
    return encode_records([DRAFTS[kind]()], PLACE, STORED_AT, kind.endswith("crc"))


def log_of(count: int, start: int, with_crc: bool = True) -> tuple[list[Draft], bytes]:
    drafts = [draft(body=b"x" * n) for n in range(count)]
    return drafts, encode_records(drafts, start, STORED_AT, with_crc)


@pytest.mark.parametrize("kind", KINDS)
def test_the_bytes_are_apaches(kind: str) -> None:
    assert encoded(kind).hex().upper() == APACHE[kind]


@pytest.mark.parametrize("kind", KINDS)
def test_record_size_foretells_the_bytes(kind: str) -> None:
    assert r.records_size([DRAFTS[kind]()], kind.endswith("crc"), 1 << 20) == len(encoded(kind))


@pytest.mark.parametrize("kind", KINDS)
def test_decode_gives_every_field_back(kind: str) -> None:
    sent = DRAFTS[kind]()
    encode_records([sent], PLACE, STORED_AT, kind.endswith("crc"))
    read = decode_record(bytes.fromhex(APACHE[kind]), 0, r.VERIFY_BODY)
    assert (read.topic, read.body, read.queue_id, read.flag) == (sent.topic, sent.body, 3, 7)
    assert (read.queue_offset, read.physical_offset, read.sys_flag) == (42, PLACE, sent.sys_flag)
    assert (read.born_host, read.store_host) == (sent.born_host, sent.store_host)
    assert (read.born_timestamp, read.store_timestamp) == (1_700_000_000_000, STORED_AT)
    assert (read.reconsume_times, read.prepared_transaction_offset) == (2, 99)
    assert read.properties.startswith(sent.properties)
    assert read.body_crc == zlib.crc32(sent.body) & 0x7FFFFFFF
    assert read.size == sent.size == len(APACHE[kind]) // 2


def test_encoding_sets_where_and_when() -> None:
    drafts, log = log_of(3, 1000)
    assert [d.physical_offset for d in drafts] == [
        1000,
        1000 + drafts[0].size,
        1000 + drafts[0].size + drafts[1].size,
    ]
    assert {d.store_timestamp for d in drafts} == {STORED_AT}
    assert sum(d.size for d in drafts) == len(log)


def test_a_scan_finds_what_was_written() -> None:
    drafts, log = log_of(5, 4096)
    found, consumed, reason = scan_records(log, 4096, r.VERIFY_SEALED)
    assert (consumed, reason) == (len(log), r.NEED_MORE)
    assert [(d.physical_offset, d.size, d.body_crc) for d in found] == [
        (d.physical_offset, d.size, d.body_crc) for d in drafts
    ]
    assert {(d.keys, d.uniq_key, d.tags_code, d.topic, d.body) for d in found} == {
        ("k1 k2", "7F000001", 2448076, b"orders", b"")
    }


def test_a_scan_starts_where_it_is_told_and_stops_at_the_blank() -> None:
    drafts, log = log_of(4, 0)
    first = drafts[0].size
    found, consumed, reason = scan_records(log + r.encode_blank(77), first, r.VERIFY_RECORD, first)
    assert ([d.physical_offset for d in found], reason) == ([d.physical_offset for d in drafts[1:]], r.BLANK)
    assert consumed == len(log) - first


def test_a_scan_stops_before_damage_and_says_what_it_was() -> None:
    drafts, log = log_of(3, 0)
    damaged = bytearray(log)
    damaged[drafts[1].physical_offset + 90] ^= 1
    found, consumed, reason = scan_records(bytes(damaged), 0, r.VERIFY_RECORD)
    assert (len(found), consumed, reason) == (1, drafts[0].size, r.BAD_CRC)


def test_columns_tell_the_same_as_the_drafts() -> None:
    drafts = [DRAFTS[kind]() for kind in KINDS]
    log = b"pad" + encode_records(drafts, 70, STORED_AT, True)
    rows, count, consumed, reason = scan_columns(log, 70, r.VERIFY_SEALED, 3)
    assert (count, consumed, reason) == (len(drafts), len(log) - 3, r.NEED_MORE)
    width = len(COLUMNS)
    numbers = struct.unpack(f"<{count * width}q", rows)
    for n, sent in enumerate(drafts):
        row = dict(zip(COLUMNS, numbers[n * width : (n + 1) * width], strict=True))
        for name in "size queue_id flag queue_offset physical_offset sys_flag born_timestamp store_timestamp".split():
            assert row[name] == getattr(sent, name)
        assert (row["reconsume_times"], row["prepared_transaction_offset"]) == (2, 99)
        assert log[row["topic_at"] :][: row["topic_size"]] == sent.topic
        assert log[row["body_at"] :][: row["body_size"]] == sent.body
        assert log[row["properties_at"] :][: row["properties_size"] - 20] == sent.properties
        assert log[row["born_host_at"] :].startswith(sent.born_host)
        assert log[row["store_host_at"] :].startswith(sent.store_host)
    assert scan_columns(log, 70, r.VERIFY_NONE, len(log) + 1) == (b"", 0, 0, r.NEED_MORE)


def test_index_fields_from_properties() -> None:
    fresh = draft(properties=b"KEYS\x01a\x02TAGS\x01PAID\x02KEYS\x01b\x02UNIQ_KEY\x01U\x02KEYS\x01")
    (fresh,), _, _ = scan_records(encode_records([fresh], 0, STORED_AT, False), 0, r.VERIFY_BODY)
    assert (fresh.keys, fresh.tags_code, fresh.uniq_key) == ("b", 2448076, "U")


def test_scheduled_messages_carry_their_delivery_time() -> None:
    levels = [1000, 5000]
    for value, added in ((b"1", 1000), (b"2", 5000), (b"18", 5000)):
        scheduled = draft(b"SCHEDULE_TOPIC_XXXX", properties=b"XDELAY\x019\x02DELAY\x01" + value + b"\x02")
        log = encode_records([scheduled], 0, STORED_AT, True)
        assert scan_records(log, 0, r.VERIFY_SEALED, 0, levels)[0][0].tags_code == STORED_AT + added
    for value in (b"0", b"-1", b"x", b"9" * 12):
        odd = draft(b"SCHEDULE_TOPIC_XXXX", properties=b"TAGS\x01a\x02DELAY\x01" + value + b"\x02")
        log = encode_records([odd], 0, STORED_AT, True)
        assert scan_records(log, 0, r.VERIFY_SEALED, 0, levels)[0][0].tags_code == ord("a")


@pytest.mark.parametrize("kind", KINDS)
def test_no_truncated_record_is_taken_for_whole(kind: str) -> None:
    whole = bytes.fromhex(APACHE[kind])
    for end in range(len(whole)):
        for verify in (r.VERIFY_NONE, r.VERIFY_BODY, r.VERIFY_RECORD):
            assert check_record(whole[:end], 0, PLACE, verify) == r.NEED_MORE
        assert scan_records(whole[:end], PLACE, r.VERIFY_RECORD) == ([], 0, r.NEED_MORE)
        with pytest.raises(CorruptLogError):
            decode_record(whole[:end], 0)


@pytest.mark.parametrize("kind", ["v4crc", "v6crc", "v2crc"])
def test_every_flipped_bit_is_found(kind: str) -> None:
    whole = bytes.fromhex(APACHE[kind])
    assert check_record(whole, 0, PLACE, r.VERIFY_RECORD) == len(whole)
    # A neighbour follows, so that a size flipped upwards has bytes to reach into.
    follower = encode_records([draft()], PLACE + len(whole), STORED_AT, True)
    for bit in range(len(whole) * 8):
        flipped = bytearray(whole + follower)
        flipped[bit >> 3] ^= 1 << (bit & 7)
        for verify in (r.VERIFY_RECORD, r.VERIFY_SEALED):
            assert check_record(bytes(flipped), 0, PLACE, verify) < 0, f"bit {bit} missed"
            assert check_record(bytes(flipped), 0, -1, verify) < 0, f"bit {bit} missed without position"


@pytest.mark.parametrize("kind", ["v4crc", "v6crc", "v2crc"])
def test_a_flip_in_the_last_record_is_never_taken_for_a_record_still_to_come(kind: str) -> None:
    whole = bytes.fromhex(APACHE[kind])
    for bit in range(len(whole) * 8):
        flipped = bytearray(whole)
        flipped[bit >> 3] ^= 1 << (bit & 7)
        assert check_record(bytes(flipped), 0, PLACE, r.VERIFY_RECORD) < 0, f"bit {bit}"


def test_a_torn_tail_of_zeros_is_found_even_where_no_seal_is_asked_for() -> None:
    whole = encoded("v4crc")
    for lost in range(1, len(PROPERTIES) + 20):
        torn = whole[:-lost] + bytes(lost)
        assert check_record(torn, 0, PLACE, r.VERIFY_RECORD) < 0


def test_levels_of_verification() -> None:
    plain, sealed = encoded("v4"), encoded("v4crc")
    assert check_record(plain, 0, PLACE, r.VERIFY_RECORD) == len(plain)
    assert check_record(plain, 0, PLACE, r.VERIFY_SEALED) == r.NO_CRC
    assert check_record(sealed, 0, PLACE, r.VERIFY_SEALED) == len(sealed)
    bad_body = bytearray(plain)
    bad_body[88] ^= 0x10
    assert check_record(bytes(bad_body), 0, PLACE, r.VERIFY_NONE) == len(plain)
    assert check_record(bytes(bad_body), 0, PLACE, r.VERIFY_BODY) == r.BAD_CRC


def test_reasons() -> None:
    whole = encoded("v4crc")
    assert check_record(bytes(200), 0, 0, r.VERIFY_RECORD) == r.ZERO
    assert check_record(r.encode_blank(8), 0, 0, r.VERIFY_RECORD) == r.BLANK
    assert check_record(struct.pack(">ii", 7, -875286124), 0, 0, r.VERIFY_RECORD) == r.BAD_SIZE
    assert check_record(b"\0\0\1\0abcd" + whole, 0, 0, r.VERIFY_RECORD) == r.BAD_MAGIC
    assert check_record(whole, 0, PLACE + 1, r.VERIFY_NONE) == r.BAD_OFFSET
    assert check_record(whole, len(whole) + 1, 0, r.VERIFY_NONE) == r.NEED_MORE
    assert check_record(whole, -1, 0, r.VERIFY_NONE) == r.NEED_MORE
    for reason in range(-9, 1):
        assert "unknown" not in r.describe(reason)


@pytest.mark.parametrize("at", [84, 98, 105])
def test_negative_lengths_are_refused(at: int) -> None:
    whole = bytearray(encoded("v4"))
    whole[at] |= 0x80
    assert check_record(bytes(whole), 0, PLACE, r.VERIFY_NONE) == r.BAD_LENGTH


def test_a_senders_own_checksum_property_is_dropped() -> None:
    for with_crc in (True, False):
        sent = draft(properties=b"__CRC32#\x010000000000\x02a\x01b\x02__CRC32#\x011234567890\x02")
        log = encode_records([sent], 0, STORED_AT, with_crc)
        assert check_record(log, 0, 0, r.VERIFY_RECORD) == len(log) == sent.size
        assert log.count(b"__CRC32#") == with_crc
        assert sent.properties == b"a\x01b\x02"


@pytest.mark.parametrize("name", [b"__CRC32$", b"X__CRC32#", b"B__CRC32#", b"__CRC32#X"])
def test_a_property_that_only_resembles_the_seal_is_no_damage(name: bytes) -> None:
    log = encode_records([draft(properties=name + b"\x010123456789\x02")], 0, STORED_AT, False)
    assert check_record(log, 0, 0, r.VERIFY_RECORD) == len(log)


def test_properties_changed_after_the_size_was_asked_for() -> None:
    sent = draft(properties=b"a\x01b")
    small = r.records_size([sent], True, 1 << 30)
    sent.properties += b"INNER_MULTI_QUEUE_OFFSET\x017,8"
    log = encode_records([sent], 0, STORED_AT, True)
    assert check_record(log, 0, 0, r.VERIFY_SEALED) == sent.size == len(log) > small


@pytest.mark.parametrize(
    "change",
    [
        {"topic": b""},
        {"topic": b"t" * 32768},
        {"born_host": b"1234567"},
        {"store_host": b""},
        {"queue_id": 1 << 31},
        {"flag": -(1 << 31) - 1},
        {"sys_flag": 1 << 40},
        {"reconsume_times": 1 << 31},
        {"born_timestamp": 1 << 63},
        {"queue_offset": 1 << 63},
        {"properties": b"p" * 32768},
    ],
)
def test_what_no_record_can_hold_is_refused_before_anything_is_written(change: dict[str, object]) -> None:
    good, bad = draft(), draft()
    for name, value in change.items():
        setattr(bad, name, value)
    with pytest.raises(InvalidArgumentError):
        encode_records([good, bad], 0, STORED_AT, True)
    assert good.physical_offset == -1


def test_blank_bounds() -> None:
    assert r.encode_blank(8) == b"\0\0\0\x08\xcb\xd4\x31\x94"
    for size in (7, -1, 1 << 31):
        with pytest.raises(InvalidArgumentError):
            r.encode_blank(size)


def test_decode_records_takes_all_or_says_where() -> None:
    drafts, log = log_of(3, 0)
    assert [x.size for x in decode_records(log)] == [d.size for d in drafts]
    assert decode_records(b"") == []
    with pytest.raises(CorruptLogError) as caught:
        decode_records(log[:-1])
    assert caught.value.offset == drafts[2].physical_offset
