"""What every send obeys: the room that is kept, and that the short way's numbers promise no more than the table."""

from hypothesis import given
from hypothesis import strategies as st

from aerobee.broker.log.sendrules import (
    BATCH_COUNT_MAX,
    PROPERTIES_MAX,
    PROPERTIES_ROOM,
    SHORT_PROPERTIES_MAX,
    SPECIAL_FLAGS,
    Candidate,
    batch_refusal,
    key_refusal,
    largest_body,
    message_refusal,
    name_refusal,
    properties_size,
    row_refusal,
    topic_refusal,
)
from aerobee.broker.refusal import Refusal
from aerobee.hot.log.layout import BLANK_SIZE_MIN, PROPERTIES_SIZE_MAX
from aerobee.hot.log.properties import decode_properties, encode_properties
from aerobee.hot.log.record import Draft, records_size
from aerobee.model.topic import TopicConfig
from aerobee.protocol.codes import ResponseCode

BODY_MAX = 1000


def code(refusal: Refusal | None) -> int:
    return 0 if refusal is None else refusal.code


pairs = st.tuples(
    st.sampled_from([b"UNIQ_KEY", b"a", b"", b"CLUSTER", b"REAL_TOPIC", b"__transactionId__", b"WAIT"]),
    st.one_of(st.binary(max_size=60), st.binary(max_size=9).map(lambda some: some * 700)),
)
blocks = st.lists(pairs, max_size=8).map(lambda some: b"\x02".join(name + b"\x01" + value for name, value in some))


@given(
    blocks.map(lambda block: block[:SHORT_PROPERTIES_MAX]), st.integers(-(2**31), 2**31 - 1), st.integers(1, BODY_MAX)
)
def test_what_the_short_way_takes_no_rule_objects_to(block: bytes, sys_flag: int, size: int) -> None:
    assert row_refusal(block, size, BODY_MAX, sys_flag & ~SPECIAL_FLAGS) is None


@given(blocks)
def test_what_is_taken_leaves_room_for_all_that_is_added(block: bytes) -> None:
    properties = decode_properties(block)
    taken = row_refusal(block, 1, BODY_MAX) is None
    unique = properties.get("UNIQ_KEY", "K" * 32)
    added = {
        "UNIQ_KEY": unique, "CLUSTER": "c" * 255, "REAL_TOPIC": "t" * 255, "REAL_QID": "65535", "DELAY": "18",
        "TIMER_OUT_MS": "9" * 19, "TIMER_ENQUEUE_MS": "9" * 19, "TIMER_DEQUEUE_MS": "9" * 19,
        "TIMER_ROLL_TIMES": "9" * 19, "TRANSACTION_CHECK_TIMES": "9" * 10, "__transactionId__": unique,
        "RETRY_TOPIC": "t" * 255, "WAIT": "false", "ORIGIN_MESSAGE_ID": "F" * 56, "RECONSUME_TIME": "16",
        "MAX_RECONSUME_TIMES": "16",
    }  # fmt: skip
    # What a sender says himself is kept, or replaced by what is shorter.
    kept = {name: max(value, properties.get(name, ""), key=len) for name, value in added.items()}
    stored = len(encode_properties({**properties, **kept})) + 20
    assert stored <= PROPERTIES_SIZE_MAX or not taken


def test_the_largest_properties_are_taken_and_one_byte_more_is_not() -> None:
    name, unique = "large", {"UNIQ_KEY": "K" * 32, "CLUSTER": "c", "REAL_TOPIC": "t"}
    fits = {**unique, name: "v" * (PROPERTIES_MAX - len(name) - 2)}
    assert properties_size(fits) == PROPERTIES_MAX
    assert message_refusal(Candidate(0, 1, fits), BODY_MAX) is None
    fits[name] += "v"
    refusal = message_refusal(Candidate(0, 1, fits), BODY_MAX)
    assert refusal is not None and refusal.code == ResponseCode.MESSAGE_ILLEGAL
    assert str(PROPERTIES_MAX) in refusal.remark
    assert 1_000 < PROPERTIES_ROOM < 2_048


def test_a_retry_that_a_client_sends_itself_carries_what_the_broker_added() -> None:
    own = {"large": "v" * (PROPERTIES_MAX - 7)}
    copied = {
        "UNIQ_KEY": "K" * 32, "CLUSTER": "c" * 127, "REAL_TOPIC": "t" * 127, "RETRY_TOPIC": "t" * 127,
        "ORIGIN_MESSAGE_ID": "F" * 32, "MIN_OFFSET": "1", "MAX_OFFSET": "2", "CONSUME_START_TIME": "3",
    }  # fmt: skip
    block = encode_properties({**own, **copied})
    assert row_refusal(block, 1, BODY_MAX) is None


def test_a_body_leaves_room_in_its_segment_for_whatever_is_added() -> None:
    assert largest_body(4 << 20, 1 << 30) == 4 << 20
    segment = 1 << 20
    body = largest_body(segment - 1, segment)
    host = bytes(20)
    draft = Draft(b"t" * 255, 0, 0, 0, 0, host, host, 0, 0, bytes(body), b"p" * 32_700, 0, "", "")
    assert records_size([draft], True, 1 << 22) + BLANK_SIZE_MIN <= segment
    assert largest_body(4095, 4096) == 2048, "a segment of a test"


def test_flags_that_no_reader_could_live_with() -> None:
    half = {"TRAN_MSG": "true"}
    for sys_flag in (0x40, 0x80, 0xC0):
        assert code(message_refusal(Candidate(sys_flag, 1, half), BODY_MAX)) == ResponseCode.MESSAGE_ILLEGAL
    for sys_flag in (0x4, 0xC):
        assert code(message_refusal(Candidate(sys_flag, 1, {}), BODY_MAX)) == ResponseCode.MESSAGE_ILLEGAL
        assert message_refusal(Candidate(sys_flag, 1, half), BODY_MAX) is None
    for sys_flag in (0, 1, 2, 8, 0x30, 0x301, 0x10000, -0x80000000):
        assert message_refusal(Candidate(sys_flag, 1, {}), BODY_MAX) is None


def test_a_retry_with_the_property_of_a_transaction_is_no_half_message() -> None:
    assert Candidate(4, 1, {"TRAN_MSG": "TRUE"}).is_half
    assert Candidate(4, 1, {"TRAN_MSG": "true"}, reconsume_times=1).is_half
    assert not Candidate(4, 1, {"TRAN_MSG": "true", "DELAY": "3"}, reconsume_times=1).is_half
    assert not Candidate(0, 1, {"TRAN_MSG": "yes"}).is_half


def test_topics_queues_keys_and_batches() -> None:
    for topic in ("RMQ_SYS_TRACE_TOPIC", "%RETRY%g", "%DLQ%g", "TBW102", "rmq_sys_TRACE_DATA_x", "BenchmarkTest"):
        assert name_refusal(topic) is None, topic
    for topic in ("rmq_sys_wheel_timer", "rmq_sys_REVIVE_LOG_c", "rmq_sys_AEROBEE_new", "SCHEDULE_TOPIC_XXXX"):
        assert code(name_refusal(topic)) == ResponseCode.NO_PERMISSION, topic
    assert code(topic_refusal(TopicConfig("t", 4, 4, 4), 0)) == ResponseCode.NO_PERMISSION
    assert code(topic_refusal(TopicConfig("t", 4, 0), -1)) == ResponseCode.INVALID_PARAMETER
    assert topic_refusal(TopicConfig("t", 4, 0), 3) is None
    compacted = TopicConfig("t", attributes={"cleanup.policy": "COMPACTION"})
    assert code(key_refusal(compacted, " ")) == ResponseCode.MESSAGE_ILLEGAL
    assert key_refusal(compacted, "k") is None
    assert key_refusal(TopicConfig("t"), "") is None
    assert batch_refusal("t", BATCH_COUNT_MAX, 1) is None
    for topic, count in (("t", 0), ("t", BATCH_COUNT_MAX + 1), ("%RETRY%g", 1)):
        assert code(batch_refusal(topic, count, 1)) == ResponseCode.MESSAGE_ILLEGAL
