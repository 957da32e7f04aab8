"""Every test here needs Maven and Java; one name server of Apache's serves the session."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from aerobee.testing import apache


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.interop)


@pytest.fixture(scope="session")
def apache_namesrv(tmp_path_factory: pytest.TempPathFactory) -> Iterator[apache.ApacheNameServer]:
    reason = apache.unavailable()
    if reason:
        pytest.skip(reason)
    with apache.ApacheNameServer(tmp_path_factory.mktemp("namesrv")) as server:
        yield server
