"""The directory of a small authority: its own certificate and key, and those that it issued to servers and clients.

`aerobee tls init` and `aerobee up --secure` make it. Nothing is ever overwritten but by a renewal, which keeps the
authority and its key, so that clients go on trusting the same file.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from aerobee.errors import InvalidArgumentError
from aerobee.runtime.certificates import (
    CertificateError,
    KeyPair,
    checked_host,
    issue,
    new_authority,
    read_certificates,
    require_package,
)
from aerobee.runtime.private import create_file, is_private, make_private_dirs, replace_file
from aerobee.runtime.smallfile import join_path, read_small

_CLIENT: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_AUTHORITY: Final = "ca"
_SERVER: Final = "server"


@dataclass(frozen=True, slots=True)
class PairFiles:
    """The two PEM files of a certificate."""

    cert: str
    key: str


@dataclass(frozen=True, slots=True)
class AuthorityFiles:
    """The files in the directory of an authority. `written` are those that this run wrote."""

    directory: str
    ca: PairFiles
    server: PairFiles | None
    clients: dict[str, PairFiles]
    hosts: tuple[str, ...]
    written: tuple[str, ...]


def init_authority(
    directory: str,
    hosts: Sequence[str],
    clients: Sequence[str],
    now_ms: int,
    *,
    renew: bool = False,
    finish: bool = False,
) -> AuthorityFiles:
    """Make an authority with a certificate for servers on `hosts` and one for each client.

    With `renew` the authority that is there issues them anew; without `hosts` for those that the server's certificate
    names now. Raise InvalidArgumentError where a file is in the way, before anything is written; with `finish` what an
    interrupted run has left is written anew.
    """
    require_package()
    named = tuple(dict.fromkeys(checked_host(host) for host in hosts))
    for client in clients:
        if _CLIENT.fullmatch(client) is None or client in (_AUTHORITY, _SERVER):
            raise InvalidArgumentError(
                f"{client[:80]!r} cannot be the name of a client's certificate",
                hint="Letters, digits, dots, dashes and underscores, and neither ca nor server.",
            )
    here = _Directory(directory)
    if renew:
        authority = here.authority()
        named = named or here.hosts()
    else:
        if not named:
            raise InvalidArgumentError("a server's certificate needs the names of its machine", hint="--name HOST")
        authority = new_authority("Aerobee authority", now_ms)
    made = {client: issue(authority, client, (), now_ms) for client in clients}
    if named:
        made[_SERVER] = issue(authority, named[0], named, now_ms)
    if not renew:
        made[_AUTHORITY] = authority
        if not finish or here.is_complete():
            here.require_free(made)
    # The authority comes last: where it is found, everything else has been written.
    written = here.write(made, replace=renew or finish)
    return AuthorityFiles(
        directory=directory,
        ca=here.files(_AUTHORITY),
        server=here.files(_SERVER) if named else None,
        clients={client: here.files(client) for client in clients},
        hosts=named,
        written=written,
    )


def found_authority(directory: str) -> AuthorityFiles | None:
    """Return the authority that an earlier run has made in a directory, None where there is none."""
    here = _Directory(directory)
    if not here.is_complete():
        return None
    return AuthorityFiles(directory, here.files(_AUTHORITY), here.files(_SERVER), {}, here.hosts(), ())


class _Directory:
    """The files of one authority."""

    def __init__(self, path: str) -> None:
        self._path = path

    def files(self, name: str) -> PairFiles:
        return PairFiles(join_path(self._path, f"{name}.pem"), join_path(self._path, f"{name}.key"))

    def authority(self) -> KeyPair:
        """Return the authority. Raise an error where its files are missing, or its key can be read by others."""
        files = self.files(_AUTHORITY)
        cert, key = read_small(files.cert), read_small(files.key)
        if cert is None or key is None:
            missing = files.cert if cert is None else files.key
            raise InvalidArgumentError(
                f"{missing} is missing, so nothing can be renewed here", hint="Without --renew a new authority is made."
            )
        if not is_private(files.key):
            raise CertificateError(
                f"other users can read {files.key}, so its certificates prove nothing",
                hint=f"If nobody has read it: chmod 600 {files.key}. Otherwise make a new authority.",
            )
        return KeyPair(cert, key)

    def is_complete(self) -> bool:
        """Return whether a run has come to its end here: the authority's certificate is written last."""
        return read_small(self.files(_AUTHORITY).cert) is not None

    def hosts(self) -> tuple[str, ...]:
        """Return what the server's certificate names, nothing where there is none."""
        path = self.files(_SERVER).cert
        data = read_small(path)
        return () if data is None else read_certificates(data, path)[0].names

    def require_free(self, names: Sequence[str] | dict[str, KeyPair]) -> None:
        for name in names:
            for path in (self.files(name).cert, self.files(name).key):
                if read_small(path) is not None:
                    raise InvalidArgumentError(
                        f"{path} exists, and nothing is overwritten",
                        hint="Name another directory, or add --renew to keep this authority and issue anew.",
                    )

    def write(self, made: dict[str, KeyPair], *, replace: bool) -> tuple[str, ...]:
        make_private_dirs(self._path)
        put = replace_file if replace else create_file
        written: list[str] = []
        for name, pair in made.items():
            files = self.files(name)
            # A server that looks in between finds a pair that does not fit, keeps the old one and looks again.
            put(files.key, pair.key, private=True)
            put(files.cert, pair.cert, private=False)
            written += [files.cert, files.key]
        return tuple(written)
