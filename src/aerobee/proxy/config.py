"""The settings of the gRPC service."""

from __future__ import annotations

from dataclasses import dataclass

from aerobee.config.setting import Settings, setting


@dataclass(frozen=True, slots=True, kw_only=True)
class ProxyConfig(Settings):
    """Settings of `aerobee proxy`, under the keys of RocketMQ's rmq-proxy.json."""

    namesrv_addr: str = setting(
        "", java="namesrvAddr", env="NAMESRV_ADDR", doc="Name servers, separated by semicolons."
    )
    grpc_server_port: int = setting(
        8081, java="grpcServerPort", minimum=0, maximum=65535, doc="Port of the gRPC service; 0 takes a free port."
    )
