"""What every test may count on, however the suite was started."""

import os
import signal
from pathlib import Path

import hypothesis
import pytest

# A suite started in the background inherits an ignored SIGINT, and so would the commands that tests interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


# The same examples every time: what lands is judged by what it changes. `make fuzz` draws new ones.
hypothesis.settings.register_profile("steady", derandomize=True)
if not os.environ.get("AEROBEE_FUZZ"):
    hypothesis.settings.load_profile("steady")

# Real sockets, processes and clocks share a machine with others: one of their tests that fails gets a second try, and
# the run says so ("rerun"). Everything on virtual time gets none.
_REAL_TIME = ("e2e", "spark", "unit/admin", "unit/app", "unit/client", "unit/net")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    tests = Path(__file__).parent
    for item in items:
        if item.path.relative_to(tests).as_posix().startswith(_REAL_TIME):
            item.add_marker(pytest.mark.flaky(reruns=1))
