"""The effects of changes among clients: after a heartbeat, a goodbye or a lost connection.

This is the observer of the broker's ports, which tell it of closed connections. RocketMQ: ClientHousekeepingService,
DefaultConsumerIdsChangeListener, Broker2Client.notifyConsumerIdsChanged.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import Protocol, cast

from aerobee.broker.membership.clients import Clients
from aerobee.broker.membership.members import (
    CloseClient,
    ConsumerGroupGone,
    Effect,
    NotifyIdsChanged,
    SubscriptionConflict,
)
from aerobee.net.channel import Channel
from aerobee.protocol.codes import RequestCode
from aerobee.protocol.command import encode_command, request
from aerobee.protocol.headers.group import NotifyConsumerIdsChangedRequestHeader
from aerobee.telemetry.stdlog import get_log

_log = get_log("broker.clients")


class WaitingPulls(Protocol):
    """Pulls that wait, by connection."""

    def channel_closed(self, channel: Hashable) -> int: ...


class ClientEffects:
    """What performs the registry's effects. `channel` finds the open channel of a connection id."""

    def __init__(
        self, clients: Clients, channel: Callable[[int], Channel | None], held_pulls: WaitingPulls | None = None
    ) -> None:
        self._clients = clients
        self._channel = channel
        self._held_pulls = held_pulls
        self._opaque = 0
        # Called with a group whose last member left: compiled filters and the like can go.
        self.on_group_gone: Callable[[str], None] = lambda group: None

    def channel_opened(self, channel: Channel) -> None:
        """Do nothing: a connection says who it is with its first heartbeat."""

    def channel_closed(self, channel: Channel) -> None:
        """Forget a connection that is gone, with all its roles and the pulls that it waited for."""
        if self._held_pulls is not None:
            self._held_pulls.channel_closed(channel.id)
        self.perform(self._clients.channel_closed(channel.id))

    def expire(self, now_s: float) -> None:
        """Every 10 s: whoever sent no heartbeat in time is cut."""
        self.perform(self._clients.expire(now_s))

    def producer(self, group: str) -> Channel | None:
        """Return the channel of a connected producer of the group, another one each time."""
        key = self._clients.producer_channel(group, lambda key: self._open(key) is not None)
        return None if key is None else self._open(key)

    def _open(self, key: Hashable) -> Channel | None:
        channel = self._channel(cast(int, key))
        return None if channel is None or channel.closed else channel

    def perform(self, effects: Iterable[Effect]) -> None:
        for effect in effects:
            match effect:
                case NotifyIdsChanged():
                    self._notify(effect)
                case CloseClient():
                    self._close(effect)
                case SubscriptionConflict():
                    _log.warning(str(effect), group=effect.group)
                case ConsumerGroupGone():
                    self.on_group_gone(effect.group)

    def _notify(self, effect: NotifyIdsChanged) -> None:
        header = NotifyConsumerIdsChangedRequestHeader(consumer_group=effect.group)
        self._opaque = (self._opaque + 1) & 0x7FFFFFFF
        # One frame serves all of them: nobody answers it, and a group can have thousands of members.
        frame = encode_command(
            request(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, header, opaque=self._opaque, oneway=True)
        )
        for key in effect.channels:
            channel = self._channel(cast(int, key))
            if channel is not None:
                channel.write(frame)

    def _close(self, effect: CloseClient) -> None:
        channel = self._channel(cast(int, effect.channel))
        if channel is not None:
            _log.warning(
                "a connection was closed: no heartbeat came in time",
                client=effect.client_id,
                group=effect.group,
                peer=channel.remote_address,
            )
            channel.close()
