"""Records picked out of a stretch of the log: only those that their units mean."""

from aerobee.hot.gather import dense_stretch, gather_records, is_record_of
from aerobee.hot.record import Draft, encode_records
from aerobee.hot.units import Selection, encode_units, select_units

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


def test_a_queue_is_picked_out_of_a_shared_stretch() -> None:
    for topic, host in ((b"orders", HOST), (b"t" * 200, V6)):
        log, drafts = log_of(12, 3, topic, host)
        chosen, mine = chosen_of(drafts, 1)
        got = gather_records(log, BASE, chosen, 0, 4, 1, 10, topic, 1 << 40)
        places = [(d.physical_offset - BASE, d.size) for d in mine]
        assert got.records == b"".join(log[at : at + size] for at, size in places)
        assert (got.queue_offsets, got.wrong) == ([10, 11, 12, 13], [])


def test_a_stretch_of_one_queue_alone_is_taken_as_it_is() -> None:
    log, drafts = log_of(5, 1)
    chosen, _ = chosen_of(drafts, 0)
    assert gather_records(log, BASE, chosen, 0, 5, 0, 10, b"orders", 0).records is log


def test_what_is_another_record_or_damaged_is_left_out() -> None:
    log, drafts = log_of(4, 1)
    chosen, mine = chosen_of(drafts, 0)
    for args in ((1, 10, b"orders"), (0, 11, b"orders"), (0, 10, b"order"), (0, 10, b"orderz")):
        assert gather_records(log, BASE, chosen, 0, 4, *args, 0).wrong == [0, 1, 2, 3]
    body = mine[2].physical_offset - BASE + 90
    rotten = log[:body] + bytes([log[body] ^ 1]) + log[body + 1 :]
    trusted = gather_records(rotten, BASE, chosen, 0, 4, 0, 10, b"orders", 0)
    checked = gather_records(rotten, BASE, chosen, 0, 4, 0, 10, b"orders", 1 << 40)
    assert (trusted.wrong, checked.wrong, checked.queue_offsets) == ([], [2], [10, 11, 13])
    assert gather_records(b"", BASE, chosen, 0, 4, 0, 10, b"orders", 0).wrong == [0, 1, 2, 3]


def test_no_cut_of_a_record_is_taken_for_it() -> None:
    log, drafts = log_of(1, 1)
    size = drafts[0].size
    assert is_record_of(log, 0, size, BASE, 0, 10, b"orders")
    for cut in range(size):
        assert not is_record_of(log[:cut], 0, size, BASE, 0, 10, b"orders")
        assert not is_record_of(log[:cut], 0, cut, BASE, 0, 10, b"orders")
    assert not is_record_of(log, -1, size, BASE, 0, 10, b"orders")


def test_a_stretch_ends_where_copying_more_is_a_waste_and_at_the_segment() -> None:
    chosen = Selection()
    chosen.physical_offsets = [0, 200, 1_000_000, 1_000_100]
    chosen.sizes, chosen.units = [100, 100, 100, 100], [0, 1, 2, 3]
    assert dense_stretch(chosen, 0, 1 << 30) == (2, 300)
    assert dense_stretch(chosen, 2, 1 << 30) == (4, 200)
    assert dense_stretch(chosen, 2, 1_000_100) == (3, 100)
    assert dense_stretch(chosen, 3, 1 << 30) == (4, 100)
    chosen.physical_offsets = [500, 400, 0, 0]
    assert dense_stretch(chosen, 0, 1 << 30) == (1, 100)
