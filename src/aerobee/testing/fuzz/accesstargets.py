"""Targets of fuzzing: signatures, users and policies, as clients, tools and files bring them."""

from __future__ import annotations

from aerobee.access.forms import acl_info, acl_of, read_acls, read_users
from aerobee.access.plainacl import read_plain_acl
from aerobee.access.policies import (
    Acl,
    Action,
    Pattern,
    PolicyDecision,
    PolicyEntry,
    PolicyType,
    Resource,
    ResourceKind,
)
from aerobee.access.sources import network_of
from aerobee.access.verdicts import Claim, deciding
from aerobee.dashboard.security import Role
from aerobee.dashboard.usersfile import UsersFile, line_of
from aerobee.errors import AerobeeError, ConfigError, ProtocolError
from aerobee.hot.wire.frame import scan
from aerobee.hot.wire.signed import SigningKey, scan_signed
from aerobee.protocol.bodies.access import AclInfo, UserInfo
from aerobee.protocol.codes import FOR_SOURCE_FIELD, FOR_USER_FIELD
from aerobee.protocol.command import Command, decode_command, encode_command
from aerobee.protocol.signing import SIGNATURE, digest_of, signer
from aerobee.proxy.rights import credential_of

_SECRET = b"secret"
_KEY = SigningKey(_SECRET)
_EXT = {
    "a": "P", "b": "orders", "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "17", "h": "0",
    "i": "UNIQ_KEY\x01C0\x02TAGS\x01a\x02", "consumerGroup": "G", "topic": "t",
}  # fmt: skip


def signed_frames() -> list[bytes]:
    """Return signed frames of both codecs."""
    found = []
    for codec in (0, 1):
        for code in (10, 11, 310):
            command = Command(code, 7, 0, dict(_EXT), b"body", codec=codec)
            signer("bob", _SECRET.decode())(command)
            found.append(encode_command(command))
        fronted = Command(310, 7, 0, {**_EXT, FOR_USER_FIELD: "eve", FOR_SOURCE_FIELD: "10.0.0.1"}, codec=codec)
        signer("bob", _SECRET.decode())(fronted)
        found.append(encode_command(fronted))
    return found


def read_signed(data: bytes) -> None:
    """Check a frame in the short way. What it takes must be what the general way takes."""
    frames, _, _ = scan(data, 0)
    for frame in frames:
        for second in (False, True):
            found = scan_signed(frame, second)
            if found is None or not found.is_by(_KEY, frame):
                continue
            command = decode_command(frame)
            wanted = digest_of(_SECRET, command.ext, command.body, command.version)
            assert found.signature == wanted, "the general way has another signature"
            assert found.access_key == command.ext.get("AccessKey", "")
            assert found.topic in ("", command.ext.get("b" if second else "topic", ""))
            assert found.group in ("", command.ext.get("consumerGroup", ""))
            assert SIGNATURE in command.ext
            assert FOR_USER_FIELD not in command.ext, "the short way knows no other users"


def read_credential(data: bytes) -> None:
    """Read what a gRPC client says who it is. A signature is 20 bytes or none."""
    user, signature = credential_of(data)
    assert len(signature) in (0, 20)
    assert "/" not in user


def read_resource(data: bytes) -> None:
    """Read the resource of a policy. It is shown as it is read again, and stands for what it says and nothing else."""
    found = Resource.parse(data.decode("utf-8", "replace"))
    assert Resource.parse(str(found)) == found
    entry = PolicyEntry(found, (Action.PUB,), PolicyDecision.ALLOW)
    acl = Acl("u").with_entries(PolicyType.CUSTOM, (entry,))
    for kind in (ResourceKind.TOPIC, ResourceKind.GROUP, ResourceKind.CLUSTER):
        for name in (found.name, found.name + "x", "x" + found.name, found.name[:-1], ""):
            same = found.kind is kind and (
                found.pattern is Pattern.ANY
                or name == found.name
                or (found.pattern is Pattern.PREFIXED and name[: len(found.name)] == found.name)
            )
            allowed = deciding(acl, Claim(kind, name, (Action.PUB,)), None) is not None
            assert allowed == (same or found.kind is ResourceKind.ANY), (str(found), kind, name)


def read_accounts(data: bytes) -> None:
    """Read a plain_acl.yml. Its policies mean the same when they are read back from where they are stored."""
    for change, acl in read_plain_acl(data.decode("utf-8", "replace")).accounts:
        assert change.name == acl.user
        assert acl_of(acl_info(acl)) == acl, str(acl)


def read_people(data: bytes) -> None:
    """Read the dashboard's file of people. Nobody in it has a role that it does not know."""
    people = UsersFile("people", lambda path: data)
    for line in data.decode("utf-8", "replace").splitlines():
        role = people.role_of(line.strip().partition(":")[0])
        assert role is None or role in Role


USERS = b'{"users":[{"username":"a","password":"p","userType":"Super","userStatus":"enable"}]}'
_ACL = (
    b'{"subject":"User:a","policies":[{"policyType":"Custom","entries":[{"resource":"Topic:a*","actions":["Pub","Sub"],'
    b'"sourceIps":["10.0.0.0/8","::1"],"decision":"Allow"}]}]}'
)
ACLS = b'{"acls":[' + _ACL + b"]}"
PLAIN = (
    b"globalWhiteRemoteAddresses:\n  - 10.*\naccounts:\n- accessKey: 'a'\n  secretKey: b # c\n"
    b"  topicPerms:\n  - t=PUB\n"
)

READERS = (
    ("signed frame", signed_frames(), read_signed, (ProtocolError,)),
    ("users.json", [USERS], read_users, (AerobeeError, ValueError)),
    ("acls.json", [ACLS], read_acls, (AerobeeError, ValueError)),
    ("body of a user", [b'{"username":"a","password":"p"}'], UserInfo.decode, (AerobeeError, ValueError)),
    ("body of policies", [_ACL], lambda data: acl_of(AclInfo.decode(data)), (AerobeeError, ValueError)),
    ("gRPC credential", [b"MQv2-HMAC-SHA1 Credential=bob/r, SignedHeaders=x-mq-date-time, Signature=" + b"0a" * 20],
     read_credential, ()),
    ("policy resource", [b"Topic:a*", b"*", b"Group:%RETRY%g", b"Cluster:*"], read_resource, (AerobeeError,)),
    ("source address", [b"10.0.0.0/8", b"[::1]", b"::ffff:1.2.3.4/104"],
     lambda data: network_of(data.decode("utf-8", "replace")), (AerobeeError,)),
    ("plain_acl.yml", [PLAIN], read_accounts, (AerobeeError,)),
    ("file of people", [line_of("anna", Role.admin, "a long password", bytes).encode()], read_people, (ConfigError,)),
)  # fmt: skip
