"""Headers of users and access control lists (3001-3010)."""

from __future__ import annotations

from aerobee.protocol.headers.base import Header


class CreateUserRequestHeader(Header, kw_only=True):
    """AUTH_CREATE_USER."""

    username: str | None = None


class UpdateUserRequestHeader(Header, kw_only=True):
    """AUTH_UPDATE_USER."""

    username: str | None = None


class DeleteUserRequestHeader(Header, kw_only=True):
    """AUTH_DELETE_USER."""

    username: str | None = None


class GetUserRequestHeader(Header, kw_only=True):
    """AUTH_GET_USER."""

    username: str | None = None


class ListUsersRequestHeader(Header, kw_only=True):
    """AUTH_LIST_USER."""

    filter: str | None = None


class CreateAclRequestHeader(Header, kw_only=True):
    """AUTH_CREATE_ACL."""

    subject: str | None = None


class UpdateAclRequestHeader(Header, kw_only=True):
    """AUTH_UPDATE_ACL."""

    subject: str | None = None


class DeleteAclRequestHeader(Header, kw_only=True):
    """AUTH_DELETE_ACL."""

    subject: str | None = None
    policy_type: str | None = None
    resource: str | None = None


class GetAclRequestHeader(Header, kw_only=True):
    """AUTH_GET_ACL."""

    subject: str | None = None


class ListAclsRequestHeader(Header, kw_only=True):
    """AUTH_LIST_ACL."""

    subject_filter: str | None = None
    resource_filter: str | None = None
