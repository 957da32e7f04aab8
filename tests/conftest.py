"""Fixtures and settings of every test: examples, second tries, a cluster and its topics."""

from __future__ import annotations

import itertools
import os
import signal
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import hypothesis
import pytest

if TYPE_CHECKING:
    from aerobee.testing.certificates import Certificate
    from aerobee.testing.cluster import LocalCluster

# A suite that is started in the background or by nohup inherits ignored signals. It must not hand them on to the
# commands that tests interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)

# Every run uses the same examples, so that a change is judged by what it changes. `make properties` draws new ones.
# Hypothesis does not measure time, because other work on the machine would make its examples fail.
_UNTIMED = hypothesis.settings(deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow])
hypothesis.settings.register_profile("steady", _UNTIMED, derandomize=True)
hypothesis.settings.register_profile("fuzz", _UNTIMED)
hypothesis.settings.load_profile("fuzz" if os.environ.get("AEROBEE_FUZZ") else "steady")

# These tests use real processes and real time on a machine that they share. A test that fails gets a second try, and
# the run ends with a table of all second tries. Other tests, among them everything under tests/unit, get none.
_REAL_TIME = ("e2e", "spark", "browser")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    tests = Path(__file__).parent
    for item in items:
        if item.path.relative_to(tests).as_posix().startswith(_REAL_TIME):
            item.add_marker(pytest.mark.flaky(reruns=1))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Escape what UTF-8 cannot carry in what a test printed or logged: workers send their reports as UTF-8."""
    report = yield
    report.sections = [(name, text.encode(errors="backslashreplace").decode()) for name, text in report.sections]
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print each test that needed a second try, the number of its tries and the first line of its last failure."""
    failures: dict[str, list[str]] = {}
    for report in terminalreporter.stats.get("rerun", ()):
        crash = getattr(report.longrepr, "reprcrash", None)
        reason = crash.message if crash is not None else str(report.longrepr)
        failures.setdefault(report.nodeid, []).append(reason.partition("\n")[0])
    if not failures:
        return
    terminalreporter.section(f"second tries: {len(failures)}")
    width = max(map(len, failures))
    terminalreporter.line(f"{'test':{width}} tries  failure")
    for test, reasons in sorted(failures.items()):
        terminalreporter.line(f"{test:{width}} {len(reasons) + 1:5}  {reasons[-1]}")


_numbers = itertools.count()


@pytest.fixture(scope="module")
def cluster(request: pytest.FixtureRequest) -> Iterator[LocalCluster]:
    """Return one cluster for the tests of a module, with as many brokers as its BROKERS says (default 1)."""
    from aerobee.testing.cluster import LocalCluster

    with LocalCluster(brokers=getattr(request.module, "BROKERS", 1)) as running:
        yield running


@pytest.fixture
def topic(cluster: LocalCluster) -> str:
    """Return a new topic on the module's cluster, with two queues on each broker."""
    name = f"topic-{next(_numbers)}"
    cluster.create_topic(name, queues=2)
    return name


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    """Return a self-signed server certificate; skip the test where openssl is missing."""
    from aerobee.testing.certificates import make_certificate, unavailable

    reason = unavailable()
    if reason:
        pytest.skip(reason)
    return make_certificate(tmp_path_factory.mktemp("certificate"))
