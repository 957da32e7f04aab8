"""What a running server shows who connects by TLS: its certificate, and whether this client would trust it."""

from __future__ import annotations

import ssl
from dataclasses import dataclass

from aerobee.admin.values import Value
from aerobee.errors import NotConnectedError
from aerobee.runtime.blocking import BlockingStream
from aerobee.runtime.certificates import CertificateFacts, read_certificates
from aerobee.runtime.tls import tls_failure


@dataclass(frozen=True, slots=True)
class CertificateCheck(Value):
    """The certificate of a running server."""

    address: str
    certificate: CertificateFacts
    days_left: int
    tls_version: str
    # Why it is not as it should be. Nothing where it is.
    problems: tuple[str, ...]


def check_certificate(
    host: str, port: int, context: ssl.SSLContext, timeout_s: float, *, days: int, now_ms: int
) -> CertificateCheck:
    """Connect with the trust of `context` and return what the server shows.

    A server that is not trusted is asked again, trusted or not, so that its certificate can be shown.
    """
    address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    problems: list[str] = []
    try:
        shown, version = _shown(address, host, port, context, timeout_s)
    except ssl.SSLCertVerificationError as error:
        failure = tls_failure(error)
        problems.append(failure[0].removeprefix("TLS: ") if failure else str(error))
        shown, version = _shown(address, host, port, _trusting(), timeout_s)
    facts = read_certificates(shown, f"what {address} shows")[0]
    left = facts.days_left(now_ms)
    if left < days:
        problems.append(f"it has expired {-left} days ago" if left < 0 else f"it expires in {left} days")
    return CertificateCheck(address, facts, left, version, tuple(problems))


def _shown(address: str, host: str, port: int, context: ssl.SSLContext, timeout_s: float) -> tuple[bytes, str]:
    try:
        stream = BlockingStream(host, port, timeout_s, context)
    except ssl.SSLCertVerificationError:
        raise
    except TimeoutError:
        raise NotConnectedError("no TLS handshake in time", broker=address) from None
    except OSError as error:
        failure = tls_failure(error) if isinstance(error, ssl.SSLError | ConnectionError) else None
        if isinstance(error, ConnectionRefusedError) or failure is None:
            raise NotConnectedError(f"could not connect: {error.strerror or error}", broker=address) from None
        raise NotConnectedError(failure[0], broker=address, hint=failure[1]) from None
    try:
        return stream.peer_certificate(), stream.tls_version()
    finally:
        stream.close()


def _trusting() -> ssl.SSLContext:
    """Return a context that trusts everybody. A server that wants a certificate is shown none: the handshake of TLS 1.3
    is complete for the client before that."""
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    made.check_hostname = False
    made.verify_mode = ssl.CERT_NONE
    return made
