"""Namespaces: the topics and groups of a tenant carry its name on the wire, and users do not see it.

RocketMQ: NamespaceUtil.
"""

from __future__ import annotations

from aerobee.model.names import DLQ_PREFIX, RETRY_PREFIX, SYSTEM_GROUP_PREFIX, is_system_topic

SEPARATOR = "%"


def with_namespace(namespace: str, name: str) -> str:
    """Return the name on the wire: `%RETRY%g` becomes `%RETRY%ns%g`. System names and names that have it stay."""
    if not namespace or not name or _is_system(name):
        return name
    prefix, rest = _split(name)
    if rest.startswith(namespace + SEPARATOR):
        return name
    return f"{prefix}{namespace}{SEPARATOR}{rest}"


def without_namespace(namespace: str, name: str) -> str:
    """Return the name that users see. A name of another namespace stays as it is."""
    if not namespace or _is_system(name):
        return name
    prefix, rest = _split(name)
    mark = namespace + SEPARATOR
    return prefix + rest[len(mark) :] if rest.startswith(mark) else name


def _split(name: str) -> tuple[str, str]:
    for prefix in (RETRY_PREFIX, DLQ_PREFIX):
        if name.startswith(prefix):
            return prefix, name[len(prefix) :]
    return "", name


def _is_system(name: str) -> bool:
    return is_system_topic(name) or name.startswith(SYSTEM_GROUP_PREFIX)
