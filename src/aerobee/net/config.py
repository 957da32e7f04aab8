"""TLS settings of brokers and name servers, under RocketMQ's keys.

Apache reads them from Java's system properties or from the file that `tls.config.file` names. Here they are set in
the server's own file or by `--set`, like every other key. RocketMQ: TlsSystemConfig, TlsHelper.buildSslContext.
"""

from __future__ import annotations

import dataclasses
import enum
import ssl
from collections.abc import Iterable
from dataclasses import dataclass

from aerobee.config.setting import Settings, setting
from aerobee.runtime.tls import FileNames, client_context, server_context


class TlsMode(enum.Enum):
    """Which connections a port accepts."""

    disabled = "disabled"
    permissive = "permissive"
    enforcing = "enforcing"


class ClientAuth(enum.Enum):
    """Whether clients must show a certificate."""

    none = ssl.CERT_NONE
    optional = ssl.CERT_OPTIONAL
    require = ssl.CERT_REQUIRED


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsConfig(Settings):
    """TLS of the ports of a broker or name server, and of the connections that it opens itself."""

    server_mode: TlsMode = setting(
        TlsMode.permissive,
        java="tls.server.mode",
        doc="Connections that are taken: plain ones (disabled), plain and TLS on one port (permissive), TLS "
        "(enforcing).",
    )
    server_cert_path: str = setting(
        "", java="tls.server.certPath", doc="File of the certificate chain (PEM); empty takes no TLS."
    )
    server_key_path: str = setting("", java="tls.server.keyPath", doc="File of its private key (PEM).")
    server_key_password: str = setting(
        "", java="tls.server.keyPassword", secret=True, doc="Password of the private key."
    )
    server_need_client_auth: ClientAuth = setting(
        ClientAuth.none,
        java="tls.server.need.client.auth",
        doc="Certificates of clients: not asked for, verified where one is shown, or needed.",
    )
    server_trust_cert_path: str = setting(
        "", java="tls.server.trustCertPath", doc="File of the certificates that clients' are verified by (PEM)."
    )
    server_auth_client: bool = setting(
        False,
        java="tls.server.authClient",
        effect="No effect: a certificate that a client shows is always verified.",
        doc="Verify clients' certificates.",
    )
    enable: bool = setting(
        False,
        java="tls.enable",
        doc="The server's own connections (a broker's to its name servers) use TLS. `aerobee up` sets it where "
        "tls.server.mode is enforcing.",
    )
    client_auth_server: bool = setting(
        False, java="tls.client.authServer", doc="Verify the certificates of the servers that it connects to."
    )
    client_verify_host: bool = setting(
        False,
        java="tls.client.verifyHost",
        own=True,
        doc="Also check that these certificates name the host that is connected to: name servers, other replicas, the "
        "master. Needs tls.client.authServer. `aerobee up --secure` sets it.",
    )
    client_trust_cert_path: str = setting(
        "",
        java="tls.client.trustCertPath",
        doc="File of the certificates they are verified by (PEM); empty takes the system's.",
    )
    client_cert_path: str = setting(
        "", java="tls.client.certPath", doc="File of the certificate chain shown to them (PEM)."
    )
    client_key_path: str = setting("", java="tls.client.keyPath", doc="File of its private key (PEM).")
    client_key_password: str = setting(
        "", java="tls.client.keyPassword", secret=True, doc="Password of that private key."
    )
    test_mode_enable: bool = setting(
        False,
        java="tls.test.mode.enable",
        effect="No effect: a certificate is never made up, so TLS needs tls.server.certPath.",
        doc="Take TLS with a certificate made at the start (in Apache the default).",
    )

    def relations(self) -> Iterable[str]:
        for side, cert, key in (
            ("server", self.server_cert_path, self.server_key_path),
            ("client", self.client_cert_path, self.client_key_path),
        ):
            if bool(cert) != bool(key):
                yield f"tls.{side}.certPath and tls.{side}.keyPath need each other"
        if self.client_verify_host and not self.client_auth_server:
            yield "tls.client.verifyHost needs tls.client.authServer=true, which verifies the certificate"
        if self.server_mode is TlsMode.enforcing and not self.server_cert_path:
            yield "tls.server.mode: enforcing needs tls.server.certPath and tls.server.keyPath"
        if self.server_need_client_auth is not ClientAuth.none and not self.server_trust_cert_path:
            yield f"tls.server.need.client.auth: {self.server_need_client_auth.name} needs tls.server.trustCertPath"

    def among_own(self) -> TlsConfig:
        """Return the settings for servers that run together: if their ports require TLS, they also connect by TLS."""
        return dataclasses.replace(self, enable=True) if self.server_mode is TlsMode.enforcing else self

    def server_files(self) -> tuple[str, ...]:
        """Return the files that `accepting` reads."""
        trust = () if self.server_need_client_auth is ClientAuth.none else (self.server_trust_cert_path,)
        return (self.server_cert_path, self.server_key_path, *trust)

    def client_files(self) -> tuple[str, ...]:
        """Return the files that `connecting` reads."""
        trust = (self.client_trust_cert_path,) if self.client_auth_server else ()
        return (self.client_cert_path, self.client_key_path, *trust)

    def accepting(self) -> ServerTls:
        """Return the TLS of the ports. Raise ConfigError for a file that cannot be used."""
        if self.server_mode is TlsMode.disabled or not self.server_cert_path:
            return ServerTls(self.server_mode)
        context = server_context(
            (self.server_cert_path, self.server_key_path, self.server_key_password),
            trust_path=self.server_trust_cert_path,
            client_certificate=self.server_need_client_auth.value,
            names=FileNames.of("server"),
        )
        return ServerTls(self.server_mode, context)

    def connecting(self) -> ssl.SSLContext | None:
        """Return the context for the server's own connections, or None if they are plain."""
        if not self.enable:
            return None
        identity = (self.client_cert_path, self.client_key_path, self.client_key_password)
        return client_context(
            identity if self.client_cert_path else None,
            trust_path=self.client_trust_cert_path,
            verified=self.client_auth_server,
            # Apache checks no names: routes contain addresses, which certificates rarely name.
            any_host=not self.client_verify_host,
            names=FileNames.of("client"),
        )


@dataclass(frozen=True, slots=True)
class ServerTls:
    """Which connections a port accepts, and with which certificate."""

    mode: TlsMode = TlsMode.permissive
    context: ssl.SSLContext | None = None

    def refusal(self, is_tls: bool) -> str:
        """Return why a connection is refused, in words, or an empty text if it is accepted."""
        if is_tls and self.mode is TlsMode.disabled:
            return "the client uses TLS, but tls.server.mode is disabled"
        if is_tls and self.context is None:
            return "the client uses TLS, but tls.server.certPath and tls.server.keyPath are not set"
        if not is_tls and self.mode is TlsMode.enforcing:
            return "the client does not use TLS, but tls.server.mode is enforcing"
        return ""
