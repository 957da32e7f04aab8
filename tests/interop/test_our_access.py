"""`aerobee user` and `aerobee acl` at Apache's broker with its access control on."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from aerobee.testing.apache import ApacheBroker, ApacheNameServer
from aerobee.testing.commands import aerobee
from aerobee.testing.secrets import secret_for

ROOT = {"AEROBEE_ACCESS_KEY": "root", "AEROBEE_SECRET_KEY": secret_for("root")}
AUTH: dict[str, object] = {
    "authenticationEnabled": "true",
    "authenticationProvider": "org.apache.rocketmq.auth.authentication.provider.DefaultAuthenticationProvider",
    "authenticationMetadataProvider": "org.apache.rocketmq.auth.authentication.provider."
    "LocalAuthenticationMetadataProvider",
    "initAuthenticationUser": json.dumps({"username": "root", "password": secret_for("root")}),
    "innerClientAuthenticationCredentials": json.dumps({"accessKey": "inner", "secretKey": secret_for("inner")}),
    "authorizationEnabled": "true",
    "authorizationProvider": "org.apache.rocketmq.auth.authorization.provider.DefaultAuthorizationProvider",
    "authorizationMetadataProvider": "org.apache.rocketmq.auth.authorization.provider."
    "LocalAuthorizationMetadataProvider",
}
Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def brokers(apache_namesrv: ApacheNameServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[str]]:
    def start(name: str) -> ApacheBroker:
        work: Path = tmp_path_factory.mktemp(name)
        return ApacheBroker(work, work / "store", apache_namesrv.address, name=name, settings=AUTH)

    with start("broker-a") as first, start("broker-b") as second:
        yield [first.address, second.address]


@pytest.fixture(scope="module")
def run(brokers: list[str], apache_namesrv: ApacheNameServer) -> Run:
    def run(*words: str, feed: str | None = None, **environ: str) -> subprocess.CompletedProcess[str]:
        return aerobee(*words, "-n", apache_namesrv.address, feed=feed, **{**ROOT, **environ})

    return run


def test_users_on_every_broker(run: Run, brokers: list[str]) -> None:
    made = run("user", "create", "alice", "--password-file", "-", feed=secret_for("alice") + "\n")
    assert made.returncode == 0, made.stdout + made.stderr
    assert made.stdout.count("done at broker-") == 2 and "unsupported at name server" in made.stdout
    again = run("user", "create", "alice", "--generate", "--json")
    assert again.returncode == 1 and json.loads(again.stdout)["complete"] is False
    listed = run("user", "list", "--json")
    assert listed.returncode == 0, listed.stderr
    assert [one["name"] for one in json.loads(listed.stdout)["users"]] == ["alice", "inner", "root"]
    assert secret_for("alice") not in listed.stdout
    assert run("user", "update", "alice", "--disable", "-b", brokers[0]).returncode == 0
    differs = run("user", "show", "alice")
    assert differs.returncode == 1 and "differs between" in differs.stderr
    assert run("user", "update", "alice", "--enable").returncode == 0
    assert run("user", "show", "alice").returncode == 0
    missing = run("user", "show", "nobody")
    assert missing.returncode == 1 and "no user nobody" in missing.stderr
    gone = run("user", "delete", "alice", "--yes")
    assert gone.returncode == 0 and run("user", "show", "alice").returncode == 1


def test_rights_and_who_may_what(run: Run, brokers: list[str]) -> None:
    assert run("topic", "create", "-t", "orders").returncode == 0
    assert run("user", "create", "bob", "--password-file", "-", feed=secret_for("bob")).returncode == 0
    bob = {"AEROBEE_ACCESS_KEY": "bob", "AEROBEE_SECRET_KEY": secret_for("bob")}
    refused = run("produce", "-t", "orders", "-m", "x", **bob)
    assert refused.returncode == 1 and "bob" in refused.stderr, refused.stderr
    check = run("acl", "check", "bob", "Topic:orders", "Pub")
    assert check.returncode == 1 and "no matched policies" in check.stdout, check.stdout + check.stderr
    granted = run("acl", "grant", "bob", "Topic:ord*", "Pub,Sub", "--source", "127.0.0.0/8")
    assert granted.returncode == 0, granted.stdout
    assert run("produce", "-t", "orders", "-m", "x", **bob).returncode == 0
    check = run("acl", "check", "bob", "Topic:orders", "Pub", "--source", "127.0.0.1")
    assert check.returncode == 0 and "Allow Pub,Sub on Topic:ord* from 127.0.0.0/8" in check.stdout
    assert run("acl", "check", "bob", "Topic:orders", "Pub", "--source", "10.0.0.1").returncode == 1
    assert run("acl", "grant", "bob", "Topic:orders", "All", "--deny").returncode == 0
    denied = run("acl", "check", "bob", "Topic:orders", "Pub", "--source", "127.0.0.1")
    assert denied.returncode == 1 and "Deny All on Topic:orders" in denied.stdout
    assert run("acl", "revoke", "bob", "Topic:orders").returncode == 0
    shown = json.loads(run("acl", "show", "bob", "--json").stdout)["rights"]
    assert [(one["resource"], one["actions"]) for one in shown] == [("Topic:ord*", ["Pub", "Sub"])]
    assert run("acl", "list", "--resource", "ord").returncode == 0
    for words in (("Topic:o*s", "Pub"), ("Topic:orders", "Pub,Sbu"), ("Topics:orders", "Pub")):
        wrong = run("acl", "grant", "bob", *words)
        assert wrong.returncode == 1, words
    assert json.loads(run("acl", "show", "bob", "--json").stdout)["rights"] == shown, "nothing was sent"
    assert run("acl", "revoke", "bob", "--yes").returncode == 0
    assert json.loads(run("acl", "show", "bob", "--json").stdout)["rights"] == []


def test_copies_go_from_one_server_to_another(run: Run, brokers: list[str]) -> None:
    first, second = brokers
    only = ("-b", first)
    assert run("user", "create", "carol", "--password-file", "-", *only, feed=secret_for("carol")).returncode == 0
    assert run("acl", "grant", "carol", "Topic:*", "Pub", *only).returncode == 0
    assert run("user", "show", "carol").returncode == 1, "it is missing at the other one"
    assert run("user", "copy", "carol", "--from", first, "--to", second).returncode == 0
    assert run("acl", "copy", "carol", "--from", first, "--to", second).returncode == 0
    assert run("user", "show", "carol").returncode == 0
    assert run("acl", "show", "carol").returncode == 0
    carol = {"AEROBEE_ACCESS_KEY": "carol", "AEROBEE_SECRET_KEY": secret_for("carol")}
    assert run("produce", "-t", "orders", "--count", "10", **carol).returncode == 0
