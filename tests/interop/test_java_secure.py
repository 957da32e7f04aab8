"""Java clients with their ACL hook and TLS at what `aerobee up --secure` has started."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from aerobee.client.core import SECRET_KEY_VARIABLE, read_profile
from aerobee.testing import apache
from aerobee.testing.apache import LEGACY, NEWEST
from aerobee.testing.commands import Up, aerobee, up
from aerobee.testing.javasession import JavaSession

VERSIONS = [LEGACY, NEWEST]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    reason = apache.unavailable()
    if reason:
        pytest.skip(reason)
    return tmp_path_factory.mktemp("up") / "data"


@pytest.fixture(scope="module")
def running(data: Path) -> Iterator[Up]:
    with up("--secure", "--data", str(data)) as running:
        for topic in ("orders", "others"):
            assert run(running, "topic", "create", "-t", topic) == ""
        yield running


def run(running: Up, *words: str) -> str:
    """Run a command as the administrator and return what it complains about."""
    secured = running.ready["secured"]
    done = aerobee(*words, AEROBEE_CREDENTIALS=secured["credentials"], AEROBEE_PROFILE=secured["profile"])
    return done.stderr if done.returncode else ""


def java(running: Up, work: Path, version: str, access_key: str, secret_key: str) -> JavaSession:
    system = {
        "tls.enable": "true", "tls.test.mode.enable": "false", "tls.client.authServer": "true",
        "tls.client.trustCertPath": running.ready["secured"]["ca"],
        "tls.config.file": str(work / "none.properties"),
        "interop.accessKey": access_key, "interop.secretKey": secret_key,
    }  # fmt: skip
    return JavaSession(work, running.namesrv, version=version, system=system)


@pytest.mark.parametrize("version", VERSIONS)
def test_up_secure_java_client(running: Up, tmp_path: Path, version: str) -> None:
    secured = running.ready["secured"]
    secret = read_profile(secured["profile"], {"AEROBEE_CREDENTIALS": secured["credentials"]})[SECRET_KEY_VARIABLE]
    with java(running, tmp_path / "right", version, secured["profile"], secret) as client:
        client.run("produce", topic="orders", count=10, timeout_ms=20_000)
    with java(running, tmp_path / "wrong", version, secured["profile"], "wrong-secret") as client:
        with pytest.raises(apache.ApacheError):
            client.run("produce", topic="orders", count=1)
    with JavaSession(tmp_path / "plain", running.namesrv, version=version) as client:
        with pytest.raises(apache.ApacheError):
            client.run("produce", topic="orders", count=1)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_java_user_may_what_was_granted(running: Up, tmp_path: Path, version: str) -> None:
    name, group = f"java-{version.replace('.', '-')}", f"g-{version.replace('.', '_')}"
    secured = running.ready["secured"]
    admin = {"AEROBEE_CREDENTIALS": secured["credentials"], "AEROBEE_PROFILE": secured["profile"]}
    secret = json.loads(aerobee("user", "create", name, "--generate", "--json", **admin).stdout)["password"]
    assert run(running, "acl", "grant", name, "Topic:orders", "Pub,Sub") == ""
    assert run(running, "acl", "grant", name, f"Group:{group}", "Sub") == ""
    with java(running, tmp_path, version, name, secret) as client:
        consumer = client.start("consume", topic="orders", group=group, expect=5)
        client.run("produce", topic="orders", count=5, timeout_ms=20_000)
        consumer.wait(90)
        with pytest.raises(apache.ApacheError, match="No route info"):
            client.run("produce", topic="others", count=1)


def test_the_second_start_keeps_the_authority(data: Path, running: Up) -> None:
    before = (data / "secure" / "ca.pem").read_bytes()
    running.stop()
    with up("--secure", "--data", str(data)) as again:
        assert (data / "secure" / "ca.pem").read_bytes() == before
        assert again.ready["secured"]["is_new"] is False
