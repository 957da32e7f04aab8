"""Records, properties, batches and ids under random and hostile input."""

import struct

from hypothesis import given, settings
from hypothesis import strategies as st

from aerobee.errors import CorruptLogError, RemoteProtocolError
from aerobee.hot.log import record as r
from aerobee.hot.log.batch import decode_batch, encode_batch
from aerobee.hot.log.javahash import java_hash, java_hash_utf8
from aerobee.hot.log.properties import decode_properties, encode_properties, find_property, remove_property
from aerobee.hot.log.record import Draft, check_record, decode_record, decode_records, encode_records
from aerobee.hot.log.scan import scan_records
from aerobee.hot.log.units import decode_units, encode_unit, select_units

I32 = st.integers(-(1 << 31), (1 << 31) - 1)
I64 = st.integers(-(1 << 63), (1 << 63) - 1)
# No topic ends in zero: that is what a torn record looks like.
TOPICS = (st.binary(min_size=1, max_size=20) | st.binary(min_size=125, max_size=131)).filter(lambda name: name[-1] != 0)
HOSTS = st.binary(min_size=8, max_size=8) | st.binary(min_size=20, max_size=20)
NAMES = st.text(st.characters(exclude_characters="\x01\x02", exclude_categories=["Cs"]), min_size=1, max_size=12)
VALUES = st.text(st.characters(exclude_characters="\x02", exclude_categories=["Cs"]), min_size=1, max_size=20)
PAIRS = st.dictionaries(NAMES | st.sampled_from(["KEYS", "TAGS", "UNIQ_KEY", "KEY", "TAGSX"]), VALUES, max_size=6)


@st.composite
def drafts(draw: st.DrawFn) -> Draft:
    made = Draft(
        draw(TOPICS),
        draw(I32), draw(I32), draw(I32), draw(I64), draw(HOSTS), draw(HOSTS), draw(I32), draw(I64),
        draw(st.binary(max_size=200)), encode_properties(draw(PAIRS)), 0, "", "",
    )  # fmt: skip
    made.queue_offset = draw(I64)
    return made


FIELDS = (
    "topic queue_id flag sys_flag born_timestamp born_host store_host reconsume_times "
    "prepared_transaction_offset queue_offset physical_offset store_timestamp size body_crc"
).split()


@given(st.lists(drafts(), max_size=5), st.integers(0, 1 << 60), I64, st.booleans())
def test_what_is_written_is_scanned_and_decoded(sent: list[Draft], place: int, now: int, with_crc: bool) -> None:
    log = encode_records(sent, place, now, with_crc)
    verify = r.VERIFY_SEALED if with_crc else r.VERIFY_RECORD
    found, consumed, reason = scan_records(log, place, verify)
    assert (len(found), consumed, reason) == (len(sent), len(log), r.NEED_MORE)
    records = decode_records(log, verify)
    for before, scanned, record in zip(sent, found, records, strict=True):
        for name in FIELDS:
            assert getattr(before, name) == getattr(scanned, name) == getattr(record, name)
        assert before.body == record.body
        pairs = decode_properties(before.properties)
        assert scanned.keys == pairs.get("KEYS", "")
        assert scanned.uniq_key == pairs.get("UNIQ_KEY", "")
        assert scanned.tags_code == (java_hash(pairs["TAGS"]) if "TAGS" in pairs else 0)


@given(drafts(), st.data())
def test_any_damage_to_a_sealed_record_is_found(sent: Draft, data: st.DataObject) -> None:
    log = bytearray(encode_records([sent], 77, 1, True))
    at = data.draw(st.integers(0, len(log) - 1))
    burst = data.draw(st.integers(1, 255))
    log[at] ^= burst
    assert check_record(bytes(log), 0, 77, r.VERIFY_SEALED) < 0


@given(st.binary(max_size=300), st.integers(0, 3))
def test_noise_is_only_ever_a_reason(noise: bytes, verify: int) -> None:
    assert check_record(noise, 0, 0, verify) <= 0
    assert scan_records(noise, 0, verify)[0] == []


@settings(max_examples=300)
@given(st.data(), st.integers(0, 3))
def test_a_header_with_lying_lengths_is_only_ever_a_reason(data: st.DataObject, verify: int) -> None:
    edge = st.sampled_from([0, 1, -1, 7, 88, 91, 127, 128, 255, 0x7FFF, 0x7FFFFFFF, -0x80000000]) | I32
    magic = data.draw(st.sampled_from([-626843481, -626843477, -875286124]))
    head = struct.pack(
        ">iiiiiqqiq8sq8siqi",
        data.draw(edge), magic, 0, 0, 0, 0, 0, data.draw(st.sampled_from([0, 16, 32, 48])), 0,
        bytes(8), 0, bytes(8), 0, 0, data.draw(edge),
    )  # fmt: skip
    buf = head + data.draw(st.binary(max_size=80))
    size = check_record(buf, 0, -1, verify)
    assert size <= len(buf)
    try:
        assert decode_record(buf, 0).size == check_record(buf, 0, -1, r.VERIFY_NONE)
    except CorruptLogError:
        assert check_record(buf, 0, -1, r.VERIFY_NONE) <= 0


@given(PAIRS)
def test_properties_round_trip(pairs: dict[str, str]) -> None:
    block = encode_properties(pairs)
    assert decode_properties(block) == pairs
    for name, value in pairs.items():
        assert find_property(block, name.encode()) == value.encode()
        assert find_property(remove_property(block, name.encode()), name.encode()) is None


@given(st.lists(st.sampled_from([b"a", b"KEYS", b"\x01", b"\x02", b"\xff", b"b"]), max_size=20))
def test_find_agrees_with_decode_on_any_bytes(tokens: list[bytes]) -> None:
    block = b"".join(tokens)
    pairs = decode_properties(block)
    for name in (b"a", b"KEYS", b"ab"):
        found = find_property(block, name)
        assert (found.decode("utf-8", "replace") if found is not None else None) == pairs.get(name.decode())


@given(st.lists(st.tuples(I32, st.binary(max_size=30), st.binary(max_size=30)), max_size=6))
def test_batches_round_trip(parts: list[tuple[int, bytes, bytes]]) -> None:
    assert decode_batch(encode_batch(parts), 6) == parts


@given(st.binary(max_size=120))
def test_noise_for_a_batch_is_refused_or_read(noise: bytes) -> None:
    try:
        parts = decode_batch(noise, 10)
    except RemoteProtocolError:
        return
    assert sum(22 + len(body) + len(block) for _, body, block in parts) == len(noise)


@given(st.text())
def test_hash_of_bytes_is_hash_of_text(text: str) -> None:
    want = 0
    units = text.encode("utf-16-be", "surrogatepass")
    for at in range(0, len(units), 2):
        want = (want * 31 + int.from_bytes(units[at : at + 2], "big")) & 0xFFFFFFFF
    assert java_hash(text) == (want ^ 0x80000000) - 0x80000000
    data = text.encode("utf-8", "replace")
    assert java_hash_utf8(data, 0, len(data)) == java_hash(data.decode())


@given(
    st.lists(st.tuples(st.integers(0, 999), st.integers(1, 50), st.integers(0, 3)), max_size=30),
    st.integers(0, 32),
    st.none() | st.sets(st.integers(0, 3)),
    st.integers(1, 10),
    st.integers(1, 200),
)
def test_a_selection_is_what_a_plain_loop_would_take(
    triples: list[tuple[int, int, int]], start: int, tags: set[int] | None, count_max: int, bytes_max: int
) -> None:
    buf = b"".join(encode_unit(*triple) for triple in triples)
    assert decode_units(buf) == triples
    taken: list[int] = []
    at = start
    for at in range(start, len(triples)):
        total = sum(triples[i][1] for i in taken)
        if taken and (len(taken) >= count_max or total + triples[at][1] > bytes_max):
            break
        if tags is None or triples[at][2] in tags:
            taken.append(at)
    else:
        at = max(start, len(triples))
    got = select_units(buf, start, tags, count_max, bytes_max)
    assert (got.units, got.next_unit) == (taken, at)
    assert sum(got.sizes) == got.size_total
