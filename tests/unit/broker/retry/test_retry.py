"""Retries: 16 at growing delays, then one dead letter; nothing of the message is lost on the way."""

import dataclasses

import pytest

from aerobee.broker.delay.levels import DelayLevels, time_up
from aerobee.broker.delay.schedule import DelayedUnit, DelaySchedule
from aerobee.broker.retry.rules import SendBackRequest, retry_send_is_dead, send_back
from aerobee.hot.log.javahash import tags_code
from aerobee.hot.log.properties import decode_properties, encode_properties
from aerobee.hot.log.record import Draft, Record

HOST = b"\x7f\x00\x00\x01\x00\x00\x2a\x9f"
OTHER_HOST = b"\x0a\x00\x00\x02\x00\x00\x2a\x9f"
LEVELS = DelayLevels.parse()
ASKED = SendBackRequest(
    group="billing",
    delay_level=0,
    max_reconsume_times=None,
    unit_mode=False,
    client_version=500,
    retry_max_times=16,
    retry_queue_nums=1,
)


def original(properties: dict[str, str] | None = None, reconsume_times: int = 0) -> Record:
    block = encode_properties({"TAGS": "PAID", "KEYS": "42", "UNIQ_KEY": "U1"} if properties is None else properties)
    return Record(200, 0, 3, 7, 11, 4096, 0, 111, HOST, 222, HOST, reconsume_times, 0, b"body", b"orders", block)


def stored(draft: Draft, physical: int, now_ms: int) -> Record:
    return Record(
        size=100,
        body_crc=0,
        queue_id=draft.queue_id,
        flag=draft.flag,
        queue_offset=0,
        physical_offset=physical,
        sys_flag=draft.sys_flag,
        born_timestamp=draft.born_timestamp,
        born_host=draft.born_host,
        store_timestamp=now_ms,
        store_host=draft.store_host,
        reconsume_times=draft.reconsume_times,
        prepared_transaction_offset=0,
        body=draft.body,
        topic=draft.topic,
        properties=draft.properties,
    )


def test_a_consumer_that_always_fails_gets_16_retries_at_the_right_delays_then_a_dead_letter() -> None:
    schedule = DelaySchedule(LEVELS)
    offsets = dict.fromkeys(range(1, 19), 0)
    now = 1_700_000_000_000
    record = original()
    waits: list[int] = []
    for round_ in range(17):
        plan = send_back(record, f"MSG{round_}", ASKED, LEVELS, store_host=OTHER_HOST, random_queue=5)
        assert plan is not None
        if plan.dead_letter:
            break
        assert plan.draft.topic == b"SCHEDULE_TOPIC_XXXX"
        level = plan.draft.queue_id + 1
        put_away = stored(plan.draft, round_ * 1000, now)
        unit = DelayedUnit(offsets[level], round_ * 1000, 100, LEVELS.deliver_ms(level, now))
        early = schedule.plan(level, [unit], now)
        assert early.deliver == ()
        waits.append(early.wait_ms // 1000)
        now += early.wait_ms
        assert schedule.plan(level, [unit], now).deliver == (unit,)
        draft = time_up(put_away)
        assert draft is not None
        assert draft.topic == b"%RETRY%billing"
        schedule.delivered(level, offsets[level], 0)
        offsets[level] += 1
        record = stored(draft, round_ * 1000 + 500, now)
    assert waits == [10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1200, 1800, 3600, 7200]
    assert plan.dead_letter
    assert (plan.topic, plan.queue_nums, plan.draft.topic, plan.draft.queue_id) == (
        "%DLQ%billing", 1, b"%DLQ%billing", 0,
    )  # fmt: skip
    assert plan.draft.reconsume_times == 17
    assert (plan.draft.body, plan.draft.flag, plan.draft.born_timestamp) == (b"body", 7, 111)
    kept = decode_properties(plan.draft.properties)
    assert kept["RETRY_TOPIC"] == "orders", "the topic it came from, not the retry topic"
    assert kept["ORIGIN_MESSAGE_ID"] == "MSG0", "the first message's id, not the last copy's"
    assert (kept["TAGS"], kept["KEYS"], kept["UNIQ_KEY"], kept["DELAY"]) == ("PAID", "42", "U1", "0")
    assert plan.draft.tags_code == tags_code("PAID")


def test_the_first_retry() -> None:
    asked = dataclasses.replace(ASKED, retry_queue_nums=3, unit_mode=True)
    plan = send_back(original(), "ID", asked, LEVELS, store_host=OTHER_HOST, random_queue=8)
    assert plan is not None
    assert (plan.topic, plan.queue_nums, plan.topic_sys_flag, plan.back_topic) == (
        "%RETRY%billing",
        3,
        2,
        "orders",
    )
    assert (plan.draft.topic, plan.draft.queue_id) == (b"SCHEDULE_TOPIC_XXXX", 2)
    assert (plan.draft.reconsume_times, plan.draft.store_host, plan.draft.born_host) == (1, OTHER_HOST, HOST)
    kept = decode_properties(plan.draft.properties)
    assert (kept["REAL_TOPIC"], kept["REAL_QID"], kept["DELAY"], kept["WAIT"]) == (
        "%RETRY%billing", "2", "3", "false",
    )  # fmt: skip


def test_a_level_of_the_consumers_own_choice() -> None:
    asked = dataclasses.replace(ASKED, delay_level=1)
    plan = send_back(original(), "ID", asked, LEVELS, store_host=HOST, random_queue=0)
    assert plan is not None and plan.draft.queue_id == 0
    dead = dataclasses.replace(ASKED, delay_level=-1)
    plan = send_back(original(), "ID", dead, LEVELS, store_host=HOST, random_queue=0)
    assert plan is not None and plan.dead_letter and plan.draft.topic == b"%DLQ%billing"


def test_the_limit_is_the_clients_own_from_version_3_4_9_on() -> None:
    asked = dataclasses.replace(ASKED, max_reconsume_times=2)
    for times, dead in ((1, False), (2, True)):
        plan = send_back(original(None, times), "ID", asked, LEVELS, store_host=HOST, random_queue=0)
        assert plan is not None and plan.dead_letter is dead
    old = dataclasses.replace(asked, client_version=100)
    plan = send_back(original(None, 2), "ID", old, LEVELS, store_host=HOST, random_queue=0)
    assert plan is not None and not plan.dead_letter


def test_a_group_without_retry_queues_keeps_nothing() -> None:
    asked = dataclasses.replace(ASKED, retry_queue_nums=0)
    assert send_back(original(), "ID", asked, LEVELS, store_host=HOST, random_queue=0) is None


def test_a_bare_message_without_properties() -> None:
    plan = send_back(original({}), "ID", ASKED, LEVELS, store_host=HOST, random_queue=0)
    assert plan is not None
    assert (plan.draft.tags_code, plan.draft.keys, plan.draft.uniq_key) == (0, "", "")


@pytest.mark.parametrize(
    ("topic", "times", "own", "version", "ordered", "dead"),
    [
        ("orders", 99, None, 500, True, False),
        ("%RETRY%g", None, None, 500, False, False),
        ("%RETRY%g", 16, None, 500, False, False),
        ("%RETRY%g", 17, None, 500, False, True),
        ("%RETRY%g", 4, 3, 500, False, True),
        ("%RETRY%g", 4, 3, 100, False, False),
        ("%RETRY%g", 0, None, 500, True, True),
    ],
)
def test_a_send_to_a_retry_topic(
    topic: str, times: int | None, own: int | None, version: int, ordered: bool, dead: bool
) -> None:
    assert retry_send_is_dead(topic, times, own, version, 16, ordered=ordered) is dead
