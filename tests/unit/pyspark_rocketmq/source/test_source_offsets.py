"""The checkpoint's text: the same offsets are the same letters, and every letter comes back."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aerobee.model.queue import MessageQueue
from pyspark_rocketmq.source.offsets import OffsetFormatError, Position, flat

queues = st.builds(
    MessageQueue, st.sampled_from(["a", "b|c", "ü", "%RETRY%g"]), st.sampled_from(["x", "y"]), st.integers(0, 40)
)
offsets = st.dictionaries(queues, st.integers(0, 2**60), max_size=12)


@settings(deadline=None)
@given(offsets, st.none() | offsets, st.randoms())
def test_order_of_making_does_not_matter_and_the_way_back_is_whole(
    made: dict[MessageQueue, int], start: dict[MessageQueue, int] | None, random: object
) -> None:
    shuffled = list(made.items())
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    text = json.dumps(Position(made, start).to_json())
    assert json.dumps(Position(dict(shuffled), start).to_json()) == text
    back = Position.from_json(json.loads(text))
    assert back.offsets == made
    assert back.start == start
    assert json.dumps(back.to_json()) == text


def test_the_text_itself_is_frozen() -> None:
    position = Position(
        {MessageQueue("t", "b", number): number + 5 for number in (10, 0, 2)}, {MessageQueue("t", "b", 0): 1}
    )
    assert json.dumps(position.to_json()) == (
        '{"v": 1, "offsets": {"t": {"b": {"0": 5, "2": 7, "10": 15}}}, "start": {"t": {"b": {"0": 1}}}}'
    )


@pytest.mark.parametrize(
    "wrong", [None, {}, {"v": 2, "offsets": {}}, {"offsets": {}}, [1], {"v": 1}, {"v": 1, "offsets": 3}]
)
def test_what_is_not_ours_is_refused(wrong: object) -> None:
    with pytest.raises(OffsetFormatError):
        Position.from_json(wrong)


@pytest.mark.parametrize(
    "wrong", [{"t": 1}, {"t": {"b": 1}}, {"t": {"b": {"x": 1}}}, {"t": {"b": {"0": "1"}}}, {"t": {"b": {"0": True}}}]
)
def test_wrong_tables_name_what_is_wrong(wrong: object) -> None:
    with pytest.raises(OffsetFormatError, match=r"expected|number"):
        flat(wrong)
