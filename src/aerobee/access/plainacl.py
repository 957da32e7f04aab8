"""The plain_acl.yml of RocketMQ 4 as users and policies of RocketMQ 5.

The entries are those that Apache's migration makes. It is stricter in two things: an unknown word stops the import,
where Apache's allows everything; and addresses that needed no signature are named, where Apache's drops them in
silence. The reader understands the part of YAML that such files use, and refuses the rest.
RocketMQ: AuthMigrator, PlainPermissionManager.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from aerobee.access.directory import UserChange, UserDirectory, created_user
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
from aerobee.access.refusal import AccessRefusedError, invalid
from aerobee.access.users import UserType, user_problem
from aerobee.model.names import DLQ_PREFIX, RETRY_PREFIX

SIZE_MAX: Final = 4 << 20
_LINES_MAX: Final = 100_000
_PERMISSIONS: Final = {
    "PUB": ((Action.PUB,), PolicyDecision.ALLOW),
    "SUB": ((Action.SUB,), PolicyDecision.ALLOW),
    "PUB|SUB": ((Action.PUB, Action.SUB), PolicyDecision.ALLOW),
    "SUB|PUB": ((Action.PUB, Action.SUB), PolicyDecision.ALLOW),
    "DENY": ((Action.ALL,), PolicyDecision.DENY),
}
_ACCOUNT: Final = frozenset(
    (
        "accessKey", "secretKey", "whiteRemoteAddress", "admin", "defaultTopicPerm", "defaultGroupPerm", "topicPerms",
        "groupPerms",
    )
)  # fmt: skip
_TOP: Final = frozenset(("globalWhiteRemoteAddresses", "accounts", "dataVersion"))


@dataclass(frozen=True, slots=True)
class PlainAcls:
    """What a file says: accounts as changes of users with their policies, and what has no counterpart."""

    accounts: tuple[tuple[UserChange, Acl], ...]
    # Sentences for the operator.
    dropped: tuple[str, ...]


def read_plain_acl(text: str) -> PlainAcls:
    """Return the accounts of a file. Raise AccessRefusedError that names the line or the word."""
    document = _parse(text)
    unknown = set(document) - _TOP
    if unknown:
        raise invalid(f"plain_acl: unknown key {min(unknown)[:60]!r}")
    dropped = []
    whites = _texts(document.get("globalWhiteRemoteAddresses"), "globalWhiteRemoteAddresses")
    if whites:
        dropped.append(
            f"globalWhiteRemoteAddresses {', '.join(whites)[:500]}: clients there needed no signature and need one now"
        )
    accounts = document.get("accounts") or []
    if not isinstance(accounts, list) or not all(isinstance(one, dict) for one in accounts):
        raise invalid("plain_acl: accounts is not a list of accounts")
    found = []
    for account in accounts:
        change, acl, sentence = _account(account)
        found.append((change, acl))
        if sentence:
            dropped.append(sentence)
    names = [change.name for change, _ in found]
    if len(set(names)) != len(names):
        raise invalid("plain_acl: an accessKey stands there twice")
    return PlainAcls(tuple(found), tuple(dropped))


def imported(tables: UserDirectory, acls: PlainAcls) -> tuple[UserDirectory, tuple[str, ...]]:
    """Return the tables with the accounts whose users do not exist yet, and the names of those that do."""
    kept = []
    for change, acl in acls.accounts:
        if change.name in tables.users:
            kept.append(change.name)
        else:
            tables = created_user(tables, change).with_acl(acl)
    return tables, tuple(kept)


def _account(account: dict[str, Any]) -> tuple[UserChange, Acl, str]:
    unknown = set(account) - _ACCOUNT
    name, secret = str(account.get("accessKey") or ""), str(account.get("secretKey") or "")
    shown = name[:60] or "an account"
    if unknown:
        raise invalid(f"plain_acl: unknown key {min(unknown)[:60]!r} of {shown}")
    problem = user_problem(name, secret)
    if problem is not None:
        raise AccessRefusedError(f"plain_acl: {shown}: {problem}")
    admin = str(account.get("admin", "false")).lower()
    if admin not in ("true", "false"):
        raise invalid(f"plain_acl: admin of {shown} is neither true nor false")
    acl = Acl(name)
    custom = [_entry(one, ResourceKind.TOPIC, shown) for one in _texts(account.get("topicPerms"), "topicPerms")]
    custom += [_entry(one, ResourceKind.GROUP, shown) for one in _texts(account.get("groupPerms"), "groupPerms")]
    if custom:
        acl = acl.with_entries(PolicyType.CUSTOM, custom)
    default = [
        _permitted(Resource(kind, "", Pattern.ANY), str(account[key]), shown)
        for key, kind in (("defaultTopicPerm", ResourceKind.TOPIC), ("defaultGroupPerm", ResourceKind.GROUP))
        if str(account.get(key) or "").strip()
    ]
    if default:
        acl = acl.with_entries(PolicyType.DEFAULT, default)
    white = str(account.get("whiteRemoteAddress") or "").strip()
    sentence = f"whiteRemoteAddress {white[:100]} of {name}: it needed no signature and needs one now" if white else ""
    return UserChange(name, secret, UserType.SUPER if admin == "true" else UserType.NORMAL), acl, sentence


def _entry(text: str, kind: ResourceKind, account: str) -> PolicyEntry:
    name, equals, permission = text.partition("=")
    name = name.strip()
    if not equals or not name or "=" in permission:
        raise invalid(f"plain_acl: {text[:60]!r} of {account} is not of the form name=PUB|SUB")
    if kind is ResourceKind.GROUP:
        name = name.removeprefix(RETRY_PREFIX).removeprefix(DLQ_PREFIX)
    # RocketMQ 4 knows no patterns. A name with a star would be read back as one, with more rights than it had.
    if "*" in name:
        raise invalid(f"plain_acl: {text[:60]!r} of {account} has a star, which means nothing in plain_acl.yml")
    return _permitted(Resource.parse(f"{kind.value}:{name}"), permission, account)


def _permitted(resource: Resource, permission: str, account: str) -> PolicyEntry:
    found = _PERMISSIONS.get(permission.strip())
    if found is None:
        raise invalid(
            f"plain_acl: {permission.strip()[:40]!r} of {account} is no permission: PUB, SUB, PUB|SUB, SUB|PUB and "
            "DENY are"
        )
    return PolicyEntry(resource, found[0], found[1])


def _texts(value: object, key: str) -> list[str]:
    if value is None or value == "":
        return []
    if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
        raise invalid(f"plain_acl: {key} is not a list")
    return [one for one in value if one]


# -- the part of YAML that such files use: maps and lists by indentation, plain and quoted texts


@dataclass(frozen=True, slots=True)
class _Line:
    number: int
    indent: int
    text: str


def _parse(text: str) -> dict[str, Any]:
    if len(text) > SIZE_MAX:
        raise invalid(f"plain_acl: the file has more than {SIZE_MAX} characters")
    lines = []
    for number, raw in enumerate(text.splitlines(), 1):
        line = _without_comment(raw).rstrip()
        if not line.strip() or line.strip() == "---":
            continue
        if "\t" in line[: len(line) - len(line.lstrip())]:
            raise invalid(f"plain_acl: line {number} is indented by a tab")
        lines.append(_Line(number, len(line) - len(line.lstrip(" ")), line.strip()))
    if len(lines) > _LINES_MAX:
        raise invalid(f"plain_acl: the file has more than {_LINES_MAX} lines")
    if not lines:
        return {}
    value, at = _block(lines, 0, lines[0].indent)
    if at != len(lines):
        raise invalid(f"plain_acl: line {lines[at].number} is indented in an unexpected way")
    if not isinstance(value, dict):
        raise invalid("plain_acl: the file is no map")
    return value


def _without_comment(line: str) -> str:
    """Cut a comment: a hash at the start or after a blank, outside of quotes."""
    quote = ""
    for place, c in enumerate(line):
        if quote:
            quote = "" if c == quote else quote
        elif c in "'\"" and (place == 0 or line[place - 1] in " -:"):
            quote = c
        elif c == "#" and (place == 0 or line[place - 1] == " "):
            return line[:place]
    return line


def _block(lines: list[_Line], at: int, indent: int) -> tuple[Any, int]:
    if lines[at].text.startswith("- ") or lines[at].text == "-":
        return _list(lines, at, indent)
    return _map(lines, at, indent)


def _map(lines: list[_Line], at: int, indent: int) -> tuple[dict[str, Any], int]:
    found: dict[str, Any] = {}
    while at < len(lines) and lines[at].indent == indent and not lines[at].text.startswith("- "):
        line = lines[at]
        key, colon, rest = line.text.partition(":")
        key = key.strip()
        if not colon or not key or (rest and not rest.startswith(" ")) or key in found:
            raise invalid(f"plain_acl: line {line.number} is not of the form `key: value`, or comes twice")
        at += 1
        if rest.strip():
            found[key] = _scalar(rest.strip(), line.number)
            continue
        found[key] = None
        if at < len(lines):
            deeper = lines[at].indent > indent
            is_list = lines[at].indent == indent and lines[at].text.startswith("-")
            if deeper or is_list:
                found[key], at = _block(lines, at, lines[at].indent)
    return found, at


def _list(lines: list[_Line], at: int, indent: int) -> tuple[list[Any], int]:
    found: list[Any] = []
    while at < len(lines) and lines[at].indent == indent and (lines[at].text + " ").startswith("- "):
        line = lines[at]
        rest = line.text[1:].strip()
        if not rest:
            at += 1
            if at < len(lines) and lines[at].indent > indent:
                value, at = _block(lines, at, lines[at].indent)
                found.append(value)
            continue
        if _is_pair(rest):
            # The map goes on in the lines that stand below its first key.
            inner = indent + len(line.text) - len(line.text[1:].lstrip())
            lines[at] = _Line(line.number, inner, rest)
            value, at = _map(lines, at, inner)
            found.append(value)
            continue
        found.append(_scalar(rest, line.number))
        at += 1
    return found, at


def _is_pair(text: str) -> bool:
    key, colon, rest = text.partition(":")
    return bool(colon) and key.isalnum() and (not rest or rest.startswith(" "))


def _scalar(text: str, number: int) -> Any:
    if text in ("[]", "null", "~"):
        return [] if text == "[]" else None
    if text[0] in "'\"":
        if len(text) < 2 or text[-1] != text[0] or text[0] in text[1:-1] or "\\" in text:
            raise invalid(f"plain_acl: line {number} has a quoted text that is not understood")
        return text[1:-1]
    if text[0] in "[{&*!|>%@`":
        raise invalid(f"plain_acl: line {number} uses YAML that is not understood here: write plain values")
    return text
