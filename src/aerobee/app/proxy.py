"""The root of `aerobee proxy`: the gRPC service in front of any cluster of RocketMQ's, Apache's brokers too."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from aerobee.app.grpcfront import GrpcFront
from aerobee.app.identity import joined
from aerobee.app.process import stopped_or_failed
from aerobee.app.servers import ServerOptions
from aerobee.app.startrule import require_start
from aerobee.app.up import listening
from aerobee.config.loader import Loaded
from aerobee.config.setting import Settings
from aerobee.errors import ConfigError
from aerobee.net.config import TlsConfig
from aerobee.net.renewal import TlsRenewal
from aerobee.net.server import Server
from aerobee.proxy.backend import ClusterBackend
from aerobee.proxy.config import ProxyConfig
from aerobee.runtime.clock import SystemClock
from aerobee.runtime.entropy import SystemEntropy
from aerobee.runtime.net import RealNet
from aerobee.telemetry.stdlog import get_log

PROXY_CLASSES: tuple[type[Settings], ...] = (ProxyConfig, TlsConfig)


async def serve_proxy(loaded: Loaded, options: ServerOptions, ready: Callable[[str], None], stop: asyncio.Event) -> int:
    """Run a proxy until `stop` is set and return the exit code. `ready` is called with its address."""
    log = get_log("proxy")
    # It knows no users, so other machines may reach it only where somebody said so.
    require_start(loaded, options, warn=log.warning)
    config, tls = loaded.get(ProxyConfig), loaded.get(TlsConfig)
    namesrvs = [one.strip() for one in config.namesrv_addr.split(";") if one.strip()]
    if not namesrvs:
        raise ConfigError(["a proxy needs name servers: -n HOST:9876, or namesrvAddr"])
    clock, net = SystemClock(), RealNet()
    server = Server("proxy", {}, clock=clock, tls=tls.accepting())
    backend = ClusterBackend(lambda: namesrvs, clock.monotonic, lambda peer: net, tls=tls.connecting())
    front = GrpcFront(server, backend, clock, SystemEntropy())
    TlsRenewal(tls).follow(server, backend.client)
    port = await server.bind(options.host, config.grpc_server_port)
    await listening(server.serve(), "proxy", options.host, config.grpc_server_port, "--set grpcServerPort=0")
    try:
        address = joined(options.host, port)
        log.info("proxy started", address=address, namesrv=config.namesrv_addr)
        ready(address)
        return await stopped_or_failed(stop, asyncio.Event())
    finally:
        await front.stop()
        await server.close()
        log.info("proxy stopped")
