"""TLS contexts from files: a server's certificate and whom it trusts, and a client's. A file that cannot be used
raises ConfigError."""

from __future__ import annotations

import os
import re
import ssl
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final, NamedTuple

from aerobee.errors import ConfigError

# Certificate chain and key (PEM files), and the password of the key. An empty one is never asked for at a terminal.
Identity = tuple[str, str, str]


class FileNames(NamedTuple):
    """How users call the files, for error messages."""

    cert: str
    key: str
    trust: str

    @classmethod
    def of(cls, side: str) -> FileNames:
        """Return RocketMQ's keys of `server` or `client`."""
        return cls(f"tls.{side}.certPath", f"tls.{side}.keyPath", f"tls.{side}.trustCertPath")


# For each file a value that differs after any change, or None if there is no file.
Stamps = tuple[tuple[int, int, int, int] | None, ...]


def stamps(paths: Sequence[str]) -> Stamps:
    """Return values that tell whether files changed. Links are followed, so an exchanged link is a change."""
    return tuple(_stamp(path) for path in paths)


def _stamp(path: str) -> tuple[int, int, int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    # The time of the last change of the inode counts too, because a file may become readable.
    return found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino


def server_context(
    identity: Identity, *, trust_path: str, client_certificate: ssl.VerifyMode, names: FileNames
) -> ssl.SSLContext:
    """Return a context for accepted connections."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.options |= ssl.OP_NO_RENEGOTIATION
    # gRPC's clients of C and Go refuse a peer that does not choose HTTP/2. Clients of remoting offer nothing.
    context.set_alpn_protocols(["h2"])
    _load_identity(context, identity, names)
    if client_certificate != ssl.CERT_NONE:
        _load_trust(context, trust_path, names.trust)
        context.verify_mode = client_certificate
    return context


def client_context(
    identity: Identity | None, *, trust_path: str, verified: bool, any_host: bool, names: FileNames
) -> ssl.SSLContext:
    """Return a context for outgoing connections. If `verified` is false, any server is believed. Without a trust
    file the system's certificates are trusted."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    # The trusted certificate may be the server's own, or one between it and the root.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.check_hostname = verified and not any_host
    if not verified:
        context.verify_mode = ssl.CERT_NONE
    elif not trust_path:
        context.load_default_certs()
    else:
        _load_trust(context, trust_path, names.trust)
    if identity is not None:
        _load_identity(context, identity, names)
    return context


def _load_identity(context: ssl.SSLContext, identity: Identity, names: FileNames) -> None:
    certificate, key, password = identity
    for path, name in ((certificate, names.cert), (key, names.key)):
        _require_readable(path, name)
    try:
        context.load_cert_chain(certificate, key, password=lambda: password)
    except (ssl.SSLError, ValueError) as error:
        files = f"{names.cert}={certificate}, {names.key}={key}"
        needed = "PEM files that belong together, and the key's password where it has one"
        raise ConfigError([f"{files}: {_reason(error)} (needed: {needed})"]) from error


def _load_trust(context: ssl.SSLContext, path: str, name: str) -> None:
    _require_readable(path, name)
    try:
        context.load_verify_locations(path)
    except ssl.SSLError as error:
        raise ConfigError([f"{name}={path}: {_reason(error)}"]) from error


def _require_readable(path: str, name: str) -> None:
    """Raise ConfigError for a file that cannot be read, because OpenSSL does not say which one is missing."""
    try:
        with open(path, "rb"):
            pass
    except OSError as error:
        raise ConfigError([f"{name}={path}: {error.strerror or error}"]) from error


def tls_failure(error: OSError) -> tuple[str, str] | None:
    """Return what went wrong with TLS while connecting, and what to do, or None if TLS was not the cause."""
    if isinstance(error, ssl.SSLCertVerificationError):
        if "mismatch" in error.verify_message:
            return f"TLS: {error.verify_message.rstrip('.')}", "tls-any-host takes certificates of any host."
        return (
            f"TLS: the server's certificate is not trusted: {error.verify_message}",
            "tls-ca names the file of the CA to trust; tls-insecure trusts every server.",
        )
    if isinstance(error, ssl.SSLError) and not isinstance(error, ssl.SSLEOFError):
        return f"TLS: {tls_words(error)}", "Does the server speak TLS on this port?"
    if isinstance(error, ssl.SSLEOFError | ConnectionResetError | ConnectionAbortedError | BrokenPipeError):
        return (
            "TLS: the server closed the connection instead of a handshake",
            "Does it take TLS (tls.server.mode, tls.server.certPath)?",
        )
    return None


def tls_words(error: ssl.SSLError) -> str:
    """Return OpenSSL's reason as words."""
    return _reason(error).lower().replace("_", " ")


def _reason(error: Exception) -> str:
    return getattr(error, "reason", None) or str(error)


# The two times of a certificate, as they follow each other in its bytes: two digits of the year, or four.
_TIME: Final = rb"(?:\x17\x0d(\d{12})Z|\x18\x0f(\d{14})Z)"
_VALIDITY: Final = re.compile(_TIME + _TIME)


def certificate_end_s(path: str) -> float | None:
    """Return when the first certificate of a PEM file ends, in seconds since 1970; None if the file does not tell."""
    try:
        with open(path, encoding="ascii") as file:
            text = file.read()
        begin, end = text.index("-----BEGIN CERTIFICATE"), text.index("-----END CERTIFICATE-----")
        der = ssl.PEM_cert_to_DER_cert(text[begin:end] + "-----END CERTIFICATE-----")
    except (OSError, ValueError):
        return None
    found = _VALIDITY.search(der)
    if found is None:
        return None
    short, long = found.group(3), found.group(4)
    # RFC 5280: years from 50 on belong to the last century.
    digits = (long or (b"20" if short < b"50" else b"19") + short).decode()
    try:
        return datetime.strptime(digits, "%Y%m%d%H%M%S").replace(tzinfo=UTC).timestamp()
    except ValueError:
        return None
