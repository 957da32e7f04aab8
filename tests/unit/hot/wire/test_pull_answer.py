"""The prepared head of a pull's answer: byte for byte the one that is written whole."""

from hypothesis import given
from hypothesis import strategies as st

from aerobee.protocol.pulling import pull_answer, pull_answer_form

OFFSET = st.integers(0, (1 << 63) - 1) | st.integers(0, 2000)
FLAG = st.integers(0, 3)
FORM = pull_answer_form()


@given(st.integers(-5, (1 << 31) - 1), FLAG, FLAG, FLAG, st.tuples(OFFSET, OFFSET, OFFSET), st.integers(0, 1 << 24))
def test_it_is_the_head_written_whole(
    opaque: int, suggested: int, topic: int, group: int, offsets: tuple[int, int, int], size: int
) -> None:
    whole = pull_answer(
        0,
        0,
        opaque,
        offsets,
        suggest_which_broker_id=suggested,
        topic_sys_flag=topic,
        group_sys_flag=group,
        remark="FOUND",
        body_size=size,
    )
    assert FORM.found(opaque, suggested, topic, group, *offsets, size) == whole
