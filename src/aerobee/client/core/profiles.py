"""Profiles: credentials, TLS files and name servers under a name, in a file that only its owner can read.

    [admin]
    namesrv = "10.0.0.5:9876"
    access_key = "admin"
    secret_key = "..."
    tls_ca = "ca.pem"

A profile says what environment variables say, so that everything which reads these knows profiles. One that the caller
names (`--profile`, `profile=`) overrides the environment; one that AEROBEE_PROFILE names fills what is missing there.
Paths are relative to the file. Nothing but a name chooses a profile: there is no default one.
"""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Mapping
from typing import Any, Final

from aerobee.client.core.tls import VARIABLES
from aerobee.errors import ConfigError
from aerobee.runtime.private import is_private
from aerobee.runtime.smallfile import home_path, join_path, parent_path, read_small

PROFILE_VARIABLE: Final = "AEROBEE_PROFILE"
PROFILES_FILE_VARIABLE: Final = "AEROBEE_CREDENTIALS"
NAMESRV_VARIABLE: Final = "NAMESRV_ADDR"
ACCESS_KEY_VARIABLE: Final = "AEROBEE_ACCESS_KEY"
SECRET_KEY_VARIABLE: Final = "AEROBEE_SECRET_KEY"
SECURITY_TOKEN_VARIABLE: Final = "AEROBEE_SECURITY_TOKEN"

_KEYS: Final = {
    "namesrv": NAMESRV_VARIABLE,
    "access_key": ACCESS_KEY_VARIABLE,
    "secret_key": SECRET_KEY_VARIABLE,
    "security_token": SECURITY_TOKEN_VARIABLE,
    **{name if name == "tls" else f"tls_{name}": variable for name, variable in VARIABLES.items()},
}
_PATHS: Final = frozenset(("tls_ca", "tls_cert", "tls_key"))
_SWITCHES: Final = frozenset(("tls", "tls_any_host", "tls_insecure"))
# These belong together: half of one pair and half of another sign nothing.
_LOGIN: Final = (ACCESS_KEY_VARIABLE, SECRET_KEY_VARIABLE, SECURITY_TOKEN_VARIABLE)
_SHOWN_MAX: Final = 40


def profiles_path(environ: Mapping[str, str]) -> str:
    """Return where the profiles are."""
    return environ.get(PROFILES_FILE_VARIABLE) or home_path(".aerobee", "credentials.toml")


def with_profile(profile: str | None, environ: Mapping[str, str]) -> Mapping[str, str]:
    """Return the environment with the variables of a profile. Raise ConfigError for one that cannot be used."""
    if profile is not None:
        found = read_profile(profile, environ)
        around = {key: value for key, value in environ.items() if key != PROFILE_VARIABLE}
        return {**_without_login(around, found), **found}
    named = environ.get(PROFILE_VARIABLE, "").strip()
    if not named:
        return environ
    return {**_without_login(read_profile(named, environ), environ), **environ}


def _without_login(weaker: Mapping[str, str], stronger: Mapping[str, str]) -> dict[str, str]:
    taken = _LOGIN if any(stronger.get(name) for name in _LOGIN) else ()
    return {name: value for name, value in weaker.items() if name not in taken}


def read_profile(name: str, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment variables that a profile stands for."""
    path = profiles_path(environ)
    try:
        data = read_small(path)
        if data is None:
            raise ConfigError([f"profile {name[:_SHOWN_MAX]!r}: there is no file {path}"])
        if not is_private(path):
            raise ConfigError([f"{path} holds secrets, and other users can read it: chmod 600 {path}"])
        return _variables(_table(data, path, name), path, name)
    except OSError as error:
        raise ConfigError([f"{path}: {error.strerror or error}"]) from None


def _table(data: bytes, path: str, name: str) -> dict[str, Any]:
    try:
        tables = tomllib.loads(data.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        # The text of a UnicodeDecodeError contains the bytes.
        place = str(error) if isinstance(error, tomllib.TOMLDecodeError) else "it is not UTF-8"
        raise ConfigError([f"{path} is no TOML file: {place}"]) from None
    found = tables.get(name)
    if not isinstance(found, dict):
        known = ", ".join(sorted(tables)) or "none"
        raise ConfigError([f"{path} has no profile [{name[:_SHOWN_MAX]}]; it has {known}"])
    return found


def _variables(table: Mapping[str, Any], path: str, name: str) -> dict[str, str]:
    problems, found = [], {}
    for key, value in table.items():
        where = f"{path} [{name}] {key[:_SHOWN_MAX]}"
        if key not in _KEYS:
            near = difflib.get_close_matches(key, _KEYS, n=1)
            problems.append(f"{where}: no such key" + (f", did you mean {near[0]}?" if near else ""))
        elif key in _SWITCHES:
            if isinstance(value, bool):
                found[_KEYS[key]] = "true" if value else "false"
            else:
                problems.append(f"{where}: must be true or false")
        elif not isinstance(value, str) or not value.strip():
            problems.append(f"{where}: must be a text that is not empty")
        else:
            found[_KEYS[key]] = join_path(parent_path(path), value) if key in _PATHS else value
    if bool(table.get("access_key")) != bool(table.get("secret_key")):
        problems.append(f"{path} [{name}]: access_key and secret_key go together")
    if problems:
        raise ConfigError(problems)
    return found
