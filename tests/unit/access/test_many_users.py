"""Very many users, bodies that make no sense, floods of wrong signatures: the others are served as before."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import TypeVar

import pytest

from aerobee.access import files as files_module
from aerobee.access.audit import Audit
from aerobee.access.directory import UserDirectory
from aerobee.access.door import Access
from aerobee.access.files import AccessFiles
from aerobee.access.forms import acl_info, acls_of_list, user_info
from aerobee.access.policies import Acl, PolicyEntry, PolicyType
from aerobee.access.refusal import AccessRefusedError
from aerobee.access.users import User, UserType
from aerobee.model.dialect import Slices, dumps, run_slices
from aerobee.protocol.codes import RequestCode, ResponseCode
from aerobee.testing.accesskit import AccessClient, access_config, add_user, grant
from aerobee.testing.brokerkit import BrokerKit, run_broker
from aerobee.testing.clock import VirtualClock

T = TypeVar("T")
_R = RequestCode


class Kept:
    """A file in memory whose saves may fail."""

    path = "memory"

    def __init__(self) -> None:
        self.problems: list[str] = []
        self.content = b""
        self.is_full = False
        self.reads = 0

    def load(self, decode: Callable[[bytes], T]) -> T | None:
        return decode(self.content) if self.content else None

    def save(self, content: bytes) -> None:
        if self.is_full:
            raise OSError(28, "No space left on device")
        self.content = content

    def submit(self, content: bytes, done: Callable[[OSError | None], None]) -> None:
        try:
            self.save(content)
        except OSError as error:
            done(error)
        else:
            done(None)


class Bench:
    def __init__(self) -> None:
        clock = VirtualClock(lambda: 0.0)
        self.access = Access(access_config(), "C", Audit(clock, lambda event: None))
        self.users, self.acls = Kept(), Kept()
        self.files = AccessFiles(self.access, self.users, self.acls, clock)


def directory(count: int, *actions: str) -> UserDirectory:
    users = {"root": User("root", "secret", UserType.SUPER)}
    acls = {}
    for number in range(count):
        name = f"u{number}"
        users[name] = User(name, "secret")
        entry = PolicyEntry.of("Topic:t", actions, ("10.0.0.0/8",), "Allow")
        acls[name] = Acl(name).with_entries(PolicyType.CUSTOM, (entry,))
    return UserDirectory(users, acls)


def test_files_that_have_not_changed_are_not_decoded_again() -> None:
    """They are looked at every second: with 10,000 users that would hold up the loop for seconds each time."""
    bench = Bench()
    bench.files.save(directory(2_000, "Pub"))
    epoch, users, acls = bench.access.epoch, bench.access.tables.users, bench.access.tables.acls
    assert not asyncio.run(bench.files.look())
    assert bench.access.tables.users is users and bench.access.epoch == epoch
    # One that has changed is.
    bench.users.content = bench.users.content.replace(b'"u7"', b'"v7"')
    assert asyncio.run(bench.files.look())
    assert "v7" in bench.access.tables.users and bench.access.epoch == epoch + 1
    assert bench.access.tables.acls is acls


def test_no_slice_of_very_many_users_is_long() -> None:
    """10,000 users with 120,000 entries, and one user with 10,000: a change, a list, and files that somebody else wrote
    take seconds, of which the loop is held by a few entries at a time."""
    bench = Bench()
    entries = [PolicyEntry.of(f"Topic:t{number}", ("Pub", "Sub"), ("10.0.0.0/8",), "Allow") for number in range(10_000)]
    users = {f"u{number}": User(f"u{number}", "secret") for number in range(10_000)}
    users["root"] = User("root", "secret", UserType.SUPER)
    acls = {
        name: Acl(name).with_entries(PolicyType.CUSTOM, entries[:12] if name != "u7" else entries) for name in users
    }
    tables = UserDirectory(users, acls)
    # What is counted are turns: times depend on the machine.
    assert turns(bench.files._encoded(tables)) > 1_000
    bench.files.save(tables)
    # One user has changed, so one text is made.
    assert turns(bench.files._encoded(tables.with_user(User("u8", "other")))) < 100
    assert turns(bench.files.texts.acls_list(tables)) < 100
    bench.files._content = (b"", b"")
    assert turns(bench.files._decoded((bench.users.content, bench.acls.content))) > 10_000


def turns(slices: Slices[object]) -> int:
    """Do the work; return how often it paused."""
    found = 0
    try:
        while True:
            next(slices)
            found += 1
    except StopIteration:
        return found


def test_texts_are_what_bodies_of_answers_are() -> None:
    bench = Bench()
    tables = directory(3, "Pub", "Sub")
    odd = Acl("u1").with_entries(PolicyType.DEFAULT, (PolicyEntry.of('Topic:"q"', ("All",), (), "Deny"),))
    tables = UserDirectory(tables.users, {**tables.acls, "u1": odd})
    expected = dumps([acl_info(tables.acls[name]).to_json() for name in sorted(tables.acls)])
    assert run_slices(bench.files.texts.acls_list(tables)) == expected
    expected = dumps([user_info(tables.users[name], with_password=True).to_json() for name in sorted(tables.users)])
    assert run_slices(bench.files.texts.users_list(tables)) == expected
    assert run_slices(bench.files.texts.users_list(UserDirectory())) == b""
    assert run_slices(acls_of_list(run_slices(bench.files.texts.acls_list(tables)))) == tables.acls


def test_changes_at_the_same_time_are_made_one_after_the_other() -> None:
    async def main() -> None:
        bench = Bench()
        bench.files.save(directory(300, "Pub"))

        def made(name: str) -> Callable[[UserDirectory], UserDirectory]:
            return lambda tables: tables.with_user(User(name, "secret"))

        await asyncio.gather(*(bench.files.change(made(f"n{number}")) for number in range(20)), bench.files.look())
        assert sum(name.startswith("n") for name in bench.access.tables.users) == 20
        again = AccessFiles(bench.access, bench.users, bench.acls, VirtualClock(lambda: 0.0))
        again.load()
        assert sum(name.startswith("n") for name in bench.access.tables.users) == 20

    asyncio.run(main())


def test_a_save_that_fails_half_way_leaves_what_the_files_hold() -> None:
    bench = Bench()
    bench.files.save(directory(2, "Pub", "Sub"))
    bench.users.is_full = True
    fewer = directory(1, "Sub")
    with pytest.raises(OSError, match="No space left"):
        asyncio.run(bench.files.change(lambda _: fewer))
    # The rights are written, the users are not; the next look goes on with that.
    assert asyncio.run(bench.files.look())
    assert len(bench.access.tables.users) == 3
    assert list(bench.access.tables.acls) == ["u0"]
    bench.users.is_full = False
    asyncio.run(bench.files.change(lambda _: fewer))
    again = AccessFiles(bench.access, bench.users, bench.acls, VirtualClock(lambda: 0.0))
    again.load()
    assert bench.access.tables == fewer


def test_more_than_a_start_would_read_is_not_saved(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench()
    bench.files.save(directory(3, "Pub"))
    before = bench.access.tables, bench.users.content, bench.acls.content
    monkeypatch.setattr(files_module, "FILE_SIZE_MAX", 5_000)
    with pytest.raises(AccessRefusedError, match="use prefixes"):
        asyncio.run(bench.files.change(lambda _: directory(100, "Pub")))
    assert (bench.access.tables, bench.users.content, bench.acls.content) == before


def run(main) -> None:  # type: ignore[no-untyped-def]
    run_broker(main, access=access_config())


_DEEP = b'{"policies":' + b"[" * 30_000 + b"]" * 30_000 + b"}"


@pytest.mark.parametrize(
    "body",
    [
        b"x" * 65_537,
        b"\xff" * 60_000,
        _DEEP,
        b'{"policies":[{"entries":[' + b",".join([b"{}"] * 20_000) + b"]}]}",
        json.dumps({"policies": [{"entries": [{"resource": "Topic:" + "9" * 5000, "actions": ["Pub"]}]}]}).encode(),
        json.dumps({"policies": [{"entries": [{"resource": "*", "actions": ["Pub"], "sourceIps": ["a/b"]}]}]}).encode(),
        json.dumps({"policies": [{"entries": [{"resource": "*", "actions": ["P" * 9000]}]}]}).encode(),
        json.dumps({"policies": 7}).encode(),
        json.dumps({"policies": [{"entries": [{"resource": 9**999, "actions": {}}]}]}).encode(),
    ],
)
def test_rights_that_make_no_sense_change_nothing(body: bytes) -> None:
    async def main(kit: BrokerKit) -> None:
        root = AccessClient(kit)
        await add_user(root, "bob")
        await grant(root, "bob", "Topic:t", "Pub")
        assert kit.access is not None
        before = kit.access.access.tables
        for code in (_R.AUTH_CREATE_ACL, _R.AUTH_UPDATE_ACL):
            answer = await root.ask(code, {"subject": "User:bob"}, body)
            assert answer.code != 0
            assert len(answer.remark or "") < 1_000
        assert kit.access.access.tables == before
        for user in ("a/b", "9" * 5000, "", " ", "x\n", "../root"):
            asked = {"username": user, "subject": f"User:{user}"}
            for code in (_R.AUTH_GET_USER, _R.AUTH_GET_ACL, _R.AUTH_DELETE_ACL, _R.AUTH_DELETE_USER):
                await root.ask(code, asked)
        assert kit.access.access.tables == before

    run(main)


def test_a_flood_of_wrong_signatures_leaves_others_alone() -> None:
    async def main(kit: BrokerKit) -> None:
        root = AccessClient(kit)
        assert kit.access is not None
        closed = 0
        for number in range(300):
            user = ("root", f"made-up-{number}", "9" * 5000)[number % 3]
            thief = AccessClient(kit, user, "wrong")
            assert (await thief.ask(_R.GET_BROKER_CONFIG)).code == ResponseCode.NO_PERMISSION
            closed += thief.connection.is_closed
        assert closed > 200
        # The same address, with the right secret.
        assert (await root.ask(_R.GET_BROKER_CONFIG)).code == 0
        guard = kit.access._guard
        assert guard is not None
        assert len(guard._penalties._records) == 1

    run(main)
