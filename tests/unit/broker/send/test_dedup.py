"""The memory of what idempotent producers sent."""

from __future__ import annotations

from aerobee.broker.send.dedup import Dedup, Sent
from aerobee.model.producermark import SEQUENCE_WINDOW, ProducerMark, parse_mark

A, B = "a" * 16, "b" * 16


def store(memory: Dedup, mark: ProducerMark, now_s: float = 0.0, topic: str = "T") -> Sent:
    sent = memory.begin(mark, topic, now_s)
    sent.physical_offset = mark.sequence * 100
    memory.stored(sent)
    return sent


def test_a_message_is_known_by_producer_sequence_and_topic() -> None:
    memory = Dedup()
    sent = store(memory, ProducerMark(A, 7))
    assert memory.find(ProducerMark(A, 7), "T") is sent
    assert memory.find(ProducerMark(A, 8), "T") is None
    assert memory.find(ProducerMark(B, 7), "T") is None
    assert memory.find(ProducerMark(A, 7), "copied to another topic") is None


def test_a_repeat_of_one_under_way_waits_for_its_outcome() -> None:
    memory, mark, told = Dedup(), ProducerMark(A, 1), []
    sent = memory.begin(mark, "T", 0.0)
    assert sent.waiting is not None
    sent.waiting.append(lambda code, remark: told.append((code, remark)))
    for outcome in memory.stored(sent):
        outcome(0, "")
    assert told == [(0, "")]
    assert memory.stored(sent) == [], "told once"


def test_what_was_refused_is_forgotten() -> None:
    memory, mark = Dedup(), ProducerMark(A, 1)
    sent = memory.begin(mark, "T", 0.0)
    assert memory.refused(mark, "T", sent) == []
    assert memory.find(mark, "T") is None
    assert memory.entries == 0


def test_only_the_window_is_kept_and_what_lies_below_cannot_be_told() -> None:
    memory = Dedup()
    for sequence in range(SEQUENCE_WINDOW + 10):
        store(memory, ProducerMark(A, sequence))
    assert memory.entries == SEQUENCE_WINDOW
    assert memory.find(ProducerMark(A, 9), "T") is None
    assert memory.is_too_old(ProducerMark(A, 9))
    assert memory.find(ProducerMark(A, 10), "T") is not None
    assert not memory.is_too_old(ProducerMark(A, 10))
    assert not memory.is_too_old(ProducerMark(B, 0))


def test_a_leap_of_the_sequence_forgets_all_before_it() -> None:
    memory = Dedup()
    for sequence in (3, 1, 2, 10**17):
        store(memory, ProducerMark(A, sequence))
    assert memory.entries == 1


def test_idle_producers_are_forgotten() -> None:
    memory = Dedup(idle_s=10)
    store(memory, ProducerMark(A, 1), 0.0)
    store(memory, ProducerMark(B, 1), 9.0)
    assert len(memory) == 2
    store(memory, ProducerMark(B, 2), 10.0)
    assert memory.find(ProducerMark(A, 1), "T") is None
    assert (len(memory), memory.entries) == (1, 2)


def test_the_longest_idle_makes_room() -> None:
    memory = Dedup(producers_max=2)
    for producer in ("a", "b", "a", "c"):
        store(memory, ProducerMark(producer * 16, memory.entries))
    assert memory.find(ProducerMark(A, 0), "T") is not None
    assert memory.find(ProducerMark(B, 1), "T") is None
    crowded = Dedup(entries_max=3)
    for sequence in range(3):
        store(crowded, ProducerMark(A, sequence))
    store(crowded, ProducerMark(B, 0))
    assert (len(crowded), crowded.entries) == (1, 1)


def test_of_copies_in_the_log_the_first_counts() -> None:
    memory, mark = Dedup(), ProducerMark(A, 1)
    memory.learn(mark, "T", Sent(physical_offset=100), 0.0)
    memory.learn(mark, "T", Sent(physical_offset=200), 0.0)
    found = memory.find(mark, "T")
    assert found is not None
    assert found.physical_offset == 100


def test_marks() -> None:
    mark = ProducerMark(A, 12)
    assert parse_mark(mark.encode()) == mark
    for text in (None, "", A, f"{A}:", f"{A}:x", f"{A}:-1", "ab:1", f"{A}:{'9' * 19}", f"{A}:\u0661"):
        assert parse_mark(text) is None, text
