"""The options of source and sink as declared values: their names, aliases and types, and whether they are secret.

`read_options` turns Spark's map (case-insensitive names, text values) into Python values. An unknown name is an error
that suggests the nearest one. The sink declares its own options in `sinkoptions.py`, in addition to `COMMON`.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

from aerobee.client.core import (
    NAMESRV_VARIABLE,
    ClientConfig,
    ClientTls,
    Credentials,
    credentials_of,
    parse_namesrv,
    tls_of,
    with_profile,
)
from aerobee.errors import InvalidArgumentError
from aerobee.model.numbers import INT32_MAX, NumberError, int_or, parse_int

# Keys that Spark itself puts into the map: for `load(path)`, for tables, for streaming sinks.
_SPARKS_OWN: Final = frozenset(
    ("path", "paths", "owner", "provider", "location", "comment", "checkpointlocation", "queryname", "mergeschema")
)
_DURATION: Final = re.compile(r"(\d+)\s*(ms|s|m|min|h|d)?")
_DURATION_MS: Final = {"ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}
_SIZE: Final = re.compile(r"(\d+)\s*(b|k|kb|kib|m|mb|mib|g|gb|gib)?")
_SIZE_SHIFT: Final = {"b": 0, "k": 10, "m": 20, "g": 30}

# The last millisecond of the year 9999. Microseconds and nanoseconds of today are above it.
_MOMENT_MAX_MS: Final = 253_402_300_799_999
# What are seconds of 1973 and later would be milliseconds of 1970 to 1973, when there were no brokers.
_SECONDS: Final = range(100_000_000, 100_000_000_000)

_CONNECT_TIMEOUT_MAX_MS: Final = 5_000
# An error shows so much of a value.
_SHOWN_MAX: Final = 500

LOST_OPTIONS: Final = (
    "a table made by CREATE TABLE ... USING rocketmq OPTIONS (...) loses its options in Spark: use CREATE TEMPORARY "
    "VIEW ... USING rocketmq OPTIONS (...), or FROM t WITH (...)"
)


class OptionError(InvalidArgumentError):
    """An option is unknown, missing or wrong. The message names it."""


@dataclass(frozen=True, slots=True)
class Option:
    """One declared option. `read` turns its text into a value, or raises ValueError with the reason."""

    name: str
    read: Callable[[str], Any] = str
    default: Any = None
    help: str = ""
    aliases: tuple[str, ...] = ()
    secret: bool = False


# -- parsing


def text(value: str) -> str:
    """Return the text, unless it is empty."""
    if not value.strip():
        raise ValueError("is empty")
    return value.strip()


def boolean(value: str) -> bool:
    """Return whether the text is true or false, in upper or lower case."""
    low = value.strip().lower()
    if low not in ("true", "false"):
        raise ValueError("is neither true nor false")
    return low == "true"


def positive(value: str) -> int:
    """Return a whole number above 0."""
    number = _whole(value)
    if number < 1:
        raise ValueError("must be at least 1")
    return number


def not_negative(value: str) -> int:
    """Return a whole number that is not negative."""
    number = _whole(value)
    if number < 0:
        raise ValueError("must not be negative")
    return number


def wait_ms(value: str) -> int:
    """Return the milliseconds of a wait. Clocks cannot count longer ones, and nobody waits for them."""
    number = not_negative(value)
    if number > INT32_MAX:
        raise ValueError(f"must be at most {INT32_MAX} milliseconds (24 days)")
    return number


def request_ms(value: str) -> int:
    """Return the milliseconds of a wait that is not 0."""
    return positive(value) and wait_ms(value)


def _whole(value: str) -> int:
    try:
        return parse_int(value.strip())
    except NumberError:
        raise ValueError("is not a whole number") from None


def duration_ms(value: str) -> int:
    """Return the milliseconds of `15m`, `500ms` or `10s`; a number without a unit is milliseconds."""
    found = _DURATION.fullmatch(value.strip().lower())
    if found is None:
        raise ValueError("is not a duration such as 500ms, 10s or 15m")
    return parse_int(found[1]) * _DURATION_MS[found[2] or "ms"]


def size_bytes(value: str) -> int:
    """Return the bytes of `64m` or `1g`; a number without a unit is bytes."""
    found = _SIZE.fullmatch(value.strip().lower())
    if found is None or int_or(found[1], 0) < 1:
        raise ValueError("is not a size such as 65536, 64m or 1g")
    return parse_int(found[1]) << _SIZE_SHIFT[(found[2] or "b")[0]]


def moment_ms(value: str) -> int:
    """Return milliseconds since 1970, from such a number or from an ISO 8601 time (UTC if it has no zone)."""
    word = value.strip()
    if re.fullmatch(r"[0-9]+", word):
        number = int_or(word, None, 0, _MOMENT_MAX_MS)
        if number is None or number in _SECONDS:
            raise ValueError("is not in milliseconds since 1970: it seems to be in another unit")
        return number
    try:
        found = datetime.fromisoformat(word)
    except ValueError:
        raise ValueError("is neither milliseconds since 1970 nor a time such as 2026-11-15T10:00:00Z") from None
    return int((found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp() * 1000)


def one_of(*words: str) -> Callable[[str], str]:
    """Return a function that accepts only these words, in upper or lower case."""

    def read(value: str) -> str:
        word = value.strip().lower()
        if word not in words:
            near = difflib.get_close_matches(word, words, n=1)
            raise ValueError(f"is none of {', '.join(words)}" + (f" (did you mean {near[0]}?)" if near else ""))
        return word

    return read


# By the field of ClientTls; `tls` says whether TLS is used. Paths must be valid where the tasks run.
_TLS: Final = {
    "tls": Option("tls", boolean, help="use TLS", aliases=("tls.enable",)),
    "ca": Option("tlsCa", text, help="the CA to trust (PEM)", aliases=("tls.client.trustCertPath",)),
    "cert": Option("tlsCert", text, help="the client's certificate (PEM)", aliases=("tls.client.certPath",)),
    "key": Option("tlsKey", text, help="its key (PEM)", aliases=("tls.client.keyPath",)),
    "key_password": Option(
        "tlsKeyPassword", text, help="the key's password", aliases=("tls.client.keyPassword",), secret=True
    ),
    "any_host": Option("tlsAnyHost", boolean, help="the servers' certificates may name other hosts"),
    "insecure": Option("tlsInsecure", boolean, help="the servers' certificates are not checked"),
}

# The options that source and sink share.
COMMON: Final = (
    Option("nameServer", text, help="host:port of the name servers, separated by `;`", aliases=("endpoint", "namesrv")),
    Option("topic", text, aliases=("subscribe",), help="the topic; for reading, several topics separated by commas"),
    Option("profile", text, help="credentials and TLS of the driver's ~/.aerobee/credentials.toml"),
    Option("accessKey", text, help="the account, for brokers with access control", secret=True),
    Option("secretKey", text, help="signs every request", secret=True),
    Option("securityToken", text, help="belongs to temporary keys", secret=True),
    *_TLS.values(),
    Option("requestTimeoutMs", request_ms, 10_000, "how long one request may take"),
    Option("retryTimeoutMs", wait_ms, 60_000, "how long a task tries again while a broker is away"),
)


def read_options(
    options: Mapping[str, str], declared: Sequence[Option], *, elsewhere: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """Return the value of every declared option by its name.

    `elsewhere` maps names that belong to another use to a sentence that says so.
    """
    by_word = {word.lower(): (word, option) for option in declared for word in (option.name, *option.aliases)}
    found: dict[str, Any] = {}
    said: dict[str, str] = {}
    for given, value in options.items():
        # Spark passes all names in lower case. Errors show a name as it is documented.
        word, option = by_word.get(given.lower(), (given, None))
        if option is None:
            if _is_sparks(given):
                continue
            raise OptionError(_unknown(given, declared, elsewhere or {}))
        if option.name in found:
            raise OptionError(f"option {word}: {said[option.name]} says the same, give one of them")
        said[option.name] = word
        if not isinstance(value, str):  # Spark passes None on
            raise OptionError(f"option {word}: {value!r} is no value; leave the option out")
        try:
            found[option.name] = option.read(value)
        except ValueError as error:
            shown = (
                "its value"
                if option.secret
                else repr(value if len(value) <= _SHOWN_MAX else f"{value[:_SHOWN_MAX]}...")
            )
            raise OptionError(f"option {word}: {shown} {error}") from None
    return {option.name: found.get(option.name, option.default) for option in declared}


def require_names(options: Mapping[str, str], declared: Sequence[Option]) -> None:
    """Raise OptionError for a name that is not declared. The error suggests the nearest one."""
    words = {word.lower() for option in declared for word in (option.name, *option.aliases)}
    for word in options:
        if word.lower() not in words and not _is_sparks(word):
            raise OptionError(_unknown(word, declared, {}))


def _is_sparks(word: str) -> bool:
    return word.lower() in _SPARKS_OWN or word.lower().startswith(("option.", "spark."))


def _unknown(word: str, declared: Sequence[Option], elsewhere: Mapping[str, str]) -> str:
    low = word.lower()
    for name, sentence in elsewhere.items():
        if name.lower() == low:
            return f"option {name}: {sentence}"
    if low == "kafka.bootstrap.servers":
        return f"no option {word}: did you mean nameServer?"
    names = {name.lower(): option.name for option in declared for name in (option.name, *option.aliases)}
    near = difflib.get_close_matches(low.removeprefix("kafka."), names, n=1, cutoff=0.5)
    if near:
        return f"no option {word}: did you mean {names[near[0]]}?"
    return f"no option {word}; there are {', '.join(sorted(option.name for option in declared))}"


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The name servers, and the credentials for them. Its text contains no secrets."""

    name_servers: tuple[str, ...]
    credentials: Credentials | None = field(default=None, repr=False)
    request_timeout_ms: int = 10_000
    retry_timeout_ms: int = 60_000
    # None means plain connections.
    tls: ClientTls | None = None

    def client_config(self) -> ClientConfig:
        """Return the settings of a client that talks to this endpoint."""
        return ClientConfig(
            namesrv=self.name_servers,
            credentials=self.credentials,
            tls=self.tls.context() if self.tls is not None else None,
            request_timeout_ms=self.request_timeout_ms,
            connect_timeout_ms=min(self.request_timeout_ms, _CONNECT_TIMEOUT_MAX_MS),
        )


def endpoint_of(values: Mapping[str, Any], environ: Mapping[str, str]) -> Endpoint:
    """Return the endpoint that the options name. The driver's environment supplies what is missing."""
    environ = with_profile(values["profile"], environ)
    server = values["nameServer"]
    if server is None and not environ.get(NAMESRV_VARIABLE):
        raise OptionError(f"option nameServer is missing (and ${NAMESRV_VARIABLE} is not set); {LOST_OPTIONS}")
    access, secret = values["accessKey"], values["secretKey"]
    if (access is None) != (secret is None):
        raise OptionError("options accessKey and secretKey go together")
    if access is None or secret is None:
        credentials = credentials_of(environ, values["securityToken"])
    else:
        credentials = Credentials(access, secret, values["securityToken"])
    try:
        servers = parse_namesrv(server, environ)
    except InvalidArgumentError as error:
        raise OptionError(f"option nameServer: {error.message}") from None
    if values["tlsKey"] is not None and values["tlsCert"] is None:
        raise OptionError("option tlsKey needs tlsCert, the certificate that it belongs to")
    tls = tls_of({name: values[option.name] for name, option in _TLS.items()}, environ)
    return Endpoint(servers, credentials, values["requestTimeoutMs"], values["retryTimeoutMs"], tls)
