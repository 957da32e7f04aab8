"""The root of `aerobee proxy`: the gRPC service in front of any cluster of RocketMQ's, Apache's brokers too."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

from aerobee.access.audit import Audit
from aerobee.access.config import AccessConfig
from aerobee.access.door import Access
from aerobee.app.access import DEFAULT_CLUSTER, audit_writer, inner_signer
from aerobee.app.grpcfront import GrpcFront
from aerobee.app.identity import joined
from aerobee.app.process import listening, stopped_or_failed
from aerobee.app.servers import ServerOptions
from aerobee.app.startrule import require_start
from aerobee.config.loader import Loaded
from aerobee.config.setting import Settings
from aerobee.errors import ConfigError
from aerobee.net.config import TlsConfig
from aerobee.net.renewal import TlsRenewal
from aerobee.net.server import Server
from aerobee.proxy.backend import ClusterBackend
from aerobee.proxy.config import ProxyConfig
from aerobee.proxy.rights import GrpcDoor
from aerobee.proxy.users import CopiedUsers, ProxyWorld
from aerobee.runtime.clock import SystemClock
from aerobee.runtime.entropy import SystemEntropy
from aerobee.runtime.net import RealNet
from aerobee.runtime.tasks import Tasks
from aerobee.telemetry.stdlog import get_log

PROXY_CLASSES: tuple[type[Settings], ...] = (ProxyConfig, TlsConfig, AccessConfig)


async def serve_proxy(loaded: Loaded, options: ServerOptions, ready: Callable[[str], None], stop: asyncio.Event) -> int:
    """Run a proxy until `stop` is set and return the exit code. `ready` is called with its address."""
    log = get_log("proxy")
    require_start(loaded, options, warn=log.warning)
    config, tls, access_config = loaded.get(ProxyConfig), loaded.get(TlsConfig), loaded.get(AccessConfig)
    require_users(access_config)
    namesrvs = [one.strip() for one in config.namesrv_addr.split(";") if one.strip()]
    if not namesrvs:
        raise ConfigError(["a proxy needs name servers: -n HOST:9876, or namesrvAddr"])
    clock, net = SystemClock(), RealNet()
    server = Server("proxy", {}, clock=clock, tls=tls.accepting())
    server.believes_proxy = access_config.believes_proxy()
    signer = inner_signer(access_config)
    backend = ClusterBackend(
        lambda: namesrvs, clock.monotonic, lambda peer: net, tls=tls.connecting(), sign=signer
    )  # fmt: skip
    with contextlib.ExitStack() as stack:
        door, users = None, None
        if access_config.authentication_enabled:
            audit = Audit(clock, audit_writer(access_config, stack))
            access = Access(access_config, access_config.auth_cluster_name or DEFAULT_CLUSTER, audit)
            users = copied = CopiedUsers(access, backend.client, lambda: namesrvs, clock)
            world = ProxyWorld(access.cluster)
            door = GrpcDoor(access, lambda: world, clock.now_ms, is_ready=lambda: copied.is_known)
        front = GrpcFront(server, backend, clock, SystemEntropy(), door)
        TlsRenewal(tls).follow(server, backend.client)
        port = await server.bind(options.host, config.grpc_server_port)
        await listening(server.serve(), "proxy", options.host, config.grpc_server_port, "--set grpcServerPort=0")
        failed = asyncio.Event()

        def gave_up(name: str, error: BaseException) -> None:
            log.error("the proxy stops: it cannot copy users any more", task=name, exc_info=error)
            failed.set()

        try:
            async with Tasks(gave_up) as tasks:
                if users is not None:
                    # Where brokers are there, users are known when the proxy says that it is ready.
                    await users.once()
                    tasks.start(users.run(), name="copy users and rights")
                address = joined(options.host, port)
                log.info("proxy started", address=address, namesrv=config.namesrv_addr)
                ready(address)
                return await stopped_or_failed(stop, failed)
        finally:
            await front.stop()
            await server.close()
            log.info("proxy stopped")


def require_users(config: AccessConfig) -> None:
    """Raise ConfigError where the settings would let everybody act as the inner user, or mean nothing at a proxy."""
    problems = []
    if config.authentication_enabled and config.inner_credentials() is None:
        problems.append(
            "authenticationEnabled needs innerClientAuthenticationCredentials at a proxy: with them it reads the users "
            "of the brokers, and signs what it asks"
        )
    if config.inner_credentials() is not None and not config.authentication_enabled:
        problems.append(
            "innerClientAuthenticationCredentials needs authenticationEnabled=true at a proxy: without it every client "
            "would act as that user, who may do everything"
        )
    if config.migrate_auth_from_v1_enabled:
        problems.append("migrateAuthFromV1Enabled: a proxy keeps no users. Set it at the brokers")
    if problems:
        raise ConfigError(problems)
