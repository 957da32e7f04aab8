"""Users and their policies: what changes of them are allowed, and how files and bodies write them."""

from __future__ import annotations

import pytest

from aerobee.access.directory import (
    UserChange,
    UserDirectory,
    created_user,
    deleted_entries,
    deleted_user,
    put_entries,
    updated_user,
)
from aerobee.access.forms import read_acls, read_users
from aerobee.access.policies import Acl, PolicyEntry, PolicyType, Resource
from aerobee.access.refusal import AccessRefusedError
from aerobee.access.texts import TableTexts
from aerobee.access.users import User, UserStatus, UserType, name_of
from aerobee.model.dialect import run_slices


def _directory() -> UserDirectory:
    found = created_user(UserDirectory(), UserChange("root", "secret-1", UserType.SUPER))
    return created_user(found, UserChange("bob", "secret-2"))


def _with_rights(tables: UserDirectory, resource: str = "Topic:a") -> UserDirectory:
    return put_entries(tables, "bob", [(PolicyType.CUSTOM, [PolicyEntry.of(resource, ["Pub"], (), "Allow")])])


@pytest.mark.parametrize(
    "change",
    [
        lambda tables: deleted_user(tables, "root"),
        lambda tables: updated_user(tables, UserChange("root", status=UserStatus.DISABLE)),
        lambda tables: updated_user(tables, UserChange("root", type=UserType.NORMAL)),
    ],
    ids=["delete", "disable", "demote"],
)
def test_last_super_cannot_go(change) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(AccessRefusedError, match="last enabled Super user"):
        change(_directory())
    # A disabled one does not count; another enabled one does.
    disabled = created_user(_directory(), UserChange("off", "secret-3", UserType.SUPER, UserStatus.DISABLE))
    with pytest.raises(AccessRefusedError, match="last enabled Super user"):
        change(disabled)
    change(created_user(_directory(), UserChange("two", "secret-3", UserType.SUPER)))


def test_a_new_user_does_not_get_the_rights_of_an_older_one_of_that_name() -> None:
    left = UserDirectory(_directory().users, _with_rights(_directory()).acls)
    without = UserDirectory({"root": left.users["root"]}, left.acls)
    assert created_user(without, UserChange("bob", "secret-4")).acls == {}


def test_a_deleted_user_leaves_no_rights() -> None:
    assert deleted_user(_with_rights(_directory()), "bob").acls == {}


def test_an_entry_takes_the_place_of_one_for_the_same_resource() -> None:
    tables = _with_rights(_with_rights(_directory()), "Topic:b")
    tables = put_entries(tables, "bob", [(PolicyType.CUSTOM, [PolicyEntry.of("Topic:a", ["Sub"], (), "Deny")])])
    assert [str(one) for one in tables.acls["bob"].entries(PolicyType.CUSTOM)] == [
        "Deny Sub on Topic:a",
        "Allow Pub on Topic:b",
    ]
    tables = deleted_entries(tables, "bob", resource=Resource.parse("Topic:a"))
    assert [str(one) for one in tables.acls["bob"].entries(PolicyType.CUSTOM)] == ["Allow Pub on Topic:b"]
    assert deleted_entries(tables, "bob", resource=Resource.parse("Topic:b")).acls == {}
    assert deleted_entries(tables, "bob").acls == {}


@pytest.mark.parametrize("name", ["", " ", "a,b", "a/b", " a", "a\n", "x" * 200])
def test_a_user_needs_a_plain_name(name: str) -> None:
    with pytest.raises(AccessRefusedError):
        created_user(_directory(), UserChange(name, "secret"))


def test_a_password_is_never_shown_by_accident() -> None:
    tables = _directory()
    assert "secret" not in repr(tables) + str(tables.users["bob"]) + repr(UserChange("bob", "x"))


def test_files_hold_everything() -> None:
    tables = _with_rights(_directory())
    tables = put_entries(
        tables, "bob", [(PolicyType.DEFAULT, [PolicyEntry.of("*", ["Get", "List"], ["10.0.0.0/8"], "Deny")])]
    )
    texts = TableTexts()
    again = UserDirectory(
        read_users(run_slices(texts.users_file(tables))), read_acls(run_slices(texts.acls_file(tables)))
    )
    assert again == tables
    assert read_users(run_slices(texts.users_file(UserDirectory()))) == {}


@pytest.mark.parametrize(
    "text",
    [
        "[]", "{}", '{"users":[{"username":"a"}]}', '{"users":[{"username":"a","password":"p","userType":"Root"}]}',
        '{"users":[{"username":"a","password":"p"},{"username":"a","password":"q"}]}', '{"users":{}}',
    ],
)  # fmt: skip
def test_a_file_that_cannot_be_understood_is_refused_as_a_whole(text: str) -> None:
    with pytest.raises((AccessRefusedError, ValueError, Exception)):
        read_users(text.encode())


def test_a_subject_is_a_user() -> None:
    assert name_of("User:bob") == name_of("user:bob") == "bob"
    for subject in ("bob", "Group:bob", "User:", ""):
        with pytest.raises(AccessRefusedError):
            name_of(subject)


def test_an_acl_keeps_the_order_of_its_policies() -> None:
    acl = Acl("u").with_entries(PolicyType.DEFAULT, [PolicyEntry.of("Topic:*", ["Pub"], (), "Allow")])
    acl = acl.with_entries(PolicyType.CUSTOM, [PolicyEntry.of("Topic:a", ["Pub"], (), "Deny")])
    assert [kind for kind, _ in acl.policies] == [PolicyType.DEFAULT, PolicyType.CUSTOM]


def test_users_compare_by_value() -> None:
    assert User("a", "b") == User("a", "b") != User("a", "c")
