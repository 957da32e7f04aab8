"""The time of a cluster that a test moves forward, and what must know of the jump."""

from __future__ import annotations

from aerobee.app.broker import BrokerNode
from aerobee.net.server import Server
from aerobee.runtime.bases import Clock
from aerobee.runtime.clock import SystemClock


class ShiftedClock(Clock):
    """The system's clock, which a test moves forward."""

    def __init__(self) -> None:
        self._real = SystemClock()
        self.shift_s = 0.0

    def now_ms(self) -> int:
        return self._real.now_ms() + int(self.shift_s * 1000)

    def monotonic(self) -> float:
        return self._real.monotonic() + self.shift_s


def stay_connected(server: Server, now_s: float) -> None:
    """Make sure that no connection counts as idle or slow for the time that is skipped."""
    for channel in server.channels.values():
        channel.last_read_s = now_s
        channel.frame_began_s = now_s if channel.frame_began_s else 0.0
        channel.stalled_since_s = now_s if channel.stalled_since_s else 0.0


def pass_time(node: BrokerNode, before_s: float, now_s: float) -> None:
    """Renew the heartbeats and locks of all connected clients."""
    state = node.state
    # The jump is no stall of the loop, so that nobody is answered busy for it.
    state.flow.loop.beat(now_s)
    stay_connected(node.server, now_s)
    producers, consumers = state.clients.producers(), state.clients.groups()
    members = [*producers.values(), *(group.members for group in consumers.values())]
    alive = [member for table in members for member in table.values()]
    for member in alive:
        member.seen_s = now_s
    state.locks.renew({member.client.client_id for member in alive}, before_s, now_s)
    node.broker.look_again()
