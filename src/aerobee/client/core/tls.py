"""The TLS settings of a client, as users give them: file names and switches, which can be passed to other processes.

Commands (`--tls-ca`), Spark options (`tlsCa`) and the environment (`AEROBEE_TLS_CA`) are all read into `ClientTls`.
"""

from __future__ import annotations

import functools
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Final

from aerobee.errors import InvalidArgumentError, TransportError, is_cut
from aerobee.runtime.tls import FileNames, Stamps, client_context, stamps

# This variable switches TLS on. The others are AEROBEE_TLS_ and the name of a field of ClientTls.
TLS_VARIABLE: Final = "AEROBEE_TLS"
_NAMES: Final = FileNames("tls-cert", "tls-key", "tls-ca")
_WORDS: Final = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}

ENFORCED: Final = (
    "A server that enforces TLS closes plain connections like this: name its CA (--tls-ca FILE, Spark option tlsCa, "
    "AEROBEE_TLS_CA), or in Python tls=ssl.create_default_context(cafile=...)."
)
_NO_CERTIFICATE: Final = "The server may want a client certificate that it trusts: tls-cert and tls-key."


@dataclass(frozen=True, slots=True)
class ClientTls:
    """The TLS settings of a client. All files are PEM."""

    # The CA that is trusted. Where this is empty, the CAs of the system are.
    ca: str = ""
    # The client certificate, for servers that ask for one. Its key may be in the same file.
    cert: str = ""
    key: str = ""
    key_password: str = field(default="", repr=False)
    # Whether a server's certificate may be for any host. Routes name addresses, and not every certificate does.
    any_host: bool = False
    # Whether the certificates of servers are not checked at all.
    insecure: bool = False

    def __post_init__(self) -> None:
        if self.key and not self.cert:
            raise InvalidArgumentError("tls-key needs tls-cert, the certificate that it belongs to")

    def context(self) -> ssl.SSLContext:
        """Return the context, the same one until a file changes, so that equal clients can share connections.

        Raise ConfigError for a file that cannot be used.
        """
        return _context(self, stamps((self.ca, self.cert, self.key)))


@functools.lru_cache(maxsize=16)
def _context(tls: ClientTls, stamped: Stamps) -> ssl.SSLContext:
    return client_context(
        (tls.cert, tls.key or tls.cert, tls.key_password) if tls.cert else None,
        trust_path=tls.ca,
        verified=not tls.insecure,
        any_host=tls.any_host,
        names=_NAMES,
    )


def tls_of(given: Mapping[str, Any], environ: Mapping[str, str]) -> ClientTls | None:
    """Return the settings in `given`, by field name and `tls` as the switch; the environment fills what is missing.

    Naming a file switches TLS on. Return None for plain connections.
    """
    said = {name: value for name, value in given.items() if value is not None}
    around = _from(environ)
    wanted = said.get("tls", True if said else None)
    if wanted is None:
        wanted = around.get("tls", bool(around))
    if not wanted:
        return None
    return ClientTls(**{name: value for name, value in {**around, **said}.items() if name != "tls"})


def _from(environ: Mapping[str, str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, variable in VARIABLES.items():
        text = environ.get(variable, "").strip()
        if not text:
            continue
        if name not in ("tls", "any_host", "insecure"):
            found[name] = text
        elif text.lower() in _WORDS:
            found[name] = _WORDS[text.lower()]
        else:
            raise InvalidArgumentError(f"${variable}: {text!r} is neither true nor false")
    return found


# The environment variables by field name; `tls` is the switch.
VARIABLES: Final = {
    "tls": TLS_VARIABLE,
    **{one.name: f"{TLS_VARIABLE}_{one.name.upper()}" for one in fields(ClientTls)},
}


def variables_of(tls: ClientTls | None) -> dict[str, str | None]:
    """Return the variables that give another process the same settings. None is a variable that must not be set."""
    if tls is None:
        return {variable: "false" if name == "tls" else None for name, variable in VARIABLES.items()}
    said = {one.name: getattr(tls, one.name) for one in fields(tls)}
    words = {name: "true" if value is True else value or None for name, value in said.items()}
    return {variable: "true" if name == "tls" else words[name] for name, variable in VARIABLES.items()}


def tls_hint(error: TransportError, speaks_tls: bool) -> str | None:
    """Return what to do about a connection that failed because of TLS; None where it failed for another reason."""
    if not is_cut(error):
        return error.hint
    return _NO_CERTIFICATE if speaks_tls else ENFORCED
