"""Apache's mqadmin commands about users and policies, and Java clients with their ACL hook, against our servers.

The same commands run against Apache's own broker, and their output is compared.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from aerobee.testing import apache
from aerobee.testing.accesskit import PLAIN_ACL
from aerobee.testing.cluster import LocalCluster
from aerobee.testing.javasession import PATIENT, JavaSession
from aerobee.testing.secrets import secret_for

_PROVIDER = "org.apache.rocketmq.auth.{}.provider.Local{}MetadataProvider"
ROOT = {"username": "root", "password": secret_for("root")}
SETTINGS = {
    "authenticationEnabled": "true",
    "authorizationEnabled": "true",
    "authenticationProvider": "org.apache.rocketmq.auth.authentication.provider.DefaultAuthenticationProvider",
    "authorizationProvider": "org.apache.rocketmq.auth.authorization.provider.DefaultAuthorizationProvider",
    "authenticationMetadataProvider": _PROVIDER.format("authentication", "Authentication"),
    "authorizationMetadataProvider": _PROVIDER.format("authorization", "Authorization"),
    "initAuthenticationUser": json.dumps(ROOT),
    "innerClientAuthenticationCredentials": json.dumps({"accessKey": "inner", "secretKey": secret_for("inner")}),
}


def login(work: Path, user: str, secret: str) -> dict[str, str]:
    """Return Java's system properties for a session of one user: of the clients, and of mqadmin."""
    conf = work / "home" / "conf"
    conf.mkdir(parents=True)
    (conf / "tools.yml").touch(0o600)
    (conf / "tools.yml").write_text(f"accessKey: {user}\nsecretKey: {secret}\n")
    return {"interop.accessKey": user, "interop.secretKey": secret, "rocketmq.home.dir": str(work / "home")}


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    if apache.unavailable():
        pytest.skip(apache.unavailable() or "")
    users = tmp_path_factory.mktemp("users")
    more = {"authConfigPath": str(users), "auditLogPath": str(users / "audit.log")}
    with LocalCluster(settings={**PATIENT, **SETTINGS, **more}) as cluster:
        AUDITS[cluster.namesrv] = users / "audit.log"
        yield cluster


# The audit log of each cluster, by its name server.
AUDITS: dict[str, Path] = {}


def ours_audit(cluster: LocalCluster) -> Path:
    """Return the audit log of the broker and the name server."""
    return AUDITS[cluster.namesrv]


@pytest.fixture(scope="module")
def root(ours: LocalCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[JavaSession]:
    work = tmp_path_factory.mktemp("root")
    with JavaSession(work / "session", ours.namesrv, system=login(work, "root", secret_for("root"))) as session:
        yield session


@pytest.fixture(scope="module")
def theirs(
    tmp_path_factory: pytest.TempPathFactory, apache_namesrv: apache.ApacheNameServer
) -> Iterator[apache.ApacheBroker]:
    work = tmp_path_factory.mktemp("apache")
    with apache.ApacheBroker(
        work / "b", work / "store", apache_namesrv.address, name="broker-auth", settings=SETTINGS
    ) as broker:
        yield broker


# What a person does with users and policies: each command is run against both brokers.
SCRIPT = (
    ("createUser", "-u", "alice", "-p", secret_for("alice")),
    ("createUser", "-u", "alice", "-p", secret_for("alice")),
    ("createUser", "-u", "boss", "-p", secret_for("boss"), "-t", "Super"),
    ("getUser", "-u", "alice"),
    ("listUser", "-f", "alice"),
    ("updateUser", "-u", "alice", "-s", "disable"),
    ("getUser", "-u", "alice"),
    ("updateUser", "-u", "alice", "-s", "enable"),
    ("updateUser", "-u", "nobody", "-p", "x"),
    ("createAcl", "-s", "User:alice", "-r", "Topic:orders,Group:billing", "-a", "Pub,Sub", "-d", "Allow"),
    ("getAcl", "-s", "User:alice"),
    ("updateAcl", "-s", "User:alice", "-r", "Topic:orders", "-a", "Pub", "-i", "127.0.0.1,10.0.0.0/8", "-d", "Deny"),
    ("getAcl", "-s", "User:alice"),
    ("listAcl", "-s", "alice"),
    ("listAcl", "-s", "alice", "-r", "Group"),
    ("deleteAcl", "-s", "User:alice", "-r", "Topic:orders"),
    ("getAcl", "-s", "User:alice"),
    ("deleteAcl", "-s", "User:alice"),
    ("getAcl", "-s", "User:alice"),
    ("createAcl", "-s", "User:nobody", "-r", "Topic:orders", "-a", "Pub", "-d", "Allow"),
    ("deleteUser", "-u", "alice"),
    ("deleteUser", "-u", "alice"),
    ("deleteUser", "-u", "boss"),
)


def said(session: JavaSession, address: str, words: tuple[str, ...]) -> str:
    """Return what a command prints, without the address and without the frames of stack traces."""
    text = session.mqadmin(words[0], "-b", address, *words[1:]).replace(address, "ADDRESS")
    lines = [line.rstrip() for line in text.split("\n") if not line.lstrip().startswith("at ")]
    return re.sub(r"\n+", "\n", "\n".join(lines)).strip()


def test_apache_mqadmin_auth_commands(ours: LocalCluster, theirs: apache.ApacheBroker, root: JavaSession) -> None:
    """Test 20: what the twelve commands print about our broker is what they print about Apache's."""
    address = ours.broker_address(0)
    for words in SCRIPT:
        here, there = said(root, address, words), said(root, theirs.address, words)
        print(f"{' '.join(words)}:\n{here}")
        assert here == there, words
    # The two that copy: from ours to Apache's and back, where it is made anew, and over what is there.
    right = ("createAcl", "-s", "User:carol", "-r", "Topic:orders", "-a", "Pub", "-d", "Allow")
    for words in (("createUser", "-u", "carol", "-p", secret_for("carol")), right):
        said(root, address, words)
    shown = []
    for source, target in ((address, theirs.address), (theirs.address, address)):
        texts = [
            root.mqadmin(*words, "-f", source, "-t", target).replace(source, "SOURCE").replace(target, "TARGET")
            for words in 2 * (("copyUser", "-u", "carol"), ("copyAcl", "-s", "User:carol"), ("copyUser",), ("copyAcl",))
        ]
        assert said(root, address, ("getAcl", "-s", "User:carol")) == said(
            root, theirs.address, ("getAcl", "-s", "User:carol")
        )
        shown.append(["\n".join(sorted(text.split("\n"))) for text in texts])
        said(root, source, ("deleteUser", "-u", "carol"))
        assert secret_for("carol") in said(root, target, ("getUser", "-u", "carol"))
    assert shown[0] == shown[1] and "carol" in shown[0][0]
    said(root, address, ("deleteUser", "-u", "carol"))


def test_copy_user_from_apache(
    ours: LocalCluster, theirs: apache.ApacheBroker, root: JavaSession, tmp_path: Path
) -> None:
    """Test 21: users and policies come over by Apache's own commands, and a Java client logs in with its old secret."""
    address = ours.broker_address(0)
    said(root, theirs.address, ("createUser", "-u", "mover", "-p", secret_for("mover")))
    rights = ("createAcl", "-s", "User:mover", "-r", "Topic:moved", "-a", "Pub", "-d", "Allow")
    said(root, theirs.address, rights)
    print(root.mqadmin("copyUser", "-f", theirs.address, "-t", address, "-u", "mover"))
    print(root.mqadmin("copyAcl", "-f", theirs.address, "-t", address, "-s", "User:mover"))
    assert secret_for("mover") in said(root, address, ("getUser", "-u", "mover"))
    ours.create_topic("moved")
    with JavaSession(tmp_path / "s", ours.namesrv, system=login(tmp_path, "mover", secret_for("mover"))) as session:
        events = session.run("produce", topic="moved", count=3, group="g")
        assert sum(event["event"] == "sent" for event in events) == 3
    assert said(root, address, ("getAcl", "-s", "User:mover")) == said(
        root, theirs.address, ("getAcl", "-s", "User:mover")
    )


def test_plain_acl_import(
    apache_namesrv: apache.ApacheNameServer, root: JavaSession, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Test 19: of the same plain_acl.yml our broker makes the users and the policies that Apache's migration makes."""
    more = {"migrateAuthFromV1Enabled": "true"}
    work = tmp_path / "apache"
    file = work / "conf" / "plain_acl.yml"
    file.parent.mkdir(parents=True)
    file.write_text(PLAIN_ACL)
    users = str(tmp_path_factory.mktemp("imported"))
    ours = {**PATIENT, **SETTINGS, **more, "aclFile": str(file), "authConfigPath": users}
    with (
        LocalCluster(settings=ours) as cluster,
        apache.ApacheBroker(
            work, work / "store", apache_namesrv.address, name="broker-v1", settings={**SETTINGS, **more}
        ) as broker,
    ):
        for words in (("listUser",), ("listAcl",), ("getAcl", "-s", "User:RocketMQ")):
            here, there = (
                sorted(said(root, address, words).split("\n"))
                for address in (cluster.broker_address(0), broker.address)
            )
            assert here == there, words
            assert any("RocketMQ" in line for line in here), here


@pytest.mark.parametrize(("version", "codec"), [(apache.LEGACY, "JSON"), (apache.NEWEST, "ROCKETMQ")])
def test_java_clients_with_their_acl_hook(
    ours: LocalCluster, root: JavaSession, tmp_path: Path, version: str, codec: str
) -> None:
    """Allowed and refused, old and new, both header codecs."""
    address = ours.broker_address(0)
    name = f"java{version.replace('.', '')}{codec}"
    for topic in ("allowed", "denied"):
        ours.create_topic(f"{topic}-{name}")
    said(root, address, ("createUser", "-u", name, "-p", secret_for("java")))
    resources = f"Topic:allowed-{name},Group:g-{name}"
    said(root, address, ("createAcl", "-s", f"User:{name}", "-r", resources, "-a", "Pub,Sub", "-d", "Allow"))
    # Its route may be asked for, so that it is the broker that refuses.
    said(root, address, ("createAcl", "-s", f"User:{name}", "-r", f"Topic:denied-{name}", "-a", "Get", "-d", "Allow"))
    # The name server reads its files again within a second.
    system = login(tmp_path, name, secret_for("java"))
    with JavaSession(tmp_path / "s", ours.namesrv, version=version, codec=codec, system=system) as session:
        consumer = session.start("consume", topic=f"allowed-{name}", group=f"g-{name}", limit_ms=60_000)
        sent = session.run("produce", topic=f"allowed-{name}", count=5, group="p", tags="\u00fc")
        assert sum(event["event"] == "sent" for event in sent) == 5
        consumer.wait_for_events("message", 5)
        refused = session.start("produce", topic=f"denied-{name}", count=1, group="p")
        failed = refused.wait_for_events("failed", 1)
        # Java's producers try three times, and then say nothing of the reason. The broker's audit log does.
        assert "Send [3] times, still failed" in str(failed[0])
    events = [json.loads(line) for line in (ours_audit(ours)).read_text().splitlines()]
    told = [one for one in events if one.get("user") == name and one.get("resource") == f"Topic:denied-{name}"]
    assert [(one["code"], one["actions"], one["decision"]) for one in told[-3:]] == [
        ("310 SEND_MESSAGE_V2", ["Pub"], "refused")
    ] * 3
