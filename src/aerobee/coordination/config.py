"""The settings of a coordination store, where the replicas of a group agree on their master."""

from __future__ import annotations

import ssl
from collections.abc import Iterable
from dataclasses import dataclass

from aerobee.config.setting import Settings, setting
from aerobee.coordination.endpoints import EtcdSettings, parse_endpoints
from aerobee.runtime.tls import FileNames, client_context


@dataclass(frozen=True, slots=True, kw_only=True)
class CoordinationConfig(Settings):
    """The coordination store of a group that fails over. Without coordinatorAddr a broker has no such group."""

    addr: str = setting(
        "",
        java="coordinatorAddr",
        own=True,
        doc="Endpoints of etcd, separated by semicolons: `http://a:2379;http://b:2379`, or https for TLS. The broker "
        "is then a replica of the group that brokerName names, and the group elects its master.",
    )
    user: str = setting("", java="coordinatorUser", own=True, doc="User of etcd, where its authentication is on.")
    password: str = setting(
        "",
        java="coordinatorPassword",
        own=True,
        secret=True,
        env="AEROBEE_COORDINATOR_PASSWORD",
        doc="Password of that user.",
    )
    trust_cert_path: str = setting(
        "",
        java="coordinatorTrustCertPath",
        own=True,
        doc="File of the certificates that etcd's is verified by (PEM); empty takes the system's.",
    )
    cert_path: str = setting(
        "", java="coordinatorCertPath", own=True, doc="File of the certificate chain shown to etcd (PEM)."
    )
    key_path: str = setting("", java="coordinatorKeyPath", own=True, doc="File of its private key (PEM).")
    key_password: str = setting(
        "", java="coordinatorKeyPassword", own=True, secret=True, doc="Password of that private key."
    )

    def relations(self) -> Iterable[str]:
        if bool(self.cert_path) != bool(self.key_path):
            yield "coordinatorCertPath and coordinatorKeyPath need each other"
        if bool(self.user) != bool(self.password):
            yield "coordinatorUser and coordinatorPassword need each other"
        if not self.addr:
            return
        try:
            endpoints = parse_endpoints(self.addr)
        except ValueError as error:
            yield f"coordinatorAddr: {error}"
            return
        if not endpoints[0].is_tls and (self.trust_cert_path or self.cert_path):
            yield "coordinatorAddr: certificates are set, but the endpoints are not https"
        if not endpoints[0].is_tls and self.password and not all(one.is_loopback for one in endpoints):
            yield "coordinatorAddr: a password is not sent to another machine without https"

    def reached(self) -> EtcdSettings | None:
        """Return how the store is reached, or None if there is none. Raise ConfigError for a file that cannot be
        used."""
        if not self.addr:
            return None
        endpoints = parse_endpoints(self.addr)
        tls = self._context() if endpoints[0].is_tls else None
        return EtcdSettings(endpoints=endpoints, user=self.user, password=self.password, tls=tls)

    def _context(self) -> ssl.SSLContext:
        return client_context(
            (self.cert_path, self.key_path, self.key_password) if self.cert_path else None,
            trust_path=self.trust_cert_path,
            verified=True,
            any_host=False,
            names=FileNames("coordinatorCertPath", "coordinatorKeyPath", "coordinatorTrustCertPath"),
        )
