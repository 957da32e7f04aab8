"""Records picked out of a stretch of the log: only those that their units mean."""

from aerobee.hot.log.record import Draft, encode_records
from aerobee.hot.log.units import (
    Gathered,
    Selection,
    dense_stretch,
    encode_unit,
    encode_units,
    gather_mapped,
    gather_records,
    is_record_of,
    select_units,
)

HOST, V6 = bytes(8), bytes(20)
BASE = 4096


def log_of(count: int, queues: int, topic: bytes = b"orders", host: bytes = HOST) -> tuple[bytes, list[Draft]]:
    drafts = [
        Draft(topic, i % queues, 0, 0, 0, host, HOST, 0, 0, b"body-%d" % i, b"K\x01v\x02", 0, "", "")
        for i in range(count)
    ]
    for i, draft in enumerate(drafts):
        draft.queue_offset = 10 + i // queues
    return encode_records(drafts, BASE, 1, True), drafts


def chosen_of(drafts: list[Draft], queue_id: int) -> tuple[Selection, list[Draft]]:
    mine = [draft for draft in drafts if draft.queue_id == queue_id]
    return select_units(encode_units(mine), 0, None, 100, 1 << 30), mine


def gathered(
    log: bytes, chosen: Selection, stop: int, queue_id: int, queue_offset: int, topic: bytes, verify_below: int
) -> Gathered:
    """Out of a stretch and out of a segment: both give the same."""
    got, mapped = Gathered(), Gathered()
    gather_records(got, log, BASE, chosen, 0, stop, queue_id, queue_offset, topic, verify_below)
    length = max(len(log), 1 << 20)
    assert gather_mapped(mapped, log, BASE, length, chosen, 0, queue_id, queue_offset, topic, verify_below) == stop
    assert (b"".join(got.pieces), got.size, got.wrong) == (b"".join(mapped.pieces), mapped.size, mapped.wrong)
    assert got.size == sum(map(len, got.pieces))
    return got


def test_a_queue_is_picked_out_of_a_shared_stretch() -> None:
    for topic, host in ((b"orders", HOST), (b"t" * 200, V6)):
        log, drafts = log_of(12, 3, topic, host)
        chosen, mine = chosen_of(drafts, 1)
        places = [(d.physical_offset - BASE, d.size) for d in mine]
        for verify_below in (0, 1 << 40):
            got = gathered(log, chosen, 4, 1, 10, topic, verify_below)
            assert got.pieces == [log[at : at + size] for at, size in places]
            assert got.wrong == []


def test_a_record_of_another_topic_is_never_taken_however_long_their_names() -> None:
    for length in range(1, 30):
        topic = bytes(0x61 + number % 26 for number in range(length))
        log, drafts = log_of(1, 1, topic)
        size = drafts[0].size
        assert is_record_of(log, 0, size, BASE, 0, 10, topic)
        for at in range(length):
            for bit in (1, 0x80):
                other = topic[:at] + bytes((topic[at] ^ bit,)) + topic[at + 1 :]
                assert not is_record_of(log, 0, size, BASE, 0, 10, other)
        assert not is_record_of(log, 0, size, BASE, 0, 10, topic + b"x")
        assert not is_record_of(log, 0, size, BASE, 0, 10, topic[:-1])


def test_a_stretch_of_one_queue_alone_is_taken_as_it_is() -> None:
    log, drafts = log_of(5, 1)
    chosen, _ = chosen_of(drafts, 0)
    got = gathered(log, chosen, 5, 0, 10, b"orders", 0)
    assert len(got.pieces) == 1
    assert got.pieces[0] is log


def test_a_segment_gives_what_lies_in_it_and_no_record_across_its_end() -> None:
    log, drafts = log_of(6, 2)
    chosen, mine = chosen_of(drafts, 1)
    got = Gathered()
    cut = mine[1].physical_offset - BASE
    assert gather_mapped(got, log[:cut], BASE, cut, chosen, 0, 1, 10, b"orders", 0) == 1
    assert (got.size, got.wrong) == (mine[0].size, [])
    torn = Gathered()
    assert gather_mapped(torn, log[: cut + 50], BASE, cut + 50, chosen, 0, 1, 10, b"orders", 0) == 2
    assert (torn.size, torn.wrong) == (mine[0].size, [1])
    whole, alone = log_of(3, 1)
    every, _ = chosen_of(alone, 0)
    short = Gathered()
    end = alone[2].physical_offset - BASE + 9
    assert gather_mapped(short, whole[:end], BASE, end, every, 0, 0, 10, b"orders", 0) == 3
    assert (short.pieces, short.wrong) == ([whole[: alone[2].physical_offset - BASE]], [2])


def test_of_a_segment_records_far_from_each_other_and_scattered_ones_are_taken_too() -> None:
    log, drafts = log_of(3000, 30)
    mine = [draft for draft in drafts if draft.queue_id == 7]
    units = encode_units(mine)
    for tags in (None, {0}):
        chosen = select_units(units, 3, tags, 1000, 1 << 30)
        got = Gathered()
        assert gather_mapped(got, log, BASE, 1 << 30, chosen, 0, 7, 10, b"orders", 0) == 97
        places = [(draft.physical_offset - BASE, draft.size) for draft in mine[3:]]
        assert got.pieces == [log[at : at + size] for at, size in places]
    odd = b"".join(encode_unit(draft.physical_offset, draft.size, number % 2) for number, draft in enumerate(mine))
    chosen = select_units(odd, 0, {1}, 1000, 1 << 30)
    got = Gathered()
    assert gather_mapped(got, log, BASE, 1 << 30, chosen, 0, 7, 10, b"orders", 1 << 40) == 50
    assert got.pieces == [log[d.physical_offset - BASE : d.physical_offset - BASE + d.size] for d in mine[1::2]]
    assert got.wrong == []


def test_what_is_another_record_or_damaged_is_left_out() -> None:
    log, drafts = log_of(4, 1)
    chosen, mine = chosen_of(drafts, 0)
    for args in ((1, 10, b"orders"), (0, 11, b"orders"), (0, 10, b"order"), (0, 10, b"orderz")):
        assert gathered(log, chosen, 4, *args, 0).wrong == [0, 1, 2, 3]
    body = mine[2].physical_offset - BASE + 90
    rotten = log[:body] + bytes([log[body] ^ 1]) + log[body + 1 :]
    trusted = gathered(rotten, chosen, 4, 0, 10, b"orders", 0)
    checked = gathered(rotten, chosen, 4, 0, 10, b"orders", 1 << 40)
    assert (trusted.wrong, checked.wrong) == ([], [2])
    start, stop = mine[2].physical_offset - BASE, mine[3].physical_offset - BASE
    assert checked.pieces == [log[:start], log[stop:]]
    assert gathered(b"", chosen, 4, 0, 10, b"orders", 0).wrong == [0, 1, 2, 3]


def test_no_cut_of_a_record_is_taken_for_it() -> None:
    log, drafts = log_of(1, 1)
    size = drafts[0].size
    assert is_record_of(log, 0, size, BASE, 0, 10, b"orders")
    for cut in range(size):
        assert not is_record_of(log[:cut], 0, size, BASE, 0, 10, b"orders")
        assert not is_record_of(log[:cut], 0, cut, BASE, 0, 10, b"orders")
    assert not is_record_of(log, -1, size, BASE, 0, 10, b"orders")


def test_a_stretch_ends_where_copying_more_is_a_waste_and_at_the_segment() -> None:
    def at(*places: int) -> Selection:
        return select_units(b"".join(encode_unit(place, 100, 100) for place in places), 0, None, 100, 1 << 30)

    chosen = at(0, 200, 1_000_000, 1_000_100)
    assert dense_stretch(chosen, 0, 1 << 30) == (2, 300)
    assert dense_stretch(chosen, 2, 1 << 30) == (4, 200)
    assert dense_stretch(chosen, 2, 1_000_100) == (3, 100)
    assert dense_stretch(chosen, 3, 1 << 30) == (4, 100)
    assert dense_stretch(at(500, 400, 0, 0), 0, 1 << 30) == (1, 100)
