"""How a client speaks TLS, as users say it: by files and words, which can go to other processes as they are.

Commands (`--tls-ca`), Spark options (`tlsCa`) and the environment (`AEROBEE_TLS_CA`) all end here.
"""

from __future__ import annotations

import functools
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Final

from aerobee.errors import InvalidArgumentError, TransportError, is_cut
from aerobee.runtime.tls import FileNames, Stamps, client_context, stamps

# Whether at all; the others are AEROBEE_TLS_ and the name of ClientTls's field.
TLS_VARIABLE: Final = "AEROBEE_TLS"
_NAMES: Final = FileNames("tls-cert", "tls-key", "tls-ca")
_WORDS: Final = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}

ENFORCED: Final = (
    "A server that enforces TLS closes plain connections so: name its CA (--tls-ca FILE, Spark option tlsCa, "
    "AEROBEE_TLS_CA), or in Python tls=ssl.create_default_context(cafile=...)."
)
_NO_CERTIFICATE: Final = "It may want a certificate of ours that it trusts: tls-cert and tls-key."


@dataclass(frozen=True, slots=True)
class ClientTls:
    """Files are PEM."""

    # Who is trusted; the system's own where empty.
    ca: str = ""
    # What we show, where the server wants it; the key may stand in the certificate's file.
    cert: str = ""
    key: str = ""
    key_password: str = field(default="", repr=False)
    # A certificate may be for any host: routes name addresses, and not every certificate does.
    any_host: bool = False
    # Every server is believed.
    insecure: bool = False

    def __post_init__(self) -> None:
        if self.key and not self.cert:
            raise InvalidArgumentError("tls-key needs tls-cert, the certificate that it belongs to")

    def context(self) -> ssl.SSLContext:
        """The same one until a file changes, so that equal clients can share connections. A bad file is a
        ConfigError."""
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
    """From what was said, by field name and `tls` for whether at all (None: not said); then from the environment.

    Whoever names a file wants TLS. None: plain connections.
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


# By field name, and `tls`.
VARIABLES: Final = {
    "tls": TLS_VARIABLE,
    **{one.name: f"{TLS_VARIABLE}_{one.name.upper()}" for one in fields(ClientTls)},
}


def variables_of(tls: ClientTls | None) -> dict[str, str | None]:
    """The environment that says the same to another process; None: a variable that must not be set."""
    if tls is None:
        return {variable: "false" if name == "tls" else None for name, variable in VARIABLES.items()}
    said = {one.name: getattr(tls, one.name) for one in fields(tls)}
    words = {name: "true" if value is True else value or None for name, value in said.items()}
    return {variable: "true" if name == "tls" else words[name] for name, variable in VARIABLES.items()}


def tls_hint(error: TransportError, speaks_tls: bool) -> str | None:
    """What to do where a connection failed for what it said, or did not say, of TLS; None where it was not that."""
    if not is_cut(error):
        return error.hint
    return _NO_CERTIFICATE if speaks_tls else ENFORCED
