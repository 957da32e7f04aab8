"""Apache's proxy in CLUSTER mode before a broker of ours that has users: test 14 of the study of operating.

The proxy asks our broker for users and rights as the inner user, with the passwords, and checks signatures by them.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator

import pytest

from aerobee import sync
from aerobee.protocol.v2.enums import Code
from aerobee.testing import apache
from aerobee.testing.cluster import LocalCluster
from aerobee.testing.grpckit import GrpcPeer, code_of, consumer_settings, handle_of, message, signed
from aerobee.testing.javachecks import lost, of_kind
from aerobee.testing.javasession import PATIENT, JavaSession
from aerobee.testing.secrets import secret_for
from aerobee.testing.waiting import wait_until

_numbers = itertools.count(1)
_DEFAULT = "org.apache.rocketmq.auth.{}.provider.Default{}Provider"
_OF_BROKERS = "org.apache.rocketmq.proxy.auth.Proxy{}MetadataProvider"
ROOT, INNER = ("root", secret_for("root")), ("inner", secret_for("inner"))
USERS = {
    "authenticationEnabled": "true",
    "authorizationEnabled": "true",
    "initAuthenticationUser": json.dumps({"username": ROOT[0], "password": ROOT[1]}),
    "innerClientAuthenticationCredentials": json.dumps({"accessKey": INNER[0], "secretKey": INNER[1]}),
}
# The proxy asks brokers for users and rights, as the inner user, and signs as that user whatever it passes on.
USERS_OF_PROXY = {
    **{key: USERS[key] for key in ("authenticationEnabled", "authorizationEnabled")},
    "innerClientAuthenticationCredentials": USERS["innerClientAuthenticationCredentials"],
    "authenticationProvider": _DEFAULT.format("authentication", "Authentication"),
    "authenticationMetadataProvider": _OF_BROKERS.format("Authentication"),
    "authorizationProvider": _DEFAULT.format("authorization", "Authorization"),
    "authorizationMetadataProvider": _OF_BROKERS.format("Authorization"),
    "enableAclRpcHookForClusterMode": "true",
}


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """A cluster with users: `writer` may send to `mine`, `reader` may read it as `readers`."""
    reason = apache.unavailable()
    if reason:
        pytest.skip(reason)
    users = str(tmp_path_factory.mktemp("users"))
    with LocalCluster(settings={**PATIENT, **USERS, "authConfigPath": users}) as started:
        broker = started.broker_address(0)
        with sync.Admin(started.namesrv, access_key=ROOT[0], secret_key=ROOT[1]) as admin:
            for topic in ("mine", "foreign"):
                admin.topics.create(topic, queues=2)
            admin.groups.create("readers")
            for name in ("writer", "reader"):
                admin.users.create(name, secret_for(name), server=broker)
            admin.rights.grant("writer", "Topic:mine", ["Pub"], server=broker)
            admin.rights.grant("reader", "Topic:mine", ["Sub"], server=broker)
            for group in ("readers", "pullers"):
                admin.rights.grant("reader", f"Group:{group}", ["Sub"], server=broker)
        yield started


@pytest.fixture(scope="module")
def guard(guarded: LocalCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[apache.ApacheProxy]:
    work = tmp_path_factory.mktemp("guard")
    with apache.ApacheProxy(work, guarded.namesrv, "LocalCluster", settings=USERS_OF_PROXY) as started:
        yield started


def test_users_by_grpc(guarded: LocalCluster, guard: apache.ApacheProxy) -> None:
    """The proxy reads users and rights from our broker, and our broker takes its signature."""

    def sent(user: str, secret: str, topic: str) -> int:
        with GrpcPeer(guard.grpc, f"{user}@1", **(signed(user, secret) if user else {})) as peer:
            return code_of(peer.send(message(topic, b"x", f"01{next(_numbers):032X}")))

    assert sent("writer", secret_for("writer"), "mine") == Code.OK
    for user, secret, topic in (
        ("writer", secret_for("writer"), "foreign"), ("writer", "wrong", "mine"),
        ("reader", secret_for("reader"), "mine"),
        ("nobody", secret_for("nobody"), "mine"), ("", "", "mine"),
    ):  # fmt: skip
        assert sent(user, secret, topic) == Code.UNAUTHORIZED, (user, topic)
    with GrpcPeer(guard.grpc, "reader@1", **signed("reader", secret_for("reader"))) as reader:
        stream = reader.telemetry()
        stream.settle(consumer_settings("readers", ["mine"]))
        (found,) = wait_until(lambda: reader.messages("mine", "readers"))
        assert code_of(reader.ack("mine", "readers", handle_of(found))) == Code.OK
        assert code_of(reader.receive("foreign", "readers")[0]) == Code.UNAUTHORIZED
        assert code_of(reader.receive("mine", "others")[0]) == Code.UNAUTHORIZED
        stream.close()
    with GrpcPeer(guard.grpc, "writer@2", **signed("writer", secret_for("writer"))) as writer:
        assert code_of(writer.receive("mine", "readers")[0]) == Code.UNAUTHORIZED


def test_users_by_remoting(
    guarded: LocalCluster, guard: apache.ApacheProxy, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Apache's remoting clients sign for the proxy, and the proxy for our broker."""
    system = {"interop.accessKey": "writer", "interop.secretKey": secret_for("writer")}
    with JavaSession(tmp_path_factory.mktemp("writer"), guard.remoting, system=system) as java:
        sent = of_kind(java.run("produce", topic="mine", count=5, timeout_ms=20_000), "sent")
        java.start("produce", topic="foreign", count=1, timeout_ms=20_000).wait_for_events("failed", 1)
    system = {"interop.accessKey": "reader", "interop.secretKey": secret_for("reader")}
    with JavaSession(tmp_path_factory.mktemp("reader"), guard.remoting, system=system) as java:
        taken = of_kind(java.run("consume", topic="mine", group="pullers", expect=5), "message")
    assert lost(sent, taken) == []
    assert guarded.messages("foreign") == []
