import dataclasses

import pytest

from aerobee.errors import RemoteProtocolError
from aerobee.hot.log.batch import encode_batch
from aerobee.hot.log.host import encode_host
from aerobee.hot.log.layout import INNER_BATCH, NEED_UNWRAP
from aerobee.hot.log.record import Draft, Record, decode_record, encode_records
from aerobee.model.compression import CompressionType, DecompressionError, compress
from aerobee.model.message import Message, NoRoomError, Unfolding, from_record, unfolded, unwrap

MIB = 1 << 20
ZLIB = CompressionType.ZLIB


def stored(body: bytes, properties: bytes, sys_flag: int = 0) -> Message:
    return from_record(record_of(body, properties, sys_flag), "broker-a")


def record_of(body: bytes, properties: bytes = b"", sys_flag: int = 0) -> Record:
    draft = Draft(
        b"orders", 3, 7, sys_flag, 11, encode_host("1.2.3.4:5"), encode_host("10.0.0.9:10911"), 2, 0, body,
        properties, 0, "", "",
    )  # fmt: skip
    draft.queue_offset = 42
    return decode_record(encode_records([draft], 123_456_789, 22, True), 0)


def test_the_vocabulary() -> None:
    msg = stored(b"hi", b"KEYS\x01k1  k2\x02TAGS\x01PAID\x02UNIQ_KEY\x01U1\x02user\x01x\x02")
    assert (msg.topic, msg.broker, msg.queue_id, msg.queue_offset) == ("orders", "broker-a", 3, 42)
    assert (msg.message_id, msg.offset_id) == ("U1", "0A00000900002A9F00000000075BCD15")
    assert (msg.keys, msg.key_list, msg.tags, msg.body) == ("k1  k2", ["k1", "k2"], "PAID", b"hi")
    assert dict(msg.properties) == {"user": "x"}
    assert set(msg.system_properties) == {"KEYS", "TAGS", "UNIQ_KEY", "__CRC32#"}
    assert (msg.born_timestamp, msg.store_timestamp, msg.reconsume_times) == (11, 22, 2)
    assert (msg.commitlog_offset, msg.born_host, msg.store_host) == (
        123_456_789,
        "1.2.3.4:5",
        "10.0.0.9:10911",
    )


def test_without_a_unique_id_the_offset_id_names_it() -> None:
    assert stored(b"hi", b"").message_id == "0A00000900002A9F00000000075BCD15"


def test_it_is_a_value() -> None:
    msg = stored(b"hi", b"a\x01b\x02")
    assert {msg} == {stored(b"hi", b"a\x01b\x02")}
    with pytest.raises(dataclasses.FrozenInstanceError):
        msg.body = b""  # type: ignore[misc]


@pytest.mark.parametrize("kind", list(CompressionType))
def test_a_compressed_body_is_unfolded(kind: CompressionType) -> None:
    msg = stored(compress(b"hi" * 100, kind), b"", kind.flag)
    assert msg.body == b"hi" * 100
    assert msg.sys_flag & 1 == 0
    with pytest.raises(DecompressionError):
        stored(b"not compressed", b"", kind.flag)


def test_a_wrapped_batch_is_unwrapped() -> None:
    body = encode_batch([(1, b"one", b"UNIQ_KEY\x01A\x02x\x01y\x02"), (2, b"two", b"TAGS\x01t\x02")])
    first, second = unwrap(stored(body, b"", INNER_BATCH | NEED_UNWRAP))
    assert (first.body, first.flag, first.message_id, first.queue_offset) == (b"one", 1, "A", 42)
    assert dict(first.properties) == {"x": "y"}
    assert (second.body, second.tags, second.queue_offset) == (b"two", "t", 43)
    plain = stored(body, b"", NEED_UNWRAP)
    assert unwrap(plain) == [plain]
    for broken in (body[:-1], b""):
        with pytest.raises(RemoteProtocolError):
            unwrap(stored(broken, b"", INNER_BATCH | NEED_UNWRAP))


def folded(size: int) -> Record:
    return record_of(compress(bytes(size), ZLIB), b"", ZLIB.flag)


def test_one_answer_unfolds_to_so_much_and_one_message_alone_to_more() -> None:
    unfolding = Unfolding()
    assert len(unfolding.message(folded(20 * MIB)).body) == 20 * MIB
    with pytest.raises(NoRoomError):
        unfolding.message(folded(1))
    assert unfolding.message(record_of(b"plain")).body == b"plain"
    several = Unfolding()
    for _ in range(4):
        several.message(folded(4 * MIB))
    with pytest.raises(NoRoomError):
        several.message(folded(1))


def test_a_bad_body_is_told_once_and_those_behind_it_wait_for_the_next_answer() -> None:
    unfolding = Unfolding()
    with pytest.raises(DecompressionError) as raised:
        unfolding.message(record_of(b"no zlib", b"", ZLIB.flag))
    assert not isinstance(raised.value, NoRoomError)
    with pytest.raises(NoRoomError):
        unfolding.message(folded(1))
    too_large = Unfolding()
    with pytest.raises(DecompressionError) as raised:
        too_large.message(folded(65 * MIB))
    assert not isinstance(raised.value, NoRoomError)


def test_what_stays_folded_is_unfolded_later_but_the_messages_of_a_batch_at_once() -> None:
    unfolding = Unfolding(unfold=False)
    message = unfolding.message(folded(9 * MIB))
    assert len(message.body) < MIB and len(unfolded(message).body) == 9 * MIB
    assert not unfolded(message).sys_flag & ZLIB.flag & 1 and unfolded(unfolded(message)) == unfolded(message)
    bad = unfolding.message(record_of(b"no zlib", b"", ZLIB.flag))
    assert unfolded(bad) is bad
    wrapped = compress(encode_batch([(0, b"one", b""), (0, b"two", b"")]), ZLIB)
    batch = unfolding.message(record_of(wrapped, b"", ZLIB.flag | INNER_BATCH | NEED_UNWRAP))
    assert [one.body for one in unwrap(batch)] == [b"one", b"two"]
