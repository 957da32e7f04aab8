"""`aerobee.sync.Admin`: the same operations for programs without an event loop."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar

from aerobee.admin import client
from aerobee.client.sync import SyncClient

P = ParamSpec("P")
R = TypeVar("R")
A = TypeVar("A")


class SyncRoom(Generic[A]):
    """The operations of one room of the asyncio Admin, run on the loop thread of the process."""

    def __init__(self, owner: Admin, pick: Callable[[client.Admin], A]) -> None:
        self._owner = owner
        self._pick = pick

    def run(self, work: Callable[[A], Coroutine[Any, Any, R]]) -> R:
        """Run an operation and return its result."""
        return self._owner.run(lambda admin: work(self._pick(admin)))


def _blocking(
    operation: Callable[Concatenate[A, P], Coroutine[Any, Any, R]],
) -> Callable[Concatenate[SyncRoom[A], P], R]:
    """Return the operation as a method that waits for its result."""

    def run(self: SyncRoom[A], /, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.run(lambda room: operation(room, *args, **kwargs))

    run.__name__, run.__doc__, run.__wrapped__ = operation.__name__, operation.__doc__, operation  # type: ignore[attr-defined]
    return run


class SyncTopicRoom(SyncRoom[client.TopicRoom]):
    """Topics over all brokers of a cluster."""

    list = _blocking(client.TopicRoom.list)
    show = _blocking(client.TopicRoom.show)
    route = _blocking(client.TopicRoom.route)
    create = _blocking(client.TopicRoom.create)
    plan_update = _blocking(client.TopicRoom.plan_update)
    update = _blocking(client.TopicRoom.update)
    delete = _blocking(client.TopicRoom.delete)


class SyncGroupRoom(SyncRoom[client.GroupRoom]):
    """Consumer groups: settings, members and progress. And connected producers."""

    list = _blocking(client.GroupRoom.list)
    show = _blocking(client.GroupRoom.show)
    lag = _blocking(client.GroupRoom.lag)
    create = _blocking(client.GroupRoom.create)
    update = _blocking(client.GroupRoom.update)
    delete = _blocking(client.GroupRoom.delete)
    members = _blocking(client.GroupRoom.members)
    producers = _blocking(client.GroupRoom.producers)


class SyncOffsetRoom(SyncRoom[client.OffsetRoom]):
    """The offsets of consumer groups."""

    plan_reset = _blocking(client.OffsetRoom.plan_reset)
    reset = _blocking(client.OffsetRoom.reset)
    of_members = _blocking(client.OffsetRoom.of_members)


class SyncMessageRoom(SyncRoom[client.MessageRoom]):
    """Messages of the brokers' logs."""

    show = _blocking(client.MessageRoom.show)
    find = _blocking(client.MessageRoom.find)
    track = _blocking(client.MessageRoom.track)
    trace = _blocking(client.MessageRoom.trace)
    replay = _blocking(client.MessageRoom.replay)


class SyncDeadLetterRoom(SyncRoom[client.DeadLetterRoom]):
    """The dead letters of consumer groups."""

    list = _blocking(client.DeadLetterRoom.list)
    plan_resend = _blocking(client.DeadLetterRoom.plan_resend)
    resend = _blocking(client.DeadLetterRoom.resend)


class SyncClusterRoom(SyncRoom[client.ClusterRoom]):
    """Brokers: their state and settings, and the replicas of broker groups."""

    brokers = _blocking(client.ClusterRoom.brokers)
    known = _blocking(client.ClusterRoom.known)
    ping = _blocking(client.ClusterRoom.ping)
    config = _blocking(client.ClusterRoom.config)
    set_config = _blocking(client.ClusterRoom.set_config)
    runtime = _blocking(client.ClusterRoom.runtime)
    replicas = _blocking(client.ClusterRoom.replicas)
    switch_master = _blocking(client.ClusterRoom.switch_master)
    drain = _blocking(client.ClusterRoom.drain)
    undrain = _blocking(client.ClusterRoom.undrain)
    clean = _blocking(client.ClusterRoom.clean)
    export = _blocking(client.ClusterRoom.export)
    forget = _blocking(client.ClusterRoom.forget)


class SyncUserRoom(SyncRoom[client.UserRoom]):
    """Users, on every name server and broker."""

    list = _blocking(client.UserRoom.list)
    show = _blocking(client.UserRoom.show)
    create = _blocking(client.UserRoom.create)
    update = _blocking(client.UserRoom.update)
    delete = _blocking(client.UserRoom.delete)


class SyncRightRoom(SyncRoom[client.RightRoom]):
    """Rights of users, on every name server and broker."""

    list = _blocking(client.RightRoom.list)
    show = _blocking(client.RightRoom.show)
    grant = _blocking(client.RightRoom.grant)
    revoke = _blocking(client.RightRoom.revoke)
    check = _blocking(client.RightRoom.check)


class SyncQuotaRoom(SyncRoom[client.QuotaRoom]):
    """What users, addresses and topics may send a second."""

    list = _blocking(client.QuotaRoom.list)
    set = _blocking(client.QuotaRoom.set)
    remove = _blocking(client.QuotaRoom.remove)


class Admin(SyncClient[client.Admin]):
    """An administrator's connection to a cluster. It takes the arguments of the asyncio Admin."""

    def __init__(
        self,
        namesrv: str | Sequence[str] | None = None,
        *,
        timeout_s: float = 5.0,
        access_key: str | None = None,
        secret_key: str | None = None,
        profile: str | None = None,
        tls: ssl.SSLContext | bool | None = None,
    ) -> None:
        super().__init__(
            lambda: client.Admin(
                namesrv, timeout_s=timeout_s, access_key=access_key, secret_key=secret_key, profile=profile, tls=tls
            )
        )
        self.topics = SyncTopicRoom(self, lambda admin: admin.topics)
        self.groups = SyncGroupRoom(self, lambda admin: admin.groups)
        self.offsets = SyncOffsetRoom(self, lambda admin: admin.offsets)
        self.messages = SyncMessageRoom(self, lambda admin: admin.messages)
        self.dead_letters = SyncDeadLetterRoom(self, lambda admin: admin.dead_letters)
        self.cluster = SyncClusterRoom(self, lambda admin: admin.cluster)
        self.users = SyncUserRoom(self, lambda admin: admin.users)
        self.rights = SyncRightRoom(self, lambda admin: admin.rights)
        self.quotas = SyncQuotaRoom(self, lambda admin: admin.quotas)

    def run(self, work: Callable[[client.Admin], Coroutine[Any, Any, R]]) -> R:
        """Run an operation on the loop thread and return its result."""
        return self._run(work)
