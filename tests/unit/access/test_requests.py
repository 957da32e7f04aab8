"""Users and policies over the wire, as Apache's tools ask for them; the files they are kept in; the audit log."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from aerobee.access.brokertable import BROKER_ROWS
from aerobee.access.forms import read_users
from aerobee.app.access import AccessRoot
from aerobee.errors import ConfigError, StoreError
from aerobee.protocol.bodies.access import UserInfo
from aerobee.protocol.codes import RequestCode, ResponseCode
from aerobee.testing.accesskit import SECRETS, AccessClient, access_config, add_user, grant, secret_of
from aerobee.testing.brokerkit import BrokerKit, run_broker
from aerobee.testing.clock import VirtualClock
from aerobee.testing.disk import RecordingDisk

_R = RequestCode
USERS = "/store/config/users.json"


def run(main, disk: RecordingDisk | None = None, **more: object) -> BrokerKit:  # type: ignore[no-untyped-def]
    return run_broker(main, access=access_config(**more), disk=disk)


def file_text(disk: RecordingDisk, path: str) -> bytes:
    return disk.open(path, write=False).read(0, 1 << 20)


def test_users_are_made_changed_shown_and_deleted() -> None:
    async def main(kit: BrokerKit) -> None:
        root = AccessClient(kit)
        secret = secret_of("bob")
        body = UserInfo(username="other", password=secret, user_type="Normal", user_status="enable").encode()
        made = await root.ask(_R.AUTH_CREATE_USER, {"username": "bob"}, body)
        assert (made.code, made.remark) == (0, "not set any response code")
        again = await root.ask(_R.AUTH_CREATE_USER, {"username": "bob"}, body)
        assert (again.code, again.remark) == (16, "The user is existed")
        shown = await root.ask(_R.AUTH_GET_USER, {"username": "bob"})
        assert json.loads(shown.body) == {
            "username": "bob", "password": secret, "userType": "Normal", "userStatus": "enable",
        }  # fmt: skip
        assert (await root.ask(_R.AUTH_UPDATE_USER, {"username": "bob"}, b'{"userStatus":"DISABLE"}')).code == 0
        assert json.loads((await root.ask(_R.AUTH_GET_USER, {"username": "bob"})).body)["userStatus"] == "disable"
        listed = json.loads((await root.ask(_R.AUTH_LIST_USER, {"filter": "o"})).body)
        assert [one["username"] for one in listed] == ["bob", "root"]
        nobody = await root.ask(_R.AUTH_LIST_USER, {"filter": "zz"})
        assert (nobody.code, nobody.body) == (0, b"")
        missing = await root.ask(_R.AUTH_UPDATE_USER, {"username": "no"}, b"{}")
        assert (missing.code, missing.remark) == (16, "The user is not exist")
        for code in (_R.AUTH_CREATE_USER, _R.AUTH_UPDATE_USER, _R.AUTH_GET_USER):
            blank = await root.ask(code, {})
            assert (blank.code, blank.remark) == (29, "The username is blank")
        for _ in range(2):
            assert (await root.ask(_R.AUTH_DELETE_USER, {"username": "bob"})).code == 0
        assert (await root.ask(_R.AUTH_GET_USER, {"username": "bob"})).body == b""

    run(main)


def test_policies_are_made_changed_shown_and_deleted() -> None:
    async def main(kit: BrokerKit) -> None:
        root = AccessClient(kit)
        entry = '{"resource":"Topic:a*","actions":["Pub","Sub"],"sourceIps":["10.0.0.0/8"],"decision":"Allow"}'
        body = f'{{"policies":[{{"policyType":"Custom","entries":[{entry}]}}]}}'.encode()
        subject = {"subject": "User:bob"}
        none = await root.ask(_R.AUTH_CREATE_ACL, subject, body)
        assert (none.code, none.remark) == (16, "The subject of User:bob is not exist.")
        await add_user(root, "bob")
        empty = await root.ask(_R.AUTH_GET_ACL, subject)
        assert (empty.code, empty.body) == (0, b"")
        assert (await root.ask(_R.AUTH_CREATE_ACL, subject, body)).code == 0
        assert json.loads((await root.ask(_R.AUTH_GET_ACL, subject)).body) == {
            "subject": "User:bob",
            "policies": [
                {
                    "policyType": "Custom",
                    "entries": [
                        {
                            "resource": "Topic:a*", "actions": ["Pub", "Sub"], "sourceIps": ["10.0.0.0/8"],
                            "decision": "Allow",
                        }
                    ],
                }
            ],
        }  # fmt: skip
        assert (await root.ask(_R.AUTH_UPDATE_ACL, subject, body.replace(b"Topic:a*", b"Group:g"))).code == 0
        listed = json.loads((await root.ask(_R.AUTH_LIST_ACL, {"resourceFilter": "Group"})).body)
        assert [one["resource"] for one in listed[0]["policies"][0]["entries"]] == ["Group:g"]
        assert (await root.ask(_R.AUTH_LIST_ACL, {"subjectFilter": "zz"})).body == b""
        assert (await root.ask(_R.AUTH_DELETE_ACL, {**subject, "resource": "Group:g"})).code == 0
        assert (await root.ask(_R.AUTH_DELETE_ACL, subject)).code == 0
        gone = await root.ask(_R.AUTH_DELETE_ACL, subject)
        assert (gone.code, gone.remark) == (16, "The acl is not exist.")
        for wrong in (b"", b"{}", b'{"policies":[]}'):
            assert (await root.ask(_R.AUTH_CREATE_ACL, subject, wrong)).remark == "The body of acl is null"
        for before, after in (
            ("Topic:a*", "Topic:T*x*"),
            ('"Pub"', '"Sbu"'),
            ("10.0.0.0/8", "ten"),
            ("Allow", "Maybe"),
        ):
            refused = await root.ask(_R.AUTH_CREATE_ACL, subject, body.replace(before.encode(), after.encode()))
            assert refused.code == ResponseCode.INVALID_PARAMETER, refused
        assert (await root.ask(_R.AUTH_GET_ACL, subject)).body == b""

    run(main)


def test_a_user_whose_name_looks_like_a_subject_sees_only_himself() -> None:
    async def main(kit: BrokerKit) -> None:
        root = AccessClient(kit)
        await add_user(root, "User:root")
        await add_user(root, "bob")
        await grant(root, "bob", "Topic:t", "Pub")
        for name in ("bob", "User:bob", "User:root"):
            if name == "User:bob":
                await add_user(root, name)
            one = AccessClient(kit, name)
            assert (await one.ask(_R.AUTH_GET_USER, {"username": name})).code == 0
            assert (await one.ask(_R.AUTH_GET_ACL, {"subject": f"User:{name}"})).code == 0
        odd = AccessClient(kit, "User:bob")
        assert (await odd.ask(_R.AUTH_GET_ACL, {"subject": "User:bob"})).code == 16
        assert (await AccessClient(kit, "bob").ask(_R.AUTH_GET_USER, {"username": "User:bob"})).code == 16

    run(main)


def test_password_only_to_super() -> None:
    """Test 14."""

    async def main(kit: BrokerKit) -> None:
        root = AccessClient(kit)
        await add_user(root, "viewer")
        await grant(root, "viewer", "Cluster:DefaultCluster", "All")
        viewer, inner = AccessClient(kit, "viewer"), AccessClient(kit, "inner")
        for code, ext in ((_R.AUTH_GET_USER, {"username": "root"}), (_R.AUTH_LIST_USER, {})):
            seen = await viewer.ask(code, ext)
            assert seen.code == 0
            assert b"root" in seen.body
            assert b"password" not in seen.body
            assert secret_of("root").encode() in (await inner.ask(code, ext)).body
        # What shows settings shows no secret, to nobody.
        for client in (viewer, inner, root):
            for code in (_R.GET_BROKER_CONFIG, _R.GET_BROKER_RUNTIME_INFO):
                body = (await client.ask(code)).body
                assert not any(secret.encode() in body for secret in SECRETS)
        # A right on the cluster is no right to change users.
        for code in (3001, 3002, 3003, 3006, 3007, 3008):
            answer = await viewer.ask(code, {"username": "viewer", "subject": "User:viewer"}, b'{"userType":"Super"}')
            assert (answer.code, "only a Super user may" in (answer.remark or "")) == (16, True)

    run(main)


def test_last_super_cannot_go_over_the_wire() -> None:
    async def main(kit: BrokerKit) -> None:
        root = AccessClient(kit)
        assert (await root.ask(_R.AUTH_DELETE_USER, {"username": "inner"})).code == 0
        for code, body in ((3003, b""), (3002, b'{"userStatus":"disable"}'), (3002, b'{"userType":"Normal"}')):
            answer = await root.ask(code, {"username": "root"}, body)
            assert (answer.code, "last enabled Super user" in (answer.remark or "")) == (16, True)

    run(main)


# -- files


def test_users_outlive_a_kill_and_are_never_changed_by_the_settings() -> None:
    disk = RecordingDisk(seed=1)

    async def first(kit: BrokerKit) -> None:
        root = AccessClient(kit)
        await add_user(root, "bob")
        await grant(root, "bob", "Topic:t", "Pub")
        assert (await root.ask(_R.AUTH_UPDATE_USER, {"username": "root"}, b'{"password":"new"}')).code == 0

    async def second(kit: BrokerKit) -> None:
        assert (await AccessClient(kit).ask(_R.GET_BROKER_CONFIG)).code == 16
        root = AccessClient(kit, "root", "new")
        assert (await root.ask(_R.GET_BROKER_CONFIG)).code == 0
        assert (await root.ask(_R.AUTH_GET_ACL, {"subject": "User:bob"})).body != b""

    run(first, disk)
    run(second, disk)
    assert {"users.json", "acls.json"} <= set(disk.listdir("/store/config"))
    assert not [name for name in disk.listdir("/store/config") if name.startswith(("users.json.", "acls.json."))]


def test_a_changed_file_counts_within_a_second() -> None:
    disk = RecordingDisk(seed=1)

    async def main(kit: BrokerKit) -> None:
        assert kit.access is not None
        root = AccessClient(kit)
        await add_user(root, "bob")
        text = file_text(disk, USERS)
        disk.open(USERS).write(0, text.replace(secret_of("bob").encode(), secret_of("boB").encode()))
        kit.access.tick(kit.clock.monotonic() + 2)
        await kit.pass_time(0.1)
        assert (await AccessClient(kit, "bob").ask(_R.GET_ALL_TOPIC_CONFIG)).code == 16
        assert (await AccessClient(kit, "bob", secret_of("boB")).ask(_R.GET_ALL_TOPIC_CONFIG)).code == 0
        # A file that cannot be understood changes nothing.
        disk.open(USERS).write(0, b"x")
        kit.access.tick(kit.clock.monotonic() + 4)
        assert (await AccessClient(kit, "bob", secret_of("boB")).ask(_R.GET_ALL_TOPIC_CONFIG)).code == 0

    run(main, disk)


@pytest.mark.parametrize("text", [b"x", b"", b"{}", b"\0" * 40])
def test_a_file_that_cannot_be_understood_stops_the_start(text: bytes) -> None:
    disk = RecordingDisk(seed=1)

    async def main(kit: BrokerKit) -> None:
        await add_user(AccessClient(kit), "bob")

    run(main, disk)
    file = disk.open(USERS)
    file.truncate(0)
    file.write(0, text)
    root = AccessRoot(access_config(), disk, VirtualClock(lambda: 0.0), "/store/config", "c", BROKER_ROWS)
    with pytest.raises(StoreError, match=r"users\.json"):
        root.open()


def test_acl_files_survive_any_crash() -> None:
    """Test 18: the power goes at each call of a change in turn; every image has the users and rights of before or of
    after, and never more of either."""
    images = 0
    clock = VirtualClock(lambda: 0.0)

    def root_of(disk: RecordingDisk) -> AccessRoot:
        return AccessRoot(access_config(), disk, clock, "/store/config", "c", BROKER_ROWS)

    for nth in range(1, 60):
        disk = RecordingDisk(seed=nth)
        disk.make_dirs("/store")
        disk.sync_everything()
        root = root_of(disk)
        root.open()
        from aerobee.access.directory import UserChange, created_user, deleted_user, put_entries
        from aerobee.access.policies import PolicyEntry, PolicyType

        before = created_user(root.access.tables, UserChange("bob", secret_of("bob")))
        before = put_entries(before, "bob", [(PolicyType.CUSTOM, [PolicyEntry.of("*", ["All"], (), "Allow")])])
        root.files.save(before)
        after = created_user(deleted_user(before, "bob"), UserChange("eve", secret_of("eve")))
        disk.fail(nth, times=None)
        try:
            root.files.save(after)
            done = True
        except (OSError, StoreError):
            done = False
        disk.heal()
        for image in disk.crash_images(nth, per_mode=3):
            again = root_of(image.disk)
            again.open()
            found = again.access.tables
            assert found.users in ((after.users,) if done else (before.users, after.users))
            assert found.acls in ((after.acls,) if done else (before.acls, after.acls))
            # Rights never outlive their user.
            assert not ("bob" in found.acls and "bob" not in found.users)
            images += 1
        if done:
            break
    else:
        raise AssertionError("the save never ran to its end")
    assert images > 50


# -- plain_acl.yml at the start


def test_the_accounts_of_plain_acl_are_taken_at_the_start(tmp_path: Path) -> None:
    file = tmp_path / "plain_acl.yml"
    account = f"accounts:\n  - accessKey: old\n    secretKey: {secret_of('old')}\n"
    file.touch(0o600)
    file.write_text(f"{account}    topicPerms:\n      - t=PUB\n")
    more: dict[str, Any] = {"migrate_auth_from_v1_enabled": True, "acl_file": str(file)}

    async def main(kit: BrokerKit) -> None:
        old = AccessClient(kit, "old")
        assert (await old.ask(_R.GET_ALL_TOPIC_CONFIG)).code == 0
        assert b"Topic:t" in (await old.ask(_R.AUTH_GET_ACL, {"subject": "User:old"})).body

    run(main, **more)
    file.write_text(f"{account}    defaultTopicPerm: ALL\n")
    with pytest.raises(ConfigError, match="'ALL' of old is no permission"):
        run(main, **more)


# -- audit


def test_audit_names_every_change(tmp_path: Path) -> None:
    """Test 25."""
    path = tmp_path / "audit" / "audit.log"

    async def main(kit: BrokerKit) -> None:
        root = AccessClient(kit)
        await add_user(root, "bob")
        await grant(root, "bob", "Topic:t", "Pub")
        await root.ask(_R.AUTH_UPDATE_USER, {"username": "bob"}, UserInfo(password=secret_of("bob-2")).encode())
        topic = {
            "topic": "t", "defaultTopic": "TBW102", "readQueueNums": "4", "writeQueueNums": "4", "perm": "6",
            "topicFilterType": "SINGLE_TAG",
        }  # fmt: skip
        await root.ask(_R.UPDATE_AND_CREATE_TOPIC, topic)
        await root.ask(_R.UPDATE_AND_CREATE_TOPIC, {**topic, "perm": "4"})
        await root.ask(_R.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, b'{"groupName":"g","retryQueueNums":1}')
        await root.ask(_R.UPDATE_BROKER_CONFIG, {}, b"traceOn=false\n")
        await root.ask(_R.DELETE_SUBSCRIPTIONGROUP, {"groupName": "g"})
        await root.ask(_R.DELETE_TOPIC_IN_BROKER, {"topic": "t"})
        await root.ask(_R.AUTH_DELETE_ACL, {"subject": "User:bob"})
        await root.ask(_R.AUTH_DELETE_USER, {"username": "bob"})
        wrong = AccessClient(kit, "bob")
        for _ in range(30):
            try:
                await wrong.ask(_R.GET_BROKER_CONFIG)
            except AssertionError:
                wrong = AccessClient(kit, "bob")  # closed: too many wrong signatures

    run(main, audit_log_path=str(path))
    text = path.read_text()
    assert path.stat().st_mode & 0o777 == 0o600
    events = [json.loads(line) for line in text.splitlines()]
    changes = [event for event in events if event["event"] == "admin"]
    assert [event["code"].split()[0] for event in changes] == [
        "3001", "3006", "3002", "17", "17", "200", "25", "207", "215", "3008", "3003",
    ]  # fmt: skip
    assert all(event["user"] == "root" and event["source"] == "10.0.0.9" and event["time"] for event in changes)
    made, granted, changed, topic_made, topic_changed, group_made, setting, group_gone, topic_gone, *rest = changes
    assert made.get("before") is None and made["after"]["type"] == "Normal"
    assert granted["after"]["rules"] == ["Custom: Allow Pub on Topic:t"]
    assert changed["after"]["passwordChanged"] is True
    assert (topic_made["before"]["t"], topic_made["after"]["t"]["perm"]) == (None, 6)
    assert (topic_changed["before"]["t"]["perm"], topic_changed["after"]["t"]["perm"]) == (6, 4)
    assert (group_made["before"]["g"], group_made["after"]["g"]["retryQueueNums"]) == (None, 1)
    assert (setting["before"], setting["after"]) == ({"traceOn": "true"}, {"traceOn": "false"})
    assert (group_gone["after"]["g"], topic_gone["after"]["t"]) == (None, None)
    assert rest[0]["after"]["rules"] == [] and "after" not in rest[1]
    refused = [event for event in events if event.get("decision") == "refused"]
    assert 10 <= len(refused) < 30
    assert not any(secret in text for secret in (*SECRETS, secret_of("bob"), secret_of("bob-2")))


def test_made_up_names_do_not_flood_the_audit_log(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"

    async def main(kit: BrokerKit) -> None:
        root = AccessClient(kit)
        await root.ask(_R.GET_BROKER_CONFIG)
        assert kit.access is not None
        for number in range(500):
            kit.access.audit.refused_login(f"name{number}", "10.0.0.9", 10, "no such user")
        # Users that take turns on one connection are noted once each.
        for _ in range(5):
            for name in ("root", "inner"):
                root.user = name
                await root.ask(_R.GET_BROKER_CONFIG)

    run(main, audit_log_path=str(path))
    events = [json.loads(line) for line in path.read_text().splitlines()]
    assert sum(event.get("decision") == "refused" for event in events) == 10
    assert sorted(event["user"] for event in events if event.get("decision") == "allowed") == ["inner", "root"]


def test_a_password_in_a_file_is_read_as_it_is() -> None:
    assert read_users(b'{"users":[{"username":"a","password":"p\\"q"}]}')["a"].password == 'p"q'
