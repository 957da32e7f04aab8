"""X.509: keys, a small authority, the certificates that it issues, and what a certificate says.

It is made with the package `cryptography`, which the extra `tls` installs. Nothing else needs that package: servers and
clients speak TLS with Python's own `ssl`.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from aerobee.errors import AerobeeError, InvalidArgumentError

if TYPE_CHECKING:
    from cryptography import x509

AUTHORITY_DAYS: Final = 3650
# Browsers and Apple's systems refuse certificates that are valid for longer (398 days).
LEAF_DAYS: Final = 397
# Clocks of other machines may be behind.
_BACKDATED: Final = timedelta(hours=1)
_HOST: Final = re.compile(
    r"(\*\.)?[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9])?(\.[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9])?)*"
)
_HOST_MAX: Final = 253
# RFC 5280: a common name has at most 64 characters.
_NAME_MAX: Final = 64


class MissingPackageError(AerobeeError):
    """The package that certificates are made with is not installed."""


class CertificateError(AerobeeError):
    """A file is no certificate, or no key that fits."""


@dataclass(frozen=True, slots=True)
class KeyPair:
    """A certificate and its private key, as PEM texts. The key has no password: its file is for its owner alone."""

    cert: bytes
    key: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class CertificateFacts:
    """What a certificate says. Times are milliseconds since 1970."""

    subject: str
    issuer: str
    names: tuple[str, ...]
    not_before: int
    not_after: int
    is_authority: bool
    uses: tuple[str, ...]
    key: str
    sha256: str

    def days_left(self, now_ms: int) -> int:
        """Return the whole days until it expires; a negative number if it has."""
        return (self.not_after - now_ms) // 86_400_000


def require_package() -> None:
    """Raise MissingPackageError if certificates cannot be made or read here."""
    try:
        import cryptography  # noqa: F401
    except ImportError:
        raise MissingPackageError(
            "certificates are made and read with the package cryptography, which is not installed",
            hint="Install it: pip install 'aerobee[tls]'. Certificates of another authority work without it.",
        ) from None


def checked_host(name: str) -> str:
    """Return the name or address of a server. Raise InvalidArgumentError for what no certificate can name."""
    text = name.strip().strip("[]")
    try:
        return str(ipaddress.ip_address(text))
    except ValueError:
        pass
    if len(text) > _HOST_MAX or _HOST.fullmatch(text) is None:
        raise InvalidArgumentError(
            f"{name[:80]!r} is neither the name nor the address of a machine", hint="Give it without a port."
        )
    return text.lower()


def new_authority(name: str, now_ms: int) -> KeyPair:
    """Return a new authority, which can issue certificates and nothing else."""
    require_package()
    from cryptography import x509

    key, builder = _begin(name, now_ms, AUTHORITY_DAYS)
    own = _name(name)
    builder = builder.issuer_name(own).add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    builder = builder.add_extension(_usage(key_cert_sign=True, crl_sign=True), critical=True)
    builder = builder.add_extension(
        x509.AuthorityKeyIdentifier.from_issuer_public_key(key.public_key()), critical=False
    )
    return _signed(builder, key, key)


def issue(authority: KeyPair, name: str, hosts: Sequence[str], now_ms: int) -> KeyPair:
    """Return a certificate of an authority: for a server if it names hosts, otherwise for a client only.

    A server's serves for its own connections to other servers too.
    """
    require_package()
    from cryptography import x509
    from cryptography.x509.oid import ExtendedKeyUsageOID as Use

    issuer, issuer_key = _loaded(authority)
    key, builder = _begin(name, now_ms, LEAF_DAYS)
    uses = [Use.SERVER_AUTH, Use.CLIENT_AUTH] if hosts else [Use.CLIENT_AUTH]
    builder = builder.issuer_name(issuer.subject)
    builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
    builder = builder.add_extension(_usage(digital_signature=True), critical=True)
    builder = builder.add_extension(x509.ExtendedKeyUsage(uses), critical=False)
    known = x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key())
    builder = builder.add_extension(known, critical=False)
    if hosts:
        builder = builder.add_extension(x509.SubjectAlternativeName(_general(hosts)), critical=False)
    return _signed(builder, key, issuer_key)


def read_certificates(data: bytes, what: str) -> tuple[CertificateFacts, ...]:
    """Return what each certificate of a PEM file says, or the one of a DER file. `what` names it in errors."""
    require_package()
    from cryptography import x509

    try:
        found = (
            x509.load_pem_x509_certificates(data) if b"-----BEGIN" in data else [x509.load_der_x509_certificate(data)]
        )
        return tuple(_facts(one) for one in found)
    except ValueError as error:
        raise CertificateError(f"{what} holds no certificate that can be read: {error}") from None


def _loaded(pair: KeyPair) -> tuple[x509.Certificate, Any]:
    from cryptography import x509
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    try:
        cert = x509.load_pem_x509_certificate(pair.cert)
        key = load_pem_private_key(pair.key, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise CertificateError(f"the authority cannot be read: {error}") from None
    if cert.public_key() != key.public_key():
        raise CertificateError("the authority's key is not that of its certificate")
    return cert, key


def _begin(name: str, now_ms: int, days: int) -> tuple[Any, Any]:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    now = datetime.fromtimestamp(now_ms // 1000, UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(_name(name))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _BACKDATED)
        .not_valid_after(now + timedelta(days=days))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )
    return key, builder


def _signed(builder: Any, key: Any, issuer_key: Any) -> KeyPair:
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    cert = builder.sign(issuer_key, hashes.SHA256()).public_bytes(Encoding.PEM)
    # Java's clients read keys as PKCS#8 only.
    return KeyPair(cert, key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))


def _name(text: str) -> x509.Name:
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text[:_NAME_MAX])])


def _general(hosts: Iterable[str]) -> list[x509.GeneralName]:
    from cryptography import x509

    found: list[x509.GeneralName] = []
    for host in hosts:
        try:
            found.append(x509.IPAddress(ipaddress.ip_address(host)))
        except ValueError:
            found.append(x509.DNSName(host))
    return found


def _usage(*, digital_signature: bool = False, key_cert_sign: bool = False, crl_sign: bool = False) -> x509.KeyUsage:
    from cryptography import x509

    return x509.KeyUsage(
        digital_signature=digital_signature, key_cert_sign=key_cert_sign, crl_sign=crl_sign,
        content_commitment=False, key_encipherment=False, data_encipherment=False, key_agreement=False,
        encipher_only=False, decipher_only=False,
    )  # fmt: skip


def _facts(cert: x509.Certificate) -> CertificateFacts:
    from cryptography.hazmat.primitives import hashes

    return CertificateFacts(
        subject=cert.subject.rfc4514_string(),
        issuer=cert.issuer.rfc4514_string(),
        names=_names(cert),
        not_before=int(cert.not_valid_before_utc.timestamp() * 1000),
        not_after=int(cert.not_valid_after_utc.timestamp() * 1000),
        is_authority=_is_authority(cert),
        uses=_uses(cert),
        key=_key_words(cert.public_key()),
        sha256=cert.fingerprint(hashes.SHA256()).hex(),
    )


def _names(cert: x509.Certificate) -> tuple[str, ...]:
    from cryptography import x509

    try:
        found = cert.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return ()
    return tuple(str(one.value) for one in found if isinstance(one, x509.DNSName | x509.IPAddress))


def _is_authority(cert: x509.Certificate) -> bool:
    from cryptography import x509

    try:
        return cert.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    except x509.ExtensionNotFound:
        return False


def _uses(cert: x509.Certificate) -> tuple[str, ...]:
    from cryptography import x509
    from cryptography.x509.oid import ExtendedKeyUsageOID as Use

    try:
        found = cert.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    except x509.ExtensionNotFound:
        return ()
    words = {Use.SERVER_AUTH: "server", Use.CLIENT_AUTH: "client"}
    return tuple(words.get(one, one.dotted_string) for one in found)


def _key_words(key: Any) -> str:
    named = type(key).__name__.removesuffix("PublicKey").removesuffix("Key")
    curve, size = getattr(key, "curve", None), getattr(key, "key_size", None)
    return f"{named} {curve.name if curve is not None else size or ''}".strip()
