"""The pytest plug-in that `pip install aerobee` registers. The names of its fixtures begin with `aerobee_`.

    def test_orders(aerobee_cluster):
        aerobee_cluster.create_topic("orders")
        ...  # clients connect to aerobee_cluster.namesrv

One cluster serves the whole session. `aerobee_fresh_cluster` belongs to one test, which may kill its brokers, pause
them and advance their time. Nothing is imported or started before a test asks for it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from aerobee.testing.cluster import LocalCluster


@pytest.fixture(scope="session")
def aerobee_cluster() -> Iterator[LocalCluster]:
    """Return a name server and one broker, shared by the session: give each test topics of its own."""
    from aerobee.testing.cluster import LocalCluster

    with LocalCluster() as cluster:
        yield cluster


@pytest.fixture
def aerobee_fresh_cluster() -> Iterator[LocalCluster]:
    """Return two broker groups for this test alone."""
    from aerobee.testing.cluster import LocalCluster

    with LocalCluster(brokers=2) as cluster:
        yield cluster
