"""Java clients that speak TLS (-Dtls.enable=true) at our name server and broker, which take nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

import aerobee
from aerobee.testing import apache, certificates
from aerobee.testing.apache import LEGACY, NEWEST
from aerobee.testing.cluster import LocalCluster
from aerobee.testing.javasession import PATIENT, JavaSession


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> certificates.Certificate:
    reason = apache.unavailable() or certificates.unavailable()
    if reason:
        pytest.skip(reason)
    return certificates.make_certificate(tmp_path_factory.mktemp("certificate"))


@pytest.fixture(scope="module")
def enforcing(certificate: certificates.Certificate) -> Iterator[LocalCluster]:
    """Nothing plain is taken, so whoever gets through has spoken TLS."""
    own = {"tls.server.mode": "enforcing", "tls.enable": "true"}
    with LocalCluster(settings={**PATIENT, **certificate.settings(), **own}) as cluster:
        yield cluster


def tls_system(certificate: certificates.Certificate) -> dict[str, str]:
    """Java's properties: the server is verified, by its own certificate."""
    return {
        "tls.enable": "true",
        "tls.test.mode.enable": "false",
        "tls.client.authServer": "true",
        "tls.client.trustCertPath": str(certificate.cert),
        "tls.config.file": str(certificate.cert.with_name("none.properties")),
    }


@pytest.mark.parametrize("version", [LEGACY, NEWEST])
def test_java_sends_and_consumes_over_tls(
    enforcing: LocalCluster, certificate: certificates.Certificate, version: str, tmp_path: Path
) -> None:
    topic = f"tls-{version.replace('.', '_')}"

    async def send_and_read() -> list[bytes]:
        context = certificate.client_context()
        async with aerobee.Producer(enforcing.namesrv, tls=context) as producer:
            await producer.send(topic, b"from Python")
        return [message.body for message in await asyncio.to_thread(enforcing.messages, topic)]

    enforcing.create_topic(topic, 4)
    system = tls_system(certificate)
    with JavaSession(tmp_path, enforcing.namesrv, version=version, system=system) as java:
        consumer = java.start("consume", topic=topic, group=f"{topic}-g", expect=21)
        java.run("produce", topic=topic, count=20)
        stored = asyncio.run(asyncio.wait_for(send_and_read(), 90))
        assert len(stored) == 21 and b"from Python" in stored
        consumer.wait(90)
        assert len({event["msgId"] for event in consumer.events("message")}) == 21


def test_a_plain_java_client_is_refused_where_tls_is_enforced(enforcing: LocalCluster, tmp_path: Path) -> None:
    with JavaSession(tmp_path, enforcing.namesrv) as java, pytest.raises(apache.ApacheError):
        java.run("produce", topic="plain", count=1)
    assert enforcing.messages("plain") == []
