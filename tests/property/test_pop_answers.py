"""What POP reads and writes in one step is the same as in the general way."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aerobee.broker.pop.asked import PopBatch
from aerobee.broker.pop.strings import msg_offset_info, runs_in, start_offset_info
from aerobee.errors import RemoteProtocolError
from aerobee.hot.wire.pop import PopAnswerForm, numbers_text
from aerobee.model.dialect import loads_object
from aerobee.protocol.bodies.pop import BatchAck, BatchAckMessageRequestBody, bits_of
from aerobee.protocol.codes import LANGUAGE, VERSION
from aerobee.protocol.command import Command, encode_command, response
from aerobee.protocol.headers.pop import PopMessageResponseHeader

FORM = PopAnswerForm(LANGUAGE, VERSION)
longs = st.one_of(st.integers(0, 2**63 - 1), st.integers(0, 2_000), st.sampled_from([999, 1_000, 1_001, 999_999]))
opaques = st.integers(-(2**31), 2**31 - 1)
batches = st.builds(
    PopBatch, st.sampled_from([0, 1, 2]), st.just("T"), st.integers(0, 70_000), longs,
    st.lists(longs, min_size=1, max_size=40), st.just([]),
)  # fmt: skip


@given(opaques, longs, longs, st.integers(0, 1_000), longs, st.lists(batches, max_size=4), st.binary(max_size=50))
def test_an_answer_with_messages(
    opaque: int, pop_time: int, invisible: int, queue: int, rest: int, found: list[PopBatch], body: bytes
) -> None:
    starts, offsets = start_offset_info(found), msg_offset_info(found)
    head = PopMessageResponseHeader(
        pop_time=pop_time, invisible_time=invisible, revive_qid=queue, rest_num=rest, start_offset_info=starts,
        msg_offset_info=offsets,
    )  # fmt: skip
    slowly = encode_command(response(Command(1, opaque), 0, head, body, remark="FOUND"))
    assert FORM.found(opaque, pop_time, invisible, queue, rest, starts, offsets, len(body)) + body == slowly


@given(opaques)
def test_success_and_nothing_more(opaque: int) -> None:
    assert FORM.done(opaque) == encode_command(response(Command(1, opaque)))


@given(st.lists(longs, max_size=40))
def test_numbers(numbers: list[int]) -> None:
    assert numbers_text(numbers) == ",".join(map(str, numbers)).encode()


@given(st.sets(st.integers(0, 300), max_size=200), st.integers(-(2**63), 2**63 - 1))
def test_runs_are_what_the_bits_say(places: set[int], start: int) -> None:
    data = BatchAck(bits=bits_of(0, places)).set_bits()
    runs = runs_in(data, start)
    assert [offset for first, count in runs for offset in range(first, first + count)] == [
        start + place for place in sorted(places)
    ]
    assert all(first + count < following for (first, count), (following, _) in pairwise(runs))


values = st.one_of(
    st.sampled_from(['"0"', '"T"', '""', "0", "1", "-1", "null", "true", '"7"', "1.0", "[]", "{}", '"\\u0000"', '"é"']),
    st.integers(-(2**64), 2**64).map(str),
)
names = st.sampled_from(["c", "t", "r", "so", "q", "rq", "pt", "it", "b", "x"])
entries = st.lists(st.tuples(names, values), max_size=10).map(
    lambda pairs: "{" + ",".join(f'"{name}":{value}' for name, value in pairs) + "}"
)


several = st.lists(st.one_of(entries, st.sampled_from(["null", "1", "[]"])), max_size=3)


@given(several, st.sampled_from(['"b"', "null", "3"]))
def test_bodies_are_read_the_same_in_both_ways(acks: list[str], broker: str) -> None:
    text = f'{{"acks":[{",".join(acks)}],"brokerName":{broker}}}'.encode()
    try:
        slowly = BatchAckMessageRequestBody.from_json(loads_object(text))
    except RemoteProtocolError:
        with pytest.raises(RemoteProtocolError):
            BatchAckMessageRequestBody.decode(text)
        return
    assert BatchAckMessageRequestBody.decode(text) == slowly
