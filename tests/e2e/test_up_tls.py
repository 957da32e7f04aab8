"""`aerobee up` with a certificate: TLS enforced between all of its parts, or the reason why it does not start."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import aerobee
from aerobee.admin.connection import AdminConnection
from aerobee.testing.certificates import Certificate, make_certificate, unavailable

PATIENCE_S = 60
COMMAND = [sys.executable, "-m", "aerobee", "up", "--namesrv-port", "0", "--broker-port", "0", "--json"]


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    reason = unavailable()
    if reason:
        pytest.skip(reason)
    return make_certificate(tmp_path_factory.mktemp("certificate"))


def words_of(settings: dict[str, str]) -> list[str]:
    return [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]


@contextmanager
def up(*words: str) -> Iterator[dict[str, Any]]:
    """What a running `aerobee up` said when it was ready."""
    process = subprocess.Popen([*COMMAND, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stderr is not None
    try:
        line = process.stdout.readline()
        assert line, process.stderr.read()
        yield json.loads(line)
    finally:
        process.terminate()
        process.communicate(timeout=PATIENCE_S)


@pytest.mark.parametrize("brokers", [1, 2])
def test_enforced_tls_holds_between_all_parts(certificate: Certificate, brokers: int) -> None:
    async def work(namesrv: str) -> None:
        async with aerobee.Producer(namesrv, tls=certificate.client_context()) as producer:
            assert (await producer.send("orders", b"x")).queue_offset == 0
        async with aerobee.Producer(namesrv) as producer:
            with pytest.raises(aerobee.AerobeeError, match="TLS"):
                await producer.send("orders", b"x", timeout=2)
        async with AdminConnection(namesrv) as admin:
            with pytest.raises(aerobee.AerobeeError, match="have no TLS yet"):
                await admin.cluster_info()

    settings = {**certificate.settings(), "tls.server.mode": "enforcing"}
    with up("--brokers", str(brokers), *words_of(settings)) as ready:
        asyncio.run(asyncio.wait_for(work(ready["namesrv"]), PATIENCE_S))


@pytest.mark.parametrize("brokers", ["1", "2"])
def test_a_certificate_that_is_not_there_stops_the_start(
    certificate: Certificate, tmp_path: Path, brokers: str
) -> None:
    missing = tmp_path / "missing.pem"
    settings = {**certificate.settings(), "tls.server.certPath": str(missing)}
    command = [*COMMAND, "--brokers", brokers, *words_of(settings)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode != 0 and done.stdout == ""
    assert f"tls.server.certPath={missing}: No such file" in done.stderr
    assert "Traceback" not in done.stderr
