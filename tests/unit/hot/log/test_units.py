import struct

import pytest

from aerobee.errors import InvalidArgumentError
from aerobee.hot.log import units as u
from aerobee.hot.log.record import Draft


def rows(*triples: tuple[int, int, int]) -> bytes:
    return b"".join(struct.pack(">qiq", *triple) for triple in triples)


TEN = rows(*((100 * i, 100, i % 3) for i in range(10)))


def test_encode_and_decode() -> None:
    triples = [(0, 1, -1), (1 << 62, 0x7FFFFFFF, -(1 << 63)), (7, 8, 1_700_000_000_000)]
    assert b"".join(u.encode_unit(*triple) for triple in triples) == rows(*triples)
    assert u.decode_units(rows(*triples) + b"partial") == triples
    draft = Draft(b"t", 0, 0, 0, 0, bytes(8), bytes(8), 0, 0, b"", b"", -5, "", "")
    draft.physical_offset, draft.size = 9, 91
    assert u.encode_units([draft]) == rows((9, 91, -5))


def test_a_size_must_fit_its_field() -> None:
    with pytest.raises(InvalidArgumentError):
        u.encode_unit(0, 1 << 31, 0)


def test_select_all_from_a_start() -> None:
    got = u.select_units(TEN, 7, None, 32, 1 << 20)
    assert (got.physical_offsets, got.sizes, got.units) == ([700, 800, 900], [100] * 3, [7, 8, 9])
    assert (got.next_unit, got.size_total, got.stop) == (10, 300, u.END_OF_UNITS)


def test_select_by_tag_passes_over_the_others() -> None:
    got = u.select_units(TEN, 0, {1}, 32, 1 << 20)
    assert (got.physical_offsets, got.units, got.count) == ([100, 400, 700], [1, 4, 7], 3)
    assert got.next_unit == 10
    nothing = u.select_units(TEN, 0, {99}, 32, 1 << 20)
    assert (nothing.physical_offsets, nothing.next_unit) == ([], 10)


def test_bounds() -> None:
    by_count = u.select_units(TEN, 0, None, 4, 1 << 20)
    assert (len(by_count.sizes), by_count.next_unit, by_count.stop) == (4, 4, u.COUNT_REACHED)
    by_bytes = u.select_units(TEN, 0, None, 32, 250)
    assert (len(by_bytes.sizes), by_bytes.next_unit, by_bytes.stop) == (2, 2, u.BYTES_REACHED)
    # The first message is never too large, or it could not be consumed at all.
    assert u.select_units(TEN, 0, None, 32, 1).sizes == [100]
    by_safety = u.select_units(TEN, 0, None, 32, 1 << 20, 0, 300)
    assert (by_safety.physical_offsets, by_safety.next_unit, by_safety.stop) == (
        [0, 100, 200],
        3,
        u.END_OF_LOG,
    )
    by_scan = u.select_units(TEN, 0, {99}, 32, 1 << 20, scan_max=5)
    assert (by_scan.next_unit, by_scan.stop) == (5, u.SCAN_REACHED)


def test_deleted_and_blank_units_are_passed_over() -> None:
    assert u.select_units(TEN, 0, None, 32, 1 << 20, 750).physical_offsets == [800, 900]
    blank = rows((0, 0x7FFFFFFF, 0), (0, 0, 0), (5, 100, 0))
    assert u.select_units(blank, 0, None, 32, 1 << 20).physical_offsets == [5]
    assert u.select_units(b"", 3, None, 32, 1 << 20).next_unit == 3
