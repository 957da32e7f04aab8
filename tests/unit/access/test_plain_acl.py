"""plain_acl.yml of RocketMQ 4 becomes users and policies, as by Apache's migration, or the import stops."""

from __future__ import annotations

import pytest

from aerobee.access.directory import UserDirectory
from aerobee.access.forms import acl_info
from aerobee.access.plainacl import imported, read_plain_acl
from aerobee.access.refusal import AccessRefusedError
from aerobee.access.users import UserType
from aerobee.testing.accesskit import PLAIN_ACL


def test_plain_acl_import() -> None:
    found = read_plain_acl(PLAIN_ACL)
    assert len(found.dropped) == 2
    assert "10.10.103.*" in found.dropped[0]
    assert "192.168.1.*" in found.dropped[1]
    tables, kept = imported(UserDirectory(), found)
    assert kept == ()
    assert [(one.name, one.password, one.type) for one in tables.users.values()] == [
        ("RocketMQ", "12345678", UserType.NORMAL),
        ("rocketmq2", "12345678", UserType.SUPER),
    ]
    assert "rocketmq2" not in tables.acls
    shown = acl_info(tables.acls["RocketMQ"]).to_json()
    assert shown == {
        "subject": "User:RocketMQ",
        "policies": [
            {
                "policyType": "Custom",
                "entries": [
                    {"resource": "Topic:topicA", "actions": ["All"], "decision": "Deny"},
                    {"resource": "Topic:topicB", "actions": ["Pub", "Sub"], "decision": "Allow"},
                    {"resource": "Topic:topicC", "actions": ["Sub"], "decision": "Allow"},
                    {"resource": "Group:groupA", "actions": ["All"], "decision": "Deny"},
                    {"resource": "Group:groupB", "actions": ["Pub", "Sub"], "decision": "Allow"},
                    {"resource": "Group:groupC", "actions": ["Sub"], "decision": "Allow"},
                ],
            },
            {
                "policyType": "Default",
                "entries": [
                    {"resource": "Topic:*", "actions": ["All"], "decision": "Deny"},
                    {"resource": "Group:*", "actions": ["Sub"], "decision": "Allow"},
                ],
            },
        ],
    }
    # Users that exist stay as they are.
    again, kept = imported(tables, found)
    assert (again, kept) == (tables, ("RocketMQ", "rocketmq2"))


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        ("topicC=SUB", "topicC=PUBSUB", "'PUBSUB' of RocketMQ is no permission"),
        ("defaultGroupPerm: SUB", "defaultGroupPerm: ANY", "'ANY' of RocketMQ is no permission"),
        ("topicC=SUB", "topicC", "not of the form name=PUB|SUB"),
        # Once it is stored, `Topic:topic*` would be read as a prefix.
        ("topicC=SUB", "topic*=SUB", "has a star"),
        ("topicC=SUB", "'*=SUB'", "has a star"),
        ("groupC=SUB", "'%RETRY%=SUB'", "is not of the form"),
        ("admin: false", "admin: maybe", "neither true nor false"),
        ("admin: false", "admni: false", "unknown key 'admni'"),
        ("accounts:", "accounts: 3", "line"),
        ("secretKey: 12345678\n    whiteRemoteAddress:\n", "whiteRemoteAddress:\n", "password can not be blank"),
        ("rocketmq2", "RocketMQ", "twice"),
        ("topicA=DENY", "{a: b}", "YAML that is not understood"),
    ],
)
def test_what_is_not_understood_stops_the_import(before: str, after: str, words: str) -> None:
    assert before in PLAIN_ACL
    with pytest.raises(AccessRefusedError) as refused:
        read_plain_acl(PLAIN_ACL.replace(before, after))
    assert words in str(refused.value)
    assert "12345678" not in str(refused.value)


def test_other_ways_to_write_it() -> None:
    text = "accounts:\n- accessKey: 'a'\n  secretKey: \"b # c\"  # words\n  topicPerms:\n  - t=PUB\n"
    tables, _ = imported(UserDirectory(), read_plain_acl(text))
    assert tables.users["a"].password == "b # c"
    assert list(tables.acls) == ["a"]
    assert read_plain_acl("").accounts == ()


def test_text_of_any_kind_is_refused_in_words() -> None:
    for text in ("\t- a", "- a", "a", ":", "a:\n - b\n  c", "accounts:\n  -\n   - a", "x" * 10, "accounts:\n  - a: [1"):
        with pytest.raises(AccessRefusedError):
            read_plain_acl(text)
