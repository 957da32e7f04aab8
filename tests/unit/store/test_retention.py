from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from aerobee.store.config import StoreConfig
from aerobee.store.retention import (
    AcceptWrites,
    DeleteSegment,
    DiskFacts,
    Effect,
    Reason,
    RefuseWrites,
    Retention,
    SegmentFacts,
)

HOUR_MS = 3_600_000
NOW = 1_700_000_000_000
CONFIG = StoreConfig()


def segments(*ages_hours: float) -> list[SegmentFacts]:
    return [
        SegmentFacts(number * 1000, (number + 1) * 1000, NOW - int(age * HOUR_MS))
        for number, age in enumerate(ages_hours)
    ]


def facts(*ages_hours: float, used: float = 0.5, hour: int = 12, at_s: float = 0.0) -> DiskFacts:
    return DiskFacts(at_s, NOW, hour, used, segments(*ages_hours))


def run(machine: Retention, start: DiskFacts, until_s: float) -> list[tuple[float, Effect]]:
    """Perform every deletion at once, until the time is over."""
    done: list[tuple[float, Effect]] = []
    now = start
    while now.monotonic_s <= until_s:
        left = list(now.segments)
        for effect in machine.step(now):
            done.append((round(now.monotonic_s, 3), effect))
            if isinstance(effect, DeleteSegment):
                assert effect.segment == left.pop(0)
        assert machine.next_s > now.monotonic_s
        now = replace(now, monotonic_s=machine.next_s, segments=left)
    return done


def test_expired_segments_stay_until_their_hour() -> None:
    assert Retention(CONFIG).step(facts(100, 90, 1)) == []
    first = segments(100)[0]
    assert Retention(CONFIG).step(facts(100, 90, 1, hour=4)) == [DeleteSegment(first, Reason.EXPIRED)]


def test_only_expired_ones_go_and_never_past_one_that_is_not() -> None:
    done = run(Retention(CONFIG), facts(100, 72, 71.99, 100, 0, hour=4), 30)
    assert [effect.segment.start_offset for _, effect in done if isinstance(effect, DeleteSegment)] == [
        0,
        1000,
    ]


def test_the_active_segment_never_goes() -> None:
    done = run(Retention(CONFIG), facts(1000, hour=4, used=0.99), 60)
    assert [effect for _, effect in done] == [RefuseWrites(0.99)]
    done = run(Retention(CONFIG), facts(1000, 1000, 1000, hour=4), 60)
    assert len(done) == 2


def test_above_75_percent_any_hour_will_do() -> None:
    assert Retention(CONFIG).step(facts(100, 1, used=0.75)) == []
    assert len(Retention(CONFIG).step(facts(100, 1, used=0.76))) == 1


def test_above_85_percent_the_oldest_goes_though_not_expired() -> None:
    assert Retention(CONFIG).step(facts(3, 1, used=0.85)) == []
    oldest = segments(3)[0]
    assert Retention(CONFIG).step(facts(3, 1, used=0.86)) == [DeleteSegment(oldest, Reason.DISK_FULL, 0.86)]
    gentle = Retention(StoreConfig(clean_file_forcibly_enable=False))
    assert gentle.step(facts(3, 1, used=0.86)) == []


def test_a_round_deletes_ten_one_each_100_ms_then_waits() -> None:
    done = run(Retention(CONFIG), facts(*[100] * 30, hour=4), 12)
    times = [at for at, _ in done]
    assert times[:10] == [round(0.1 * i, 3) for i in range(10)]
    assert times[10] == 10.0
    assert len(times) == 20


def test_refuses_above_90_and_accepts_again_at_85() -> None:
    machine = Retention(CONFIG)
    assert machine.step(facts(1, used=0.91)) == [RefuseWrites(0.91)]
    assert machine.refusing
    assert machine.next_s <= 1.0
    assert machine.step(facts(1, used=0.95, at_s=1)) == []
    assert machine.step(facts(1, used=0.86, at_s=2)) == []
    assert machine.step(facts(1, used=0.85, at_s=3)) == [AcceptWrites(0.85)]
    assert not machine.refusing


def test_no_space_is_believed_whatever_the_ratio() -> None:
    machine = Retention(CONFIG)
    machine.step(facts(1, used=0.5))
    assert machine.disk_full(0.5) == [RefuseWrites(0.5)]
    assert machine.disk_full(0.5) == []
    assert machine.step(facts(1, used=0.5, at_s=0.5)) == [AcceptWrites(0.5)]


def test_the_disk_is_watched_between_two_deletions() -> None:
    machine = Retention(CONFIG)
    assert machine.step(facts(100, 100, 1, hour=4)) == [DeleteSegment(segments(100)[0], Reason.EXPIRED)]
    effects = machine.step(replace(facts(100, 1, hour=4, used=0.93), monotonic_s=0.1))
    assert RefuseWrites(0.93) in effects


def test_by_hand_at_any_hour() -> None:
    machine = Retention(CONFIG)
    assert machine.step(facts(100, 100, 1)) == []
    machine.delete_by_hand()
    assert len(run(machine, facts(100, 100, 1, at_s=1), 5)) == 2


def test_what_is_not_archived_stays_even_on_a_full_disk() -> None:
    machine = Retention(CONFIG)
    full = replace(facts(100, 100, 100, 1, used=0.95), archived_offset=1999)
    done = run(machine, full, 60)
    assert [type(effect) for _, effect in done] == [RefuseWrites, DeleteSegment]


def test_settings_change_at_run_time() -> None:
    machine = Retention(CONFIG)
    assert machine.step(facts(50, 1, hour=4)) == []
    machine.reconfigure(StoreConfig(file_reserved_time_hours=48))
    assert len(machine.step(facts(50, 1, hour=4, at_s=10))) == 1


@given(
    st.lists(st.floats(0, 200), min_size=1, max_size=8),
    st.floats(0, 1),
    st.integers(0, 23),
    st.one_of(st.none(), st.integers(0, 9000)),
    st.booleans(),
)
def test_safety_of_every_deletion(
    ages: list[float], used: float, hour: int, archived: int | None, by_hand: bool
) -> None:
    machine = Retention(CONFIG)
    if by_hand:
        machine.delete_by_hand()
    start = replace(facts(*ages, used=used, hour=hour), archived_offset=archived)
    for _, effect in run(machine, start, 25):
        if isinstance(effect, DeleteSegment):
            assert effect.segment != start.segments[-1]
            assert archived is None or effect.segment.end_offset <= archived
            expired = NOW - effect.segment.last_store_timestamp >= 72 * HOUR_MS
            assert expired or used > 0.85


def test_a_log_that_is_too_large_loses_its_oldest_segments_at_any_hour() -> None:
    config = replace(CONFIG, log_max_bytes=2500)
    done = run(Retention(config), facts(5, 4, 3, 2, 1), 30)
    assert [effect for _, effect in done] == [
        DeleteSegment(one, Reason.LOG_LARGE) for one in segments(5, 4, 3, 2, 1)[:3]
    ]
    assert run(Retention(config), facts(3, 2), 30) == []
    assert run(Retention(replace(CONFIG, log_max_bytes=1)), facts(3), 30) == [], "the last segment stays"


def test_what_is_not_archived_stays_however_large_the_log_is() -> None:
    start = replace(facts(5, 4, 3), archived_offset=1000)
    done = run(Retention(replace(CONFIG, log_max_bytes=1)), start, 30)
    assert [effect.segment.start_offset for _, effect in done if isinstance(effect, DeleteSegment)] == [0]
