"""The consumers' machines: process queue, share, offsets, subscriptions, pace."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aerobee.client.consumer.allocation import AVERAGELY
from aerobee.client.consumer.offsetstore import OffsetTable
from aerobee.client.consumer.processqueue import LOCK_VALID_S, ProcessQueue, PullLimits
from aerobee.client.consumer.push.stats import ConsumeCounts
from aerobee.client.consumer.rebalance import RebalancePace, difference, share
from aerobee.client.consumer.subscription import newer, subscription
from aerobee.errors import InvalidArgumentError
from aerobee.hot.log.javahash import java_hash
from aerobee.model.message import Message
from aerobee.model.offsets import QueueOffset
from aerobee.model.queue import MessageQueue

QUEUE = MessageQueue("T", "b", 0)


def message(offset: int, size: int = 1) -> Message:
    return Message("T", b"x" * size, queue_offset=QueueOffset(offset))


class TestProcessQueue:
    def test_commits_the_lowest_offset_not_finished(self) -> None:
        process = ProcessQueue(QUEUE, 10)
        assert process.commit_offset == 10
        process.put([message(10), message(11), message(13)], 14)
        assert process.finish([11]) == 10
        assert process.finish([10]) == 13
        assert process.finish([13]) == 14

    def test_what_was_filtered_out_is_behind_when_nothing_waits(self) -> None:
        process = ProcessQueue(QUEUE, 0)
        process.put([message(2)], 9)
        assert process.commit_offset == 2
        assert process.finish([2]) == 9
        process.put([], 20)
        assert process.commit_offset == 20

    def test_a_message_that_comes_twice_is_put_once(self) -> None:
        process = ProcessQueue(QUEUE, 0)
        assert len(process.put([message(0), message(1)], 2)) == 2
        process.finish([0, 1])
        assert process.put([message(0), message(1), message(2)], 3) == [message(2)]

    def test_is_full_by_count_size_and_span(self) -> None:
        process = ProcessQueue(QUEUE, 0)
        process.put([message(0, 100), message(50, 100)], 51)
        assert process.full(PullLimits(2, 200, 50)) is None
        assert "messages wait" in (process.full(PullLimits(1, 200, 50)) or "")
        assert "bytes wait" in (process.full(PullLimits(2, 199, 50)) or "")
        assert "offset 0 is not done" in (process.full(PullLimits(2, 200, 49)) or "")
        assert process.full(PullLimits(2, 200, 49), with_span=False) is None
        process.finish([0])
        assert process.full(PullLimits(2, 100, 0)) is None

    def test_a_lock_is_valid_from_when_it_was_asked_for(self) -> None:
        process = ProcessQueue(QUEUE, 0)
        assert not process.holds_lock(0.0)
        process.locked(100.0)
        assert process.holds_lock(100.0 + LOCK_VALID_S - 0.1) and not process.holds_lock(100.0 + LOCK_VALID_S)
        process.locked(90.0)  # an answer that came late
        assert process.holds_lock(100.0 + LOCK_VALID_S - 0.1)

    @given(st.data())
    def test_never_commits_past_what_is_not_finished(self, data: st.DataObject) -> None:
        process = ProcessQueue(QUEUE, 0)
        waiting: dict[int, int] = {}
        end = 0
        for _ in range(data.draw(st.integers(1, 30))):
            if waiting and data.draw(st.booleans()):
                done = data.draw(st.lists(st.sampled_from(sorted(waiting)), min_size=1, unique=True))
                process.finish(done)
                for offset in done:
                    del waiting[offset]
            else:
                gaps = data.draw(st.lists(st.integers(0, 3), max_size=4))
                arrived = []
                for gap in gaps:
                    end += gap
                    size = data.draw(st.integers(0, 5))
                    arrived.append(message(end, size))
                    waiting[end] = size
                    end += 1
                end += data.draw(st.integers(0, 2))
                assert process.put(arrived, end) == arrived
            expected = min(waiting) if waiting else end
            assert process.commit_offset == expected
            assert process.first == (min(waiting) if waiting else None)
            assert process.last == (max(waiting) if waiting else None)
            assert len(process) == len(waiting) and process.size_bytes == sum(waiting.values())
            assert [m.queue_offset for m in process.head(3)] == sorted(waiting)[:3]


class TestOffsetTable:
    def test_advances_only_forward_and_resets_anywhere(self) -> None:
        table = OffsetTable()
        table.advance(QUEUE, 5)
        table.advance(QUEUE, 3)
        assert table.get(QUEUE) == 5
        table.reset(QUEUE, 1)
        assert table.get(QUEUE) == 1

    def test_knows_what_is_not_saved(self) -> None:
        table = OffsetTable()
        other = MessageQueue("T", "b", 1)
        table.reset(QUEUE, 5)
        table.known(QUEUE, 5)
        table.reset(other, 0)
        assert table.unsaved() == {other: 0}
        table.advance(QUEUE, 6)
        assert table.unsaved([QUEUE]) == {QUEUE: 6}
        table.remove(QUEUE)
        assert table.unsaved() == {other: 0} and table.get(QUEUE) is None


class TestShare:
    def test_who_is_not_listed_takes_nothing(self) -> None:
        queues = [MessageQueue("T", "b", i) for i in range(4)]
        assert share(AVERAGELY, "me", queues, ["you"]) == []
        assert share(AVERAGELY, "me", [], ["me"]) == []
        assert share(AVERAGELY, "me", reversed(queues), ["you", "me"]) == queues[:2]

    @given(
        st.sets(st.integers(0, 8)),
        st.sets(st.integers(0, 8)),
    )
    def test_the_difference_leads_from_one_to_the_other(self, owned: set[int], wanted: set[int]) -> None:
        have = {MessageQueue("T", "b", i) for i in owned} | {MessageQueue("other", "b", 0)}
        want = {MessageQueue("T", "b", i) for i in wanted}
        change = difference("T", have, want)
        after = (have - set(change.revoked)) | set(change.assigned)
        assert after == want | {MessageQueue("other", "b", 0)}
        assert not set(change.assigned) & have and set(change.revoked) <= have
        assert bool(change) == (owned != wanted)

    def test_looks_soon_while_something_is_missing(self) -> None:
        pace = RebalancePace(20.0)
        assert pace.wait_s(True) == 20.0
        waits = [pace.wait_s(False) for _ in range(12)]
        assert waits[:10] == [1.0] * 10 and waits[10:] == [5.0] * 2
        pace.woken()
        assert pace.wait_s(False) == 1.0


class TestSubscription:
    def test_tags_are_split_and_hashed_as_java_does(self) -> None:
        data = subscription("T", " A || B||A ")
        assert data.tags_set == ("A", "B") and data.code_set == (java_hash("A"), java_hash("B"))
        assert data.sub_string == "A || B||A" and data.expression_type == "TAG"

    @pytest.mark.parametrize("tags", ["*", "", " "])
    def test_everything(self, tags: str) -> None:
        data = subscription("T", tags)
        assert data.sub_string == "*" and data.tags_set == () and data.code_set == ()

    def test_sql_passes_through(self) -> None:
        data = subscription("T", sql92="a > 3 AND b = 'x'")
        assert data.sub_string == "a > 3 AND b = 'x'" and data.expression_type == "SQL92"
        for tags, sql92 in (("A", "a = 1"), ("*", " "), ("||", None)):
            with pytest.raises(InvalidArgumentError):
                subscription("T", tags, sql92)

    def test_versions_only_grow(self) -> None:
        data = subscription("T", version=100)
        assert newer(data, 50).sub_version == 101 and newer(data, 200).sub_version == 200


def test_counts_cover_the_last_minute() -> None:
    counts = ConsumeCounts()
    counts.consumed(0.0, 30, 10.0, done=True)
    counts.consumed(0.5, 30, 30.0, done=True)
    counts.consumed(1.0, 6, 20.0, done=False)
    status = counts.status(10.0)
    assert (status.consume_ok_tps, status.consume_failed_tps, status.consume_rt) == (1.0, 0.1, 20.0)
    assert status.consume_failed_msgs == 6
    assert counts.status(100.0).consume_ok_tps == 0.0
