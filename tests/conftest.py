"""What every test may count on, however the suite was started."""

from __future__ import annotations

import itertools
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import hypothesis
import pytest

if TYPE_CHECKING:
    from aerobee.testing.certificates import Certificate
    from aerobee.testing.cluster import LocalCluster

# A suite started in the background inherits an ignored SIGINT, and so would the commands that tests interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


# The same examples every time: what lands is judged by what it changes. `make properties` draws new ones.
# Nor may it depend on what else the machine does: hypothesis measures examples and their making by the clock.
_UNTIMED = hypothesis.settings(deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow])
hypothesis.settings.register_profile("steady", _UNTIMED, derandomize=True)
hypothesis.settings.register_profile("fuzz", _UNTIMED)
hypothesis.settings.load_profile("fuzz" if os.environ.get("AEROBEE_FUZZ") else "steady")

# Real sockets, processes and clocks share a machine with others: one of their tests that fails gets a second try, and
# the run says so ("rerun"). Everything on virtual time gets none.
_REAL_TIME = ("e2e", "spark", "unit/admin", "unit/app", "unit/client", "unit/net")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    tests = Path(__file__).parent
    for item in items:
        if item.path.relative_to(tests).as_posix().startswith(_REAL_TIME):
            item.add_marker(pytest.mark.flaky(reruns=1))


_numbers = itertools.count()


@pytest.fixture(scope="module")
def cluster(request: pytest.FixtureRequest) -> Iterator[LocalCluster]:
    """One for the tests of a module: with one broker, or as many as its BROKERS says."""
    from aerobee.testing.cluster import LocalCluster

    with LocalCluster(brokers=getattr(request.module, "BROKERS", 1)) as running:
        yield running


@pytest.fixture
def topic(cluster: LocalCluster) -> str:
    """A new one on the module's cluster, two queues a broker."""
    name = f"topic-{next(_numbers)}"
    cluster.create_topic(name, queues=2)
    return name


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    """A server's own, which verifies nobody but itself; without openssl the test is skipped."""
    from aerobee.testing.certificates import make_certificate, unavailable

    reason = unavailable()
    if reason:
        pytest.skip(reason)
    return make_certificate(tmp_path_factory.mktemp("certificate"))
