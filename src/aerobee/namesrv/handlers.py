"""The driver of the route table: the handlers of a name server, closed connections and ticks.

It performs the effects that the route table asks for, and decides nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from aerobee.namesrv.config import NamesrvConfig
from aerobee.namesrv.effects import BrokerJoined, BrokerLeft, CloseChannel, Effect, NotifyMinBrokerId
from aerobee.namesrv.handlers_admin import AdminHandlers
from aerobee.namesrv.handlers_broker import BrokerHandlers
from aerobee.namesrv.handlers_declarations import DeclarationHandlers
from aerobee.namesrv.handlers_route import RouteHandlers
from aerobee.namesrv.handlers_topic import TopicHandlers
from aerobee.namesrv.state import Handler, NamesrvState, Peer
from aerobee.protocol.codes import RequestCode
from aerobee.protocol.command import Command, request
from aerobee.protocol.headers.cluster import NotifyMinBrokerIdChangeRequestHeader
from aerobee.runtime.seams import Clock, Disk
from aerobee.telemetry.stdlog import get_log

_log = get_log("namesrv")


class NameServer:
    """One name server. `send_oneway(address, command)` sends to a broker and never raises.

    A broker that misses a notice learns of the change when it asks the next time.
    """

    def __init__(
        self,
        config: NamesrvConfig,
        *,
        clock: Clock,
        disk: Disk,
        send_oneway: Callable[[str, Command], None],
    ) -> None:
        self.state = NamesrvState(config, clock, disk)
        self._send_oneway = send_oneway
        self._brokers: dict[int, Peer] = {}
        self._last_scan_ms = self.state.now_ms()
        self._opaque = 0

    def open(self) -> None:
        """Load the key-value table."""
        self.state.kv.load(self.state.clock.now_ms())

    def handlers(self) -> dict[int, Handler]:
        """Return the handlers of all 23 codes and of our own. RocketMQ: NamesrvController.registerProcessor."""
        return {
            **RouteHandlers(self.state).handlers(),
            **BrokerHandlers(self.state, self._perform).handlers(),
            **TopicHandlers(self.state).handlers(),
            **AdminHandlers(self.state).handlers(),
            **DeclarationHandlers(self.state).handlers(),
        }

    def channel_opened(self, channel: Peer) -> None:
        """Do nothing. A connection matters when a broker registers over it."""

    def channel_closed(self, channel: Peer) -> None:
        """Remove the brokers that registered over the connection. RocketMQ: BrokerHousekeepingService."""
        if self._brokers.pop(channel.id, None) is not None:
            self._perform(self.state.routes.channel_closed(channel.id), None)

    def tick(self) -> None:
        """Expire silent brokers. Call it every second. RocketMQ: NamesrvController.startScheduleService."""
        now_ms = self.state.now_ms()
        if now_ms - self._last_scan_ms >= self.state.config.scan_not_active_broker_interval_ms:
            self._last_scan_ms = now_ms
            self._perform(self.state.routes.expire(now_ms), None)

    def _perform(self, effects: Iterable[Effect], peer: Peer | None) -> None:
        """Perform the effects. `peer` is the connection of a broker that has just registered."""
        if peer is not None:
            self._brokers[peer.id] = peer
        for effect in effects:
            match effect:
                case BrokerJoined():
                    _log.info("broker joined", broker=_place(effect), address=effect.broker_addr)
                case BrokerLeft():
                    _log.info("broker left", broker=_place(effect), address=effect.broker_addr, reason=effect.reason)
                case CloseChannel():
                    silent = self._brokers.get(effect.channel_id)
                    if silent is not None:
                        silent.close()
                case NotifyMinBrokerId():
                    self._notify(effect)

    def _notify(self, effect: NotifyMinBrokerId) -> None:
        header = NotifyMinBrokerIdChangeRequestHeader(
            min_broker_id=effect.min_broker_id,
            min_broker_addr=effect.min_broker_addr,
            offline_broker_addr=effect.offline_broker_addr,
            ha_broker_addr=effect.ha_broker_addr,
        )
        for address in effect.addresses:
            self._opaque = (self._opaque + 1) & 0x7FFFFFFF
            code = RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE
            self._send_oneway(address, request(code, header, opaque=self._opaque, oneway=True))


def _place(effect: BrokerJoined | BrokerLeft) -> str:
    return f"{effect.cluster}/{effect.broker_name}:{effect.broker_id}"
