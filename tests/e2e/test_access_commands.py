"""`aerobee user` and `aerobee acl` at our own servers, and what other users may do of it."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from aerobee.testing.accesskit import PLAIN_ACL
from aerobee.testing.cluster import LocalCluster
from aerobee.testing.commands import aerobee

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(2, secure=True) as running:
        running.create_topic("orders", 1)
        running.create_topic("topicB", 1)
        yield running


@pytest.fixture(scope="module")
def run(cluster: LocalCluster) -> Run:
    def run(*words: str, feed: str | None = None, **environ: str) -> subprocess.CompletedProcess[str]:
        assert cluster.security is not None
        own = {"AEROBEE_CREDENTIALS": cluster.security.credentials_file, "NAMESRV_ADDR": cluster.namesrv}
        login = {} if environ else {"AEROBEE_PROFILE": "admin"}
        return aerobee(*words, feed=feed, **{**own, "AEROBEE_TLS_CA": cluster.security.ca, **login, **environ})

    return run


def test_a_user_gets_rights_and_loses_them_at_once(run: Run) -> None:
    made = run("user", "create", "alice", "--generate", "--json")
    told = json.loads(made.stdout)
    assert made.returncode == 0 and len(told["password"]) == 24
    assert [one["outcome"] for one in told["answers"]] == ["done"] * 3, "a name server and two brokers"
    alice = {"AEROBEE_ACCESS_KEY": "alice", "AEROBEE_SECRET_KEY": told["password"]}
    assert run("produce", "-t", "orders", "-m", "x", **alice).returncode == 1
    assert run("acl", "grant", "alice", "Topic:orders", "Pub").returncode == 0
    assert run("produce", "-t", "orders", "-m", "x", **alice).returncode == 0
    said = run("acl", "check", "alice", "Topic:orders", "Pub", "--source", "127.0.0.1")
    assert said.returncode == 0 and "Allow Pub on Topic:orders" in said.stdout, said.stdout + said.stderr
    own = run("acl", "show", "alice", **alice)
    assert own.returncode == 0 and "Topic:orders" in own.stdout, "one's own rights may be seen"
    for words in (("user", "list"), ("user", "create", "eve", "--generate"), ("acl", "grant", "alice", "*", "All")):
        refused = run(*words, **alice)
        assert refused.returncode == 1 and told["password"] not in refused.stdout + refused.stderr, words
    assert run("acl", "revoke", "alice", "Topic:orders").returncode == 0
    assert run("produce", "-t", "orders", "-m", "x", **alice).returncode == 1
    assert run("user", "update", "alice", "--super").returncode == 0
    assert run("produce", "-t", "orders", "-m", "x", **alice).returncode == 0
    assert run("user", "delete", "alice", "--yes").returncode == 0
    assert run("produce", "-t", "orders", "-m", "x", **alice).returncode == 1


def test_the_last_super_user_stays(run: Run, cluster: LocalCluster) -> None:
    # At one broker only: brokers register as `inner`.
    place = ("-b", "broker-a")
    assert run("user", "delete", "inner", "--yes", *place).returncode == 0
    for words in (("delete", "admin", "--yes"), ("update", "admin", "--normal"), ("update", "admin", "--disable")):
        refused = run("user", *words, *place)
        assert refused.returncode == 1 and "last enabled Super user" in refused.stdout, refused.stdout
    back = run("user", "copy", "inner", "--from", cluster.broker_address(1), "--to", cluster.broker_address(0))
    assert back.returncode == 0 and run("user", "list").returncode == 0


def test_plain_acl_import(run: Run, cluster: LocalCluster, tmp_path: Path) -> None:
    file = tmp_path / "plain_acl.yml"
    file.write_text(PLAIN_ACL)
    plan = run("acl", "import", str(file), "--dry-run")
    assert plan.returncode == 0 and "12345678" not in plan.stdout + plan.stderr
    assert "would make the Super user rocketmq2" in plan.stdout and "192.168.1.*" in plan.stderr
    done = run("acl", "import", str(file))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "10.10.103.*" in done.stderr, "dropped lists are named"
    rights = json.loads(run("acl", "show", "RocketMQ", "--json").stdout)["rights"]
    found = {(one["policy"], one["resource"]): (one["decision"], tuple(one["actions"])) for one in rights}
    assert found == {
        ("Custom", "Topic:topicA"): ("Deny", ("All",)),
        ("Custom", "Topic:topicB"): ("Allow", ("Pub", "Sub")),
        ("Custom", "Topic:topicC"): ("Allow", ("Sub",)),
        ("Custom", "Group:groupA"): ("Deny", ("All",)),
        ("Custom", "Group:groupB"): ("Allow", ("Pub", "Sub")),
        ("Custom", "Group:groupC"): ("Allow", ("Sub",)),
        ("Default", "Topic:*"): ("Deny", ("All",)),
        ("Default", "Group:*"): ("Allow", ("Sub",)),
    }
    login = {"AEROBEE_ACCESS_KEY": "RocketMQ", "AEROBEE_SECRET_KEY": "12345678"}
    assert run("produce", "-t", "topicB", "-m", "x", **login).returncode == 0
    assert run("produce", "-t", "orders", "-m", "x", **login).returncode == 1
    again = run("acl", "import", str(file))
    assert again.returncode == 1 and "stays as it is" in again.stdout
    for wrong, word in (("topicB=PUB|SUB", "topicB=PUB|SBU"), ("admin: true", "amdin: true"), ("DENY", "NEVER")):
        file.write_text(PLAIN_ACL.replace("RocketMQ", "other").replace("rocketmq2", "other2").replace(wrong, word, 1))
        refused = run("acl", "import", str(file))
        assert refused.returncode == 2, (word, refused.stdout, refused.stderr)
    assert run("user", "show", "other").returncode == 1, "nothing was begun"


def test_passwords_come_from_nowhere_that_others_see(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "password"
    for text in ("", "two\nlines", "\n"):
        file.write_text(text)
        assert run("user", "create", "bob", "--password-file", str(file)).returncode == 1, repr(text)
    assert run("user", "create", "bob").returncode == 2, "nobody is there to ask"
    assert run("user", "create", "bob", "--generate", "--password-file", str(file)).returncode == 2
    for command in ("create", "update"):
        assert "--password TEXT" not in run("user", command, "--help").stdout
    assert run("user", "update", "bob").returncode == 1, "nothing to change"
    unknown = run("user", "show", "bob", "-b", "nowhere")
    assert unknown.returncode == 1 and "no broker nowhere" in unknown.stderr
    gone = run("user", "list", "-b", "127.0.0.1:1")
    assert gone.returncode == 3, gone.stderr


def test_a_server_that_is_away_is_told(run: Run, cluster: LocalCluster) -> None:
    cluster.kill(1)
    try:
        done = run("user", "create", "carol", "--generate")
        assert done.returncode == 0 and "done at broker-a" in done.stdout and "broker-b" not in done.stdout
    finally:
        cluster.restart(1)
    listed = run("user", "show", "carol")
    assert listed.returncode == 1 and "missing at broker-b" in listed.stderr
    first = cluster.broker_address(0)
    assert run("user", "copy", "carol", "--from", first, "--to", cluster.broker_address(1)).returncode == 0
    assert run("user", "show", "carol").returncode == 0
