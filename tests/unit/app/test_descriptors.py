"""The shares of a process's open files."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from aerobee.app.descriptors import shares


def test_shares_of_usual_limits() -> None:
    assert (shares(None).connections, shares(None).queue_files) == (10_000, 512)
    assert shares(256, 40).connections == 126
    assert shares(1024, 40).connections == 750
    assert shares(1_048_576, 3000).connections == 10_000
    assert shares(256, with_store=False).connections == 224


def test_a_log_of_many_segments_leaves_fewer_connections() -> None:
    assert shares(4096, 40).connections - shares(4096, 2040).connections == 2500


@given(st.integers(0, 2_000_000), st.integers(0, 100_000))
def test_all_shares_together_never_exceed_the_limit_but_for_a_least_number(limit: int, in_use: int) -> None:
    share = shares(limit, in_use)
    assert 16 <= share.connections <= 10_000
    assert 4 <= share.queues_at_once <= share.queue_files <= 512
    if share.connections > 16:
        assert in_use + share.connections + share.queue_files + 2 * share.queues_at_once <= limit
