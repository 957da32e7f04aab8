"""What pages make of records and files: timed messages, journals of sinks, audit logs, checkpoints."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

from aerobee.admin.members import MemberState
from aerobee.admin.sinkbatches import newest_batches
from aerobee.admin.waiting import TimedFilter, delay_ms, due_of, offsets_in
from aerobee.dashboard.auditlogs import END_MAX, EVENTS_MAX, event_of, server_events
from aerobee.dashboard.pages.members import differing_subscriptions
from aerobee.dashboard.pages.messages import message_link
from aerobee.model.message import Message
from pyspark_rocketmq.jobs.checkpoints import queries_of

NOW = 1_700_000_000_000


def timed(key: str, **told: str) -> Message:
    made = Message("rmq_sys_wheel_timer", b"", broker="broker-a", store_timestamp=NOW - 1000)
    return replace(made, system_properties={"UNIQ_KEY": key, "REAL_TOPIC": "orders", **told})


def test_the_time_of_a_timed_message_is_what_it_asks_for() -> None:
    assert due_of(timed("a", TIMER_DELIVER_MS=str(NOW + 5), TIMER_OUT_MS="7")) == NOW + 5
    assert due_of(timed("a", TIMER_DELAY_SEC="10")) == NOW + 9_000
    assert due_of(timed("a", TIMER_DELAY_MS="10", TIMER_ENQUEUE_MS=str(NOW - 50))) == NOW - 40
    assert due_of(timed("a", TIMER_OUT_MS=str(NOW + 1))) == NOW + 1
    assert due_of(timed("a", TIMER_DELIVER_MS="soon")) == 0


def test_recalled_delivered_and_older_copies_do_not_wait() -> None:
    wanted = TimedFilter(NOW)
    later = {"TIMER_DELIVER_MS": str(NOW + 1000)}
    newest_first = [
        timed("recall", TIMER_DEL_UNIQKEY="gone", **later),
        timed("recall2", TIMER_DEL_UNIQKEY="orders_gone2", **later),
        timed("rolled", TIMER_ROLL_TIMES="1", **later),
        timed("gone", **later),
        timed("gone2", **later),
        timed("rolled", **later),
        timed("done", TIMER_DELIVER_MS=str(NOW - 1)),
        timed("waits", **later),
    ]
    waiting = [one for one in newest_first if wanted.matches(one)]
    assert [one.system_properties["UNIQ_KEY"] for one in waiting] == ["rolled", "waits"]
    assert "TIMER_ROLL_TIMES" in waiting[0].system_properties


def test_delays_and_ends_that_make_no_sense_are_nothing() -> None:
    assert [delay_ms(word) for word in ("10s", "2h", "1d", "", "h", "-1s", "9" * 40 + "s")] == [
        10_000, 7_200_000, 86_400_000, 0, 0, 0, 0,
    ]  # fmt: skip
    assert offsets_in(b"1,2,,x,-3, 4 ,\xff") == {1, 2, 4}


def test_a_message_whose_id_fits_no_path_has_a_page() -> None:
    """Senders choose unique ids."""
    for text, fits in (("7F0000010000", True), ("a.b-c_1", True), ("../x", False), ("a/b", False), ("..", False)):
        link = message_link(replace(timed(text), topic="orders", message_id=text, offset_id="0A00"))
        assert (link.text, link.path) == (text, f"/messages/orders/{text if fits else '0A00'}")


def member(client_id: str, **subscriptions: str) -> MemberState:
    return MemberState(client_id, "10.0.0.1:1", "JAVA", "V5_5_0", (), {}, None, None, subscriptions)


def test_members_that_subscribe_differently_are_named() -> None:
    alike = [member("a", orders="*", payments="PAID"), member("b", orders="*", payments="PAID")]
    assert differing_subscriptions(alike) == []
    # One that does not tell is not one that has none.
    assert differing_subscriptions([*alike, member("old")]) == []
    first, second = differing_subscriptions([*alike, member("c", orders="NEW")])
    assert first == ("Members subscribe to orders differently, so messages are missed. with *: a, b; with NEW: c.")
    assert second.endswith("not at all: c; with PAID: a, b.")


def entry(at_ms: int, **said: object) -> Message:
    made = Message("rmq_sys_AEROBEE_BATCH", b"", broker="broker-a", store_timestamp=at_ms)
    return replace(made, system_properties={"__AEROBEE_BATCH": json.dumps(said)})


def test_the_newest_word_on_the_newest_batch_counts() -> None:
    newest_first = [
        entry(9, k="done", x=1),
        entry(8, k="rows", q="B", b=4, n=5, t="U"),
        entry(7, k="commit", q="A", b=2, e=3),
        entry(6, k="prepare", q="A", b=2, e=3),
        entry(5, k="rows", q="A", b=2, n=10, t="T"),
        entry(4, k="rows", q="A", b=2, n=20, t="U"),
        entry(3, k="abort", q="A", b=1),
        entry(2, k="rows", q="A", b=1, n=1000, t="T"),
        entry(1, k="begin", q="A", e=3),
    ]
    first, second = newest_batches(newest_first)
    assert (first.query, first.batch, first.phase, first.rows, first.topics) == ("A", 2, "committed", 30, ("T", "U"))
    assert (first.first_ms, first.last_ms, first.epoch) == (4, 7, 3)
    assert (second.query, second.phase, second.rows) == ("B", "open", 5)


def test_a_journal_of_nonsense_makes_no_batch() -> None:
    wrong = [
        replace(entry(1), system_properties={"__AEROBEE_BATCH": text}) for text in ("", "{", "[]", "1", '{"q":"A"}')
    ]
    assert newest_batches(wrong) == ()


def test_only_the_end_of_an_audit_log_is_read(tmp_path: Path) -> None:
    log = tmp_path / "audit.log"
    line = json.dumps({"time": 1, "event": "login", "user": "a" * 400}) + "\n"
    log.write_text(line * (END_MAX // len(line) + 100) + json.dumps({"time": 2, "event": "newest"}) + "\n")
    events, problems = server_events([str(log), str(tmp_path)])
    assert (len(events), events[0].event) == (EVENTS_MAX, "newest")
    assert len(problems) == 1
    assert "cannot be read" in problems[0]


def test_lines_that_are_no_events_are_none() -> None:
    for line in (b"", b"x", b"[]", b"1", b'{"a": 1}', b"\xff", b"[" * 100_000):
        assert event_of(line, "log") is None
    odd = event_of(b'{"event": 1, "time": "x", "actions": 3, "user": null, "code": {"a": 1}}', "log")
    assert odd is not None
    assert (odd.event, odd.time_ms, odd.actions, odd.user) == ("1", 0, "3", "")


def batch(checkpoint: Path, number: int, places: dict[str, int], done_s: int | None) -> None:
    for name in ("offsets", "commits"):
        (checkpoint / name).mkdir(parents=True, exist_ok=True)
    told = {"v": 1, "offsets": {"orders": {"broker-a": places}}}
    (checkpoint / "offsets" / str(number)).write_text(f"v1\n{{}}\n{json.dumps(told)}\n-\n")
    if done_s is not None:
        (checkpoint / "commits" / str(number)).write_text("v1\n{}")
        os.utime(checkpoint / "commits" / str(number), (1_000 + done_s, 1_000 + done_s))


def test_rows_and_rates_come_from_offsets(tmp_path: Path) -> None:
    checkpoint = tmp_path / "state" / "start" / "checkpoints" / "totals"
    for number in range(20):
        batch(checkpoint, number, {"0": 100 * number, "1": 7}, number)
    batch(checkpoint, 20, {"0": 5_000, "1": 7}, None)
    (one,), problems = queries_of(str(tmp_path))
    assert not problems
    assert (one.query, one.batch, one.running, one.rows, one.rows_s) == ("totals", 19, 20, 100, 100.0)
    ends = {("orders", "broker-a", 0): 2_000, ("orders", "broker-a", 1): 7}
    assert one.behind(ends) == 100
    assert one.behind({("orders", "broker-a", 0): 2_000}) is None
    # A queue that is new has not been read at all.
    assert one.behind({**ends, ("orders", "broker-b", 0): 3}) == 103


def test_checkpoints_that_are_young_or_torn_are_told(tmp_path: Path) -> None:
    assert queries_of(str(tmp_path / "none")) == ([], [f"there is no directory {tmp_path / 'none'}"])
    assert queries_of(str(tmp_path)) == ([], [])
    batch(tmp_path / "young", 0, {"0": 3}, None)
    batch(tmp_path / "torn", 0, {"0": 1}, 1)
    (tmp_path / "torn" / "offsets" / "0").write_text('v1\n{}\n{"offsets": {"orders": 3}}')
    (tmp_path / "other" / "offsets").mkdir(parents=True)
    (tmp_path / "other" / "offsets" / "0").write_text('v1\n{}\n{"topic": {"0": 4}}')
    found, problems = queries_of(str(tmp_path))
    assert [(one.query, one.batch, one.running, one.rows) for one in found] == [
        ("other", -1, 0, None), ("young", -1, 0, None),
    ]  # fmt: skip
    assert len(problems) == 1
    assert "torn cannot be read" in problems[0]
