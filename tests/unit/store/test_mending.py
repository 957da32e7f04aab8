"""A flipped bit is found again wherever it is; two are not taken for one."""

from __future__ import annotations

from aerobee.hot.log.record import encode_blank, encode_records
from aerobee.store.mending import before_blank, lacks_a_byte, mend, seal_of
from aerobee.testing.entropy import SeededEntropy
from aerobee.testing.recordcases import draft_of, record_cases

RECORD = encode_records([draft_of(b"some body", properties={"KEYS": "a"})], 4096, 1_700_000_000_000, True)


def test_every_bit() -> None:
    assert RECORD.endswith(seal_of(int(RECORD[-11:-1][::-1])))
    for bit in range(len(RECORD) * 8):
        damaged = bytearray(RECORD)
        damaged[bit // 8] ^= 1 << bit % 8
        assert mend(bytes(damaged), 4096) == RECORD, bit


def test_every_kind_of_record() -> None:
    entropy = SeededEntropy(3)
    for kind, drafts in record_cases().items():
        record = encode_records(drafts[:1], 0, 1_700_000_000_000, True)
        damaged = bytearray(record)
        damaged[entropy.below(len(record))] ^= 1 << entropy.below(8)
        assert mend(bytes(damaged), 0) == (record if kind != "large" else None)


def test_what_is_not_one_bit() -> None:
    entropy = SeededEntropy(4)
    for _ in range(300):
        damaged = bytearray(RECORD)
        first, second = entropy.below(len(RECORD) - 20), entropy.below(len(RECORD) - 20)
        damaged[first] ^= 1 << entropy.below(8)
        damaged[second] ^= 1 << entropy.below(8)
        if damaged.count(0) != RECORD.count(0) or first != second:
            assert mend(bytes(damaged), 4096) in (None, RECORD)
    for data in (b"", bytes(200), RECORD[:-1], RECORD[1:], bytes(range(256))):
        assert mend(data, 4096) is None
    unsealed = encode_records([draft_of(b"some body", properties={"KEYS": "a"})], 4096, 1, False)
    assert mend(unsealed, 4096) is None


def test_the_last_record_of_a_segment() -> None:
    blank = encode_blank(500)
    assert before_blank(RECORD + blank + bytes(492), len(RECORD) + 500) == RECORD
    assert before_blank(RECORD + blank, len(RECORD) + 500) == RECORD
    assert before_blank(RECORD + blank, len(RECORD) + 501) == RECORD + blank
    assert before_blank(blank[4:] + RECORD, len(RECORD) + 4) == blank[4:] + RECORD
    assert before_blank(RECORD, len(RECORD)) == RECORD


def test_a_byte_that_was_never_written() -> None:
    assert lacks_a_byte(b"a\0c", b"a\x01c")
    assert not lacks_a_byte(b"a\x03c", b"a\x01c")
