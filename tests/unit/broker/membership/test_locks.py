"""Queue locks: exclusive within a group, renewed by asking again, free 60 s after the last renewal."""

from aerobee.broker.membership.locks import GroupLocks

A, B, C = ("orders", "broker-a", 0), ("orders", "broker-a", 1), ("orders", "broker-a", 2)


def test_a_queue_has_one_holder_in_its_group() -> None:
    locks: GroupLocks[tuple[str, str, int]] = GroupLocks()
    assert locks.lock("g", [A, B], "one", 0.0) == [A, B]
    assert locks.lock("g", [B, C], "two", 1.0) == [C]
    assert locks.lock("other", [A, B], "two", 1.0) == [A, B]
    assert locks.holder("g", B, 1.0) == "one"


def test_asking_again_renews() -> None:
    locks: GroupLocks[tuple[str, str, int]] = GroupLocks()
    locks.lock("g", [A], "one", 0.0)
    assert locks.lock("g", [A], "one", 50.0) == [A]
    assert locks.lock("g", [A], "two", 105.0) == []
    assert locks.holder("g", A, 110.0) == "one"


def test_a_lock_expires_after_60_s_and_not_at_60_s() -> None:
    locks: GroupLocks[tuple[str, str, int]] = GroupLocks()
    locks.lock("g", [A], "one", 0.0)
    assert locks.lock("g", [A], "two", 60.0) == []
    assert locks.lock("g", [A], "two", 60.001) == [A]
    assert locks.lock("g", [A], "one", 61.0) == [], "the old holder lost it"


def test_unlock_frees_only_what_the_client_holds() -> None:
    locks: GroupLocks[tuple[str, str, int]] = GroupLocks()
    locks.lock("g", [A, B], "one", 0.0)
    locks.lock("g", [C], "two", 0.0)
    assert locks.unlock("g", [A, C], "one") == [A]
    assert locks.lock("g", [A, B, C], "two", 1.0) == [A, C]
    assert locks.unlock("nobody", [A], "one") == []


def test_an_ordered_group_is_known_by_a_living_lock() -> None:
    locks: GroupLocks[tuple[str, str, int]] = GroupLocks()
    assert locks.all_expired("g", 0.0)
    locks.lock("g", [A], "one", 0.0)
    assert not locks.all_expired("g", 60.0)
    assert locks.all_expired("g", 60.5)


def test_expired_locks_are_forgotten_and_a_queue_twice_in_a_request_counts_once() -> None:
    locks: GroupLocks[tuple[str, str, int]] = GroupLocks()
    assert locks.lock("g", [A, A], "one", 0.0) == [A]
    locks.lock("h", [A], "one", 50.0)
    assert locks.expire(70.0) == 1
    assert locks.holder("h", A, 70.0) == "one"
    locks.remove_group("h")
    assert locks.holder("h", A, 70.0) is None


def test_a_lease_is_shorter_than_the_usual_life_and_is_renewed_as_asked() -> None:
    locks: GroupLocks[tuple[str, str, int]] = GroupLocks()
    locks.lock("g", [A], "one", 0.0, lease_s=6.0)
    locks.lock("g", [B], "java", 0.0)
    assert locks.lock("g", [A, B], "two", 6.0) == []
    assert locks.lock("g", [A, B], "two", 6.001, lease_s=6.0) == [A]
    assert locks.lock("g", [A], "two", 7.0) == [A], "a request without a lease locks for the usual life"
    assert locks.lock("g", [A], "one", 66.0) == []
    assert locks.lock("g", [A], "one", 67.001) == [A]


def test_a_lease_has_bounds() -> None:
    locks: GroupLocks[tuple[str, str, int]] = GroupLocks()
    locks.lock("g", [A], "one", 0.0, lease_s=-5.0)
    locks.lock("g", [B], "one", 0.0, lease_s=1e9)
    assert locks.lock("g", [A, B], "two", 0.9) == []
    assert locks.lock("g", [A, B], "two", 1.1) == [A]
    assert locks.lock("g", [B], "two", 60.1) == [B]


def test_time_that_passed_for_a_test_keeps_the_leases_of_living_clients() -> None:
    locks: GroupLocks[tuple[str, str, int]] = GroupLocks()
    locks.lock("g", [A], "one", 0.0, lease_s=6.0)
    locks.renew({"one"}, 5.0, 7200.0)
    assert locks.holder("g", A, 7206.0) == "one"
    assert locks.holder("g", A, 7206.1) is None
