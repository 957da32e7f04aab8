"""The gRPC service of one process: the service, its connections, and the cluster behind it."""

from __future__ import annotations

from collections.abc import Callable

from aerobee.model.route import BrokerData, QueueData, TopicRouteData
from aerobee.model.topic import TopicConfig
from aerobee.net.grpcserver import GrpcServer
from aerobee.net.loopback import LoopbackNet
from aerobee.net.server import Server
from aerobee.proxy.backend import ClusterBackend, Peer
from aerobee.proxy.rights import GrpcDoor
from aerobee.proxy.service import MessagingService
from aerobee.runtime.bases import Clock
from aerobee.runtime.seams import Entropy, Net

# How long calls under way may take when the process stops.
_DRAIN_S = 1.0


class GrpcFront:
    """The service on the ports of a server."""

    def __init__(
        self,
        server: Server,
        backend: ClusterBackend,
        clock: Clock,
        entropy: Entropy,
        door: GrpcDoor | None = None,
    ) -> None:
        self._backend = backend
        self.service = MessagingService(backend, clock, lambda: entropy.token(16).hex(), door)
        self.grpc = GrpcServer(server, self.service, clock.monotonic)

    async def stop(self) -> None:
        """Send clients away, answer the calls under way, and tell the brokers."""
        await self.grpc.drain(_DRAIN_S)
        await self.service.stop()
        await self._backend.close()


def own_nets(server: Server, own: Callable[[], str], net: Net) -> Callable[[Peer], Net]:
    """Return the nets that reach the broker at the address `own` in memory, and all others through `net`."""

    def is_own(host: str, port: int) -> bool:
        return f"{host}:{port}" == own() or f"[{host}]:{port}" == own()

    def net_for(peer: Peer) -> Net:
        return LoopbackNet(server, is_own, net, peer)

    return net_for


def route_of(topic: TopicConfig | None, cluster: str, broker: str, address: str) -> TopicRouteData | None:
    """Return the route of a topic that this broker has."""
    if topic is None:
        return None
    queues = QueueData(broker, topic.read_queue_nums, topic.write_queue_nums, topic.perm, topic.topic_sys_flag)
    return TopicRouteData((queues,), (BrokerData(cluster, broker, {0: address}),))
