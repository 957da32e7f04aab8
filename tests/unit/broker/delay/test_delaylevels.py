"""Delay levels: parsed, put away, taken out."""

import pytest

from aerobee.broker.delay.levels import (
    DelayLevels,
    delay_level,
    put_away,
    queue_of_level,
    time_up,
)
from aerobee.errors import ConfigError, InvalidArgumentError
from aerobee.hot.log.javahash import tags_code
from aerobee.hot.log.properties import decode_properties, encode_properties
from aerobee.hot.log.record import Record

HOST = b"\x7f\x00\x00\x01\x00\x00\x2a\x9f"


def record(properties: dict[str, str], body: bytes = b"hi", sys_flag: int = 0) -> Record:
    block = encode_properties(properties)
    return Record(200, 0, 2, 5, 7, 4096, sys_flag, 111, HOST, 222, HOST, 3, 0, body, b"SCHEDULE_TOPIC_XXXX", block)


def test_the_default_is_rocketmqs_18_levels() -> None:
    levels = DelayLevels.parse()
    seconds = [1, 5, 10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1200, 1800, 3600, 7200]
    assert levels.delays_ms == tuple(s * 1000 for s in seconds)
    assert levels.max_level == 18
    assert levels.deliver_ms(3, 1_000_000) == 1_010_000
    assert levels.delay_ms(19) == 1000


def test_own_levels_and_every_problem_at_once() -> None:
    assert DelayLevels.parse("2d  1s").delays_ms == (172_800_000, 1000)
    with pytest.raises(ConfigError) as caught:
        DelayLevels.parse("1s 5x ten 3m")
    assert len(caught.value.problems) == 2
    with pytest.raises(ConfigError, match="names no level"):
        DelayLevels.parse("  ")


def test_a_delayed_message_is_put_away_and_comes_out_as_it_was() -> None:
    levels = DelayLevels.parse()
    properties = {"TAGS": "PAID", "KEYS": "42", "UNIQ_KEY": "U1", "DELAY": "3", "user": "x"}
    assert put_away("orders", 2, properties, levels) == ("SCHEDULE_TOPIC_XXXX", 2)
    assert (properties["REAL_TOPIC"], properties["REAL_QID"]) == ("orders", "2")
    draft = time_up(record(properties), mark=-9)
    assert draft is not None
    assert (draft.topic, draft.queue_id, draft.body, draft.flag) == (b"orders", 2, b"hi", 5)
    assert (draft.born_timestamp, draft.reconsume_times, draft.prepared_transaction_offset) == (111, 3, -9)
    assert (draft.tags_code, draft.keys, draft.uniq_key) == (tags_code("PAID"), "42", "U1")
    assert decode_properties(draft.properties) == properties, "stored as Apache stores it, DELAY included"


def test_a_level_beyond_the_last_is_the_last_and_a_level_wins_over_a_timer() -> None:
    properties = {"DELAY": "99", "TIMER_DELAY_SEC": "5", "TIMER_DELIVER_MS": "1"}
    assert put_away("t", 0, properties, DelayLevels.parse()) == ("SCHEDULE_TOPIC_XXXX", 17)
    assert properties["DELAY"] == "18"
    assert "TIMER_DELAY_SEC" not in properties and "TIMER_DELIVER_MS" not in properties


@pytest.mark.parametrize("text", [None, "0", "-1", "x", ""])
def test_no_level_no_delay(text: str | None) -> None:
    properties = {} if text is None else {"DELAY": text}
    before = dict(properties)
    assert put_away("t", 4, properties, DelayLevels.parse()) == ("t", 4)
    assert properties == before
    assert delay_level(properties) <= 0


@pytest.mark.parametrize(
    "properties",
    [
        {},
        {"REAL_TOPIC": "t"},
        {"REAL_TOPIC": "a/b", "REAL_QID": "0"},
        {"REAL_TOPIC": "t", "REAL_QID": "\uff11\uff12"},
        {"REAL_TOPIC": "t", "REAL_QID": "1" * 5000},
        {"REAL_TOPIC": "t", "REAL_QID": "x"},
        {"REAL_TOPIC": "t", "REAL_QID": "-1"},
        {"REAL_TOPIC": "RMQ_SYS_TRANS_HALF_TOPIC", "REAL_QID": "0"},
        {"REAL_TOPIC": "SCHEDULE_TOPIC_XXXX", "REAL_QID": "0"},
    ],
)
def test_a_record_that_can_go_nowhere_is_said_to_be_so(properties: dict[str, str]) -> None:
    with pytest.raises(InvalidArgumentError):
        time_up(record(properties))


def test_the_checksum_of_the_old_record_does_not_travel() -> None:
    draft = time_up(record({"REAL_TOPIC": "t", "REAL_QID": "0", "__CRC32#": "1234567890"}))
    assert draft is not None
    assert b"__CRC32#" not in draft.properties


def test_queues_and_levels() -> None:
    assert (queue_of_level(1), queue_of_level(18)) == (0, 17)
