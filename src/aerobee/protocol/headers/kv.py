"""Headers of the name server's key-value table."""

from __future__ import annotations

from aerobee.protocol.headers.base import Header


class PutKVConfigRequestHeader(Header, kw_only=True):
    """PUT_KV_CONFIG."""

    namespace: str
    key: str
    value: str


class GetKVConfigRequestHeader(Header, kw_only=True):
    """GET_KV_CONFIG."""

    namespace: str
    key: str


class GetKVConfigResponseHeader(Header, kw_only=True):
    """Answer to GET_KV_CONFIG."""

    value: str | None = None


class DeleteKVConfigRequestHeader(Header, kw_only=True):
    """DELETE_KV_CONFIG."""

    namespace: str
    key: str


class GetKVListByNamespaceRequestHeader(Header, kw_only=True):
    """GET_KVLIST_BY_NAMESPACE."""

    namespace: str
