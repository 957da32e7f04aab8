"""`aerobee up` with a certificate: TLS enforced between all of its parts, commands that speak it, files that change."""

from __future__ import annotations

import asyncio
import json
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from aerobee import AerobeeError, Producer
from aerobee.admin.connection import AdminConnection
from aerobee.testing.certificates import Certificate, make_certificate
from aerobee.testing.commands import PATIENCE_S, UP, aerobee, up
from aerobee.testing.secrets import secret_for


def words_of(settings: dict[str, str]) -> list[str]:
    return [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]


@pytest.mark.parametrize("brokers", [1, 2])
def test_enforced_tls_holds_between_all_parts(certificate: Certificate, brokers: int) -> None:
    async def work(namesrv: str) -> None:
        async with Producer(namesrv, tls=certificate.client_context()) as producer:
            assert (await producer.send("orders", b"x")).queue_offset == 0
        async with Producer(namesrv) as producer:
            with pytest.raises(AerobeeError, match="TLS"):
                await producer.send("orders", b"x", timeout=2)
        async with AdminConnection(namesrv) as admin:
            with pytest.raises(AerobeeError, match="--tls-ca FILE"):
                await admin.cluster_info()
        async with AdminConnection(namesrv, tls=certificate.client_context()) as admin:
            assert len(await admin.masters()) == brokers

    settings = {**certificate.settings(), "tls.server.mode": "enforcing"}
    with up("--brokers", str(brokers), *words_of(settings)) as running:
        asyncio.run(asyncio.wait_for(work(running.namesrv), PATIENCE_S))


@pytest.fixture(scope="module")
def enforcing(certificate: Certificate) -> Iterator[str]:
    """The name server of a cluster that takes nothing but TLS, and from those whose certificate it trusts."""
    settings = {**certificate.settings(), "tls.server.mode": "enforcing"}
    with up(*words_of(settings)) as running:
        yield running.namesrv


def test_commands_speak_tls_by_flag_and_by_environment(certificate: Certificate, enforcing: str) -> None:
    tls, place = ["--tls-ca", str(certificate.cert)], ["-n", enforcing]
    environ = {"NAMESRV_ADDR": enforcing, "AEROBEE_TLS_CA": str(certificate.cert)}
    sent = aerobee("produce", "-t", "orders", "-m", "hello", "--json", *place, *tls)
    assert sent.returncode == 0, sent.stderr
    message_id = json.loads(sent.stdout)["message_id"]
    for done, words in (
        (aerobee("topic", "list", *place, *tls), "orders"),
        (aerobee("cluster", **environ), "DefaultCluster"),
        # These read with a client of their own beside the admin connection.
        (aerobee("message", "find", "-t", "orders", "--from", "2020-01-01", **environ), message_id),
        (aerobee("message", "show", message_id, "-t", "orders", *place, *tls), "hello"),
        (aerobee("tail", "-t", "orders", "--until-end", **environ), "hello"),
        (aerobee("consume", "-t", "orders", "-g", "readers", "--count", "1", *place, *tls), "hello"),
        (aerobee("cluster", "--tls-insecure", *place), "DefaultCluster"),
        (aerobee("topic", "create", "-t", "copy", **environ), "copy"),
        (aerobee("replay", "-t", "orders", "--to", "copy", "--from", "2020-01-01", *place, *tls), "1"),
        (aerobee("tail", "-t", "copy", "--until-end", **environ), "hello"),
    ):
        assert done.returncode == 0 and words in done.stdout, (done.args, done.stdout, done.stderr)


def test_what_is_wrong_with_tls_is_said(certificate: Certificate, enforcing: str, tmp_path: Path) -> None:
    other = make_certificate(tmp_path, "other")
    tls, by_name = ["--tls-ca", str(certificate.cert)], enforcing.replace("127.0.0.1", "localhost")

    def problem(namesrv: str, *words: str) -> str:
        done = aerobee("topic", "list", "-n", namesrv, *words)
        assert done.returncode == 3 and "Traceback" not in done.stderr, done.stderr
        return done.stderr

    assert "certificate is not trusted" in problem(enforcing, "--tls-ca", str(other.cert))
    assert "certificate is not trusted" in problem(enforcing, "--tls")
    assert "certificate is not valid for 'localhost'" in problem(by_name, *tls)
    assert aerobee("topic", "list", "-n", by_name, *tls, "--tls-any-host").returncode == 0
    assert "--tls-ca FILE" in problem(enforcing)
    with up() as plain:
        assert "Does it take TLS" in problem(plain.namesrv, *tls)


def test_a_server_that_wants_certificates_of_clients(certificate: Certificate, tmp_path: Path) -> None:
    own = make_certificate(tmp_path, "client", password=secret_for("client"))
    settings = {**certificate.settings(), **own.settings("client"), "tls.server.mode": "enforcing"}
    settings |= {"tls.server.need.client.auth": "require", "tls.server.trustCertPath": str(own.cert)}
    with up(*words_of(settings)) as running:
        words = ["cluster", "-n", running.namesrv, "--tls-ca", str(certificate.cert)]
        shown = [*words, "--tls-cert", str(own.cert), "--tls-key", str(own.key)]
        done = aerobee(*shown, AEROBEE_TLS_KEY_PASSWORD=secret_for("client"))
        assert done.returncode == 0 and "DefaultCluster" in done.stdout, done.stderr
        without = aerobee(*words)
        assert without.returncode == 3 and "tls-cert" in without.stderr, without.stderr
        locked = aerobee(*shown, AEROBEE_TLS_KEY_PASSWORD="wrong")
        assert locked.returncode == 2 and "password" in locked.stderr, locked.stderr


@pytest.mark.parametrize("brokers", ["1", "2"])
def test_a_new_certificate_is_taken_up_by_running_servers(
    certificate: Certificate, tmp_path: Path, brokers: str
) -> None:
    new = make_certificate(tmp_path, "new")
    live = Certificate(tmp_path / "live.pem", tmp_path / "live.key")
    shutil.copy(certificate.cert, live.cert)
    shutil.copy(certificate.key, live.key)
    settings = {**live.settings(), "tls.server.mode": "enforcing"}
    with up("--brokers", brokers, *words_of(settings)) as running:
        # All servers, each of which looks by itself: `cluster` fails with 3 where one of them is not trusted.
        words = ["cluster", "-n", running.namesrv, "--tls-ca"]
        assert aerobee(*words, str(certificate.cert)).returncode == 0
        shutil.copy(new.cert, live.cert)
        shutil.copy(new.key, live.key)
        until_s = time.monotonic() + PATIENCE_S
        while (done := aerobee(*words, str(new.cert))).returncode != 0:
            assert time.monotonic() < until_s, done.stderr
        assert aerobee(*words, str(certificate.cert)).returncode == 3


@pytest.mark.parametrize("brokers", ["1", "2"])
def test_a_certificate_that_is_not_there_stops_the_start(
    certificate: Certificate, tmp_path: Path, brokers: str
) -> None:
    missing = tmp_path / "missing.pem"
    settings = {**certificate.settings(), "tls.server.certPath": str(missing)}
    done = aerobee(*UP, "--brokers", brokers, *words_of(settings))
    assert done.returncode != 0 and done.stdout == ""
    assert f"tls.server.certPath={missing}: No such file" in done.stderr
    assert "Traceback" not in done.stderr
