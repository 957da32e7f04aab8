"""A server loads what it serves with: what is off costs neither time at the start nor memory."""

import subprocess
import sys

import pytest

WITHOUT_GROUP_AND_GRPC = ("aerobee.proxy", "aerobee.coordination.etcd", "aerobee.replication.replica", "aerobee.client")


@pytest.mark.parametrize(
    ("imports", "spared"),
    [
        (
            "aerobee.app.servers, aerobee.app.broker",
            (*WITHOUT_GROUP_AND_GRPC, "aerobee.namesrv.state", "aerobee.app.up"),
        ),
        ("aerobee.app.servers, aerobee.app.namesrv", (*WITHOUT_GROUP_AND_GRPC, "aerobee.broker.assembly")),
    ],
)
def test_a_server_loads_nothing_that_is_off(imports: str, spared: tuple[str, ...]) -> None:
    words = f"import {imports}, sys; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", words], capture_output=True, text=True, timeout=60, check=True)
    loaded = done.stdout.split()
    assert "aerobee.app.servers" in loaded
    assert [one for one in loaded if one.startswith(spared)] == []
