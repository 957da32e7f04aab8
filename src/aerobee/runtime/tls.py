"""TLS contexts from files: a server's certificate and whom it trusts, and a client's. A bad file is a ConfigError."""

from __future__ import annotations

import ssl

from aerobee.errors import ConfigError

# Certificate chain and key (PEM files), and the key's password: empty where it has none, never asked for at a terminal.
Identity = tuple[str, str, str]


def server_context(
    identity: Identity, *, trust_path: str, client_certificate: ssl.VerifyMode, setting: str
) -> ssl.SSLContext:
    """For accepted connections. `setting` is how the settings' names begin, for what is said about them."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.options |= ssl.OP_NO_RENEGOTIATION
    _load_identity(context, identity, setting)
    if client_certificate != ssl.CERT_NONE:
        _load_trust(context, trust_path, f"{setting}.trustCertPath")
        context.verify_mode = client_certificate
    return context


def client_context(identity: Identity | None, *, trust_path: str, verified: bool, setting: str) -> ssl.SSLContext:
    """For our own connections. Unverified, any server is believed, as in Apache's default."""
    context = ssl.create_default_context()
    # Routes name addresses, certificates rarely do.
    context.check_hostname = False
    if not verified:
        context.verify_mode = ssl.CERT_NONE
    elif trust_path:
        _load_trust(context, trust_path, f"{setting}.trustCertPath")
    if identity is not None:
        _load_identity(context, identity, setting)
    return context


def _load_identity(context: ssl.SSLContext, identity: Identity, setting: str) -> None:
    certificate, key, password = identity
    for path, name in ((certificate, "certPath"), (key, "keyPath")):
        _require_readable(path, f"{setting}.{name}")
    try:
        context.load_cert_chain(certificate, key, password=lambda: password)
    except (ssl.SSLError, ValueError) as error:
        names = f"{setting}.certPath={certificate}, {setting}.keyPath={key}"
        needed = "PEM files that belong together, and the key's password where it has one"
        raise ConfigError([f"{names}: {_reason(error)} (needed: {needed})"]) from error


def _load_trust(context: ssl.SSLContext, path: str, setting: str) -> None:
    _require_readable(path, setting)
    try:
        context.load_verify_locations(path)
    except ssl.SSLError as error:
        raise ConfigError([f"{setting}={path}: {_reason(error)}"]) from error


def _require_readable(path: str, setting: str) -> None:
    """OpenSSL does not say which of its files is missing."""
    try:
        with open(path, "rb"):
            pass
    except OSError as error:
        raise ConfigError([f"{setting}={path}: {error.strerror or error}"]) from error


def _reason(error: Exception) -> str:
    return getattr(error, "reason", None) or str(error)
