"""What `aerobee up --secure` makes in DATA/secure: an authority, certificates, two users, a client's configuration.

The user `admin` is for people; `inner` signs what the servers ask each other. Everything is found again at the next
start: the authority stays, and the server's certificate is renewed before it expires or when it lacks a name.
"""

from __future__ import annotations

import ipaddress
import json
import ssl
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from aerobee.app.authority import AuthorityFiles, PairFiles, found_authority, init_authority
from aerobee.app.identity import told_address
from aerobee.config.properties import parse_properties, render_properties
from aerobee.errors import ConfigError
from aerobee.runtime.certificates import read_certificates
from aerobee.runtime.machine import host_name
from aerobee.runtime.private import is_private, make_private_dirs, replace_file
from aerobee.runtime.seams import Clock, Entropy
from aerobee.runtime.smallfile import join_path, read_small
from aerobee.runtime.tls import FileNames, server_context

PROFILE: Final = "admin"
_INNER: Final = "inner"
SECRET_LENGTH: Final = 24
_ALPHABET: Final = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
_RENEW_DAYS: Final = 30
_LOCAL: Final = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True, slots=True)
class SecuredFacts:
    """What the operator is told: paths, and no secret. The files `credentials` and `settings` hold secrets."""

    directory: str
    credentials: str
    settings: str
    ca: str
    profile: str
    # Whether this start made the users. Only then is the secret printed.
    is_new: bool


@dataclass(frozen=True, slots=True)
class Secured:
    """What was made or found, and the settings of the servers."""

    facts: SecuredFacts
    settings: Mapping[str, str] = field(repr=False)


def new_secret(entropy: Entropy) -> str:
    """Return a secret of 24 characters, about 142 bits, that no shell and no file format has to quote."""
    return "".join(_ALPHABET[entropy.below(len(_ALPHABET))] for _ in range(SECRET_LENGTH))


def secure(data: str, host: str, advertise: str | None, clock: Clock, draw_secret: Callable[[], str]) -> Secured:
    """Make or find what a cluster in `data` needs, for servers that listen on `host` and are told as `advertise`."""
    directory = join_path(data, "secure")
    make_private_dirs(directory)
    files = _Files(directory)
    known = files.load()
    hosts = tuple(dict.fromkeys((*_named(host, advertise), *_LOCAL)))
    authority = _authority(directory, hosts, clock)
    secrets = {name: known.get(name) or draw_secret() for name in (PROFILE, _INNER)}
    settings = _settings(authority, secrets)
    files.save(secrets, settings)
    facts = SecuredFacts(
        directory, files.credentials, files.settings, authority.ca.cert, PROFILE, is_new=PROFILE not in known
    )
    return Secured(facts, settings)


def _named(host: str, advertise: str | None) -> tuple[str, ...]:
    """Return the names that clients use: routes tell addresses, and people call machines by name."""
    told = (told_address(host, advertise), *(() if advertise is None else (advertise,)))
    return told if ipaddress.ip_address(host).is_loopback else (*told, host_name().lower())


def _authority(directory: str, hosts: tuple[str, ...], clock: Clock) -> AuthorityFiles:
    now_ms = clock.now_ms()
    found = found_authority(directory)
    if found is None:
        return init_authority(directory, hosts, (), now_ms, finish=True)
    server = found.server
    data = read_small(server.cert) if server is not None else None
    if server is not None and data is not None:
        certificate = read_certificates(data, server.cert)[0]
        is_good = certificate.days_left(now_ms) >= _RENEW_DAYS and set(hosts) <= set(certificate.names)
        if is_good and _is_pair(server):
            return found
    return init_authority(directory, tuple(dict.fromkeys((*hosts, *found.hosts))), (), now_ms, renew=True)


def _is_pair(server: PairFiles) -> bool:
    """Return whether key and certificate belong together. An interrupted renewal leaves a pair that does not."""
    try:
        server_context(
            (server.cert, server.key, ""), trust_path="", client_certificate=ssl.CERT_NONE,
            names=FileNames.of("server"),
        )  # fmt: skip
    except ConfigError:
        return False
    return True


def _settings(authority: AuthorityFiles, secrets: Mapping[str, str]) -> dict[str, str]:
    """Return the settings of every server of the cluster."""
    assert authority.server is not None
    return {
        "authenticationEnabled": "true",
        "authorizationEnabled": "true",
        "initAuthenticationUser": json.dumps({"username": PROFILE, "password": secrets[PROFILE]}),
        "innerClientAuthenticationCredentials": json.dumps({"accessKey": _INNER, "secretKey": secrets[_INNER]}),
        "tls.server.mode": "enforcing",
        "tls.server.certPath": authority.server.cert,
        "tls.server.keyPath": authority.server.key,
        "tls.enable": "true",
        "tls.client.authServer": "true",
        "tls.client.verifyHost": "true",
        "tls.client.trustCertPath": authority.ca.cert,
    }


class _Files:
    """The two files with secrets: the servers' settings, and the profile of `admin`."""

    def __init__(self, directory: str) -> None:
        self.settings = join_path(directory, "server.conf")
        self.credentials = join_path(directory, "credentials.toml")

    def load(self) -> dict[str, str]:
        """Return the secrets of earlier starts, none at the first one. Raise ConfigError if they cannot be used.

        The secret of `admin` is that of the profile, so that who changes it changes one file; without a profile it is
        the one of the settings. The first start may have ended between the two files.
        """
        found: dict[str, str] = {}
        settings, credentials = self._read(self.settings), self._read(self.credentials)
        try:
            if settings is not None:
                said = parse_properties(settings.decode())
                found[PROFILE] = json.loads(said["initAuthenticationUser"])["password"]
                found[_INNER] = json.loads(said["innerClientAuthenticationCredentials"])["secretKey"]
            if credentials is not None:
                found[PROFILE] = tomllib.loads(credentials.decode())[PROFILE]["secret_key"]
        except (ValueError, KeyError, TypeError):
            raise ConfigError(
                [f"the secrets in {self.settings} and {self.credentials} cannot be read: restore them from a backup"]
            ) from None
        return {name: str(secret) for name, secret in found.items()}

    @staticmethod
    def _read(path: str) -> bytes | None:
        data = read_small(path)
        if data is not None and not is_private(path):
            raise ConfigError([f"{path} holds secrets, and other users can read it: chmod 600 {path}"])
        return data

    def save(self, secrets: Mapping[str, str], settings: Mapping[str, str]) -> None:
        """Write both files, if they are not there as they should be."""
        if read_small(self.credentials) is None:
            self._put(self.credentials, _profile("127.0.0.1:9876", secrets[PROFILE]).encode())
        head = b"# The settings of every server of this cluster: `aerobee broker -c` reads them too. Keep it secret.\n"
        self._put(self.settings, head + render_properties(settings).encode())

    def tell_namesrv(self, namesrv: str) -> None:
        """Write the address of the name server into the profile."""
        data = read_small(self.credentials) or b""
        lines = data.decode().splitlines(keepends=True)
        told = f"namesrv = {json.dumps(namesrv)}\n"
        self._put(self.credentials, "".join(told if line.startswith("namesrv = ") else line for line in lines).encode())

    @staticmethod
    def _put(path: str, data: bytes) -> None:
        if read_small(path) != data:
            replace_file(path, data, private=True)


def tell_namesrv(secured: Secured, namesrv: str) -> None:
    """Complete the profile when the port of the name server is known."""
    _Files(secured.facts.directory).tell_namesrv(namesrv)


def _profile(namesrv: str, secret: str) -> str:
    return (
        "# A profile of aerobee's commands, Python clients and Spark. Keep it secret.\n"
        f"# export AEROBEE_CREDENTIALS=(this file) AEROBEE_PROFILE={PROFILE}\n"
        f"[{PROFILE}]\n"
        f"namesrv = {json.dumps(namesrv)}\n"
        f"access_key = {json.dumps(PROFILE)}\n"
        f"secret_key = {json.dumps(secret)}\n"
        'tls_ca = "ca.pem"\n'
    )
