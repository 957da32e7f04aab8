"""The settings of access control, under RocketMQ's keys. RocketMQ: AuthConfig."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

from aerobee.access.refusal import AccessRefusedError
from aerobee.access.sources import address_of, is_within, network_of
from aerobee.access.users import User, UserType, user_problem
from aerobee.config.setting import Settings, setting
from aerobee.model.numbers import int_or

_PROVIDERS: Final = (
    "org.apache.rocketmq.auth.authentication.provider.DefaultAuthenticationProvider",
    "org.apache.rocketmq.auth.authorization.provider.DefaultAuthorizationProvider",
    "org.apache.rocketmq.auth.authentication.provider.LocalAuthenticationMetadataProvider",
    "org.apache.rocketmq.auth.authorization.provider.LocalAuthorizationMetadataProvider",
)
_STATELESS: Final = (
    "org.apache.rocketmq.auth.authentication.strategy.StatelessAuthenticationStrategy",
    "org.apache.rocketmq.auth.authorization.strategy.StatelessAuthorizationStrategy",
)
_STATEFUL: Final = (
    "org.apache.rocketmq.auth.authentication.strategy.StatefulAuthenticationStrategy",
    "org.apache.rocketmq.auth.authorization.strategy.StatefulAuthorizationStrategy",
)
_AT_ONCE: Final = "No effect: a change of users or rights holds for the next request."
_ONE_PROVIDER: Final = "Apache's class names are accepted; users and rights are always kept in config/*.json."


@dataclass(frozen=True, slots=True)
class InnerCredentials:
    """An access key and its secret. `repr` shows neither."""

    access_key: str
    secret_key: str

    def __repr__(self) -> str:
        return "InnerCredentials(******)"


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessConfig(Settings):
    """Users, rights, and what is logged of them."""

    authentication_enabled: bool = setting(
        False,
        java="authenticationEnabled",
        doc="Every request must be signed by a user. Without authorizationEnabled too, every user may do everything.",
    )
    authorization_enabled: bool = setting(
        False,
        java="authorizationEnabled",
        doc="Users may do only what their policies allow. Needs authenticationEnabled.",
    )
    init_authentication_user: str = setting(
        "",
        java="initAuthenticationUser",
        secret=True,
        doc='`{"username":..,"password":..}`: a Super user that is made if it does not exist, and never changed.',
    )
    inner_client_authentication_credentials: str = setting(
        "",
        java="innerClientAuthenticationCredentials",
        secret=True,
        doc='`{"accessKey":..,"secretKey":..}`: signs what the server itself sends to name servers and brokers, and is '
        "made a Super user. The same on all servers of a cluster.",
    )
    auth_cluster_name: str = setting(
        "",
        java="clusterName",
        doc="The cluster that policies call `Cluster:name`. Empty takes the broker's brokerClusterName; at a name "
        "server `DefaultCluster`.",
    )
    auth_config_path: str = setting(
        "",
        java="authConfigPath",
        doc="Directory of users.json and acls.json. Empty takes `config` in the store; at a name server the directory "
        "of kvConfigPath.",
    )
    auth_secrets_key_file: str = setting(
        "",
        java="authSecretsKeyFile",
        own=True,
        doc="Refused: it stops the start. Passwords are not encrypted at rest (docs/decisions/0010).",
    )
    audit_log_path: str = setting(
        "",
        java="auditLogPath",
        own=True,
        doc="File of the audit log (JSON lines, rotated, readable by its owner only). Empty: the server's log.",
    )
    migrate_auth_from_v1_enabled: bool = setting(
        False,
        java="migrateAuthFromV1Enabled",
        doc="At the start, import the accounts of a plain_acl.yml (aclFile) whose users do not exist yet.",
    )
    acl_file: str = setting(
        "", java="aclFile", own=True, doc="The plain_acl.yml of RocketMQ 4 for migrateAuthFromV1Enabled."
    )
    proxy_protocol_trusted_addresses: str = setting(
        "",
        java="proxyProtocolTrustedAddresses",
        own=True,
        doc="Addresses and CIDR blocks, separated by commas, whose PROXY header is believed. Empty: any, or none where "
        "authenticationEnabled is on, because source addresses in policies would count for nothing.",
    )
    authentication_whitelist: str = setting(
        "",
        java="authenticationWhitelist",
        doc="Request codes, separated by commas, that need no user. Only codes that read no messages, users or "
        "settings and change nothing are allowed here.",
    )
    authorization_whitelist: str = setting(
        "",
        java="authorizationWhitelist",
        doc="Request codes, separated by commas, that every user may send. The same codes as for "
        "authenticationWhitelist are allowed.",
    )
    authentication_strategy: str = setting(
        "",
        java="authenticationStrategy",
        doc="Apache's class names. With StatefulAuthenticationStrategy, a user who has signed well on a TLS connection "
        "is trusted there for 60 s, or until the user changes. Plain connections are verified each time.",
    )
    authorization_strategy: str = setting(
        "",
        java="authorizationStrategy",
        doc="Apache's class names; both mean the same here, as verdicts are always kept until a right changes.",
    )
    authentication_provider: str = setting("", java="authenticationProvider", doc=_ONE_PROVIDER)
    authorization_provider: str = setting("", java="authorizationProvider", doc=_ONE_PROVIDER)
    authentication_metadata_provider: str = setting("", java="authenticationMetadataProvider", doc=_ONE_PROVIDER)
    authorization_metadata_provider: str = setting("", java="authorizationMetadataProvider", doc=_ONE_PROVIDER)
    user_cache_max_num: int = setting(1000, java="userCacheMaxNum", effect=_AT_ONCE, doc="Users kept in memory.")
    user_cache_expired_s: int = setting(
        600, java="userCacheExpiredSecond", effect=_AT_ONCE, doc="How long they are kept."
    )
    user_cache_refresh_s: int = setting(
        60, java="userCacheRefreshSecond", effect=_AT_ONCE, doc="How often they are read again."
    )
    acl_cache_max_num: int = setting(1000, java="aclCacheMaxNum", effect=_AT_ONCE, doc="Policies kept in memory.")
    acl_cache_expired_s: int = setting(
        600, java="aclCacheExpiredSecond", effect=_AT_ONCE, doc="How long they are kept."
    )
    acl_cache_refresh_s: int = setting(
        60, java="aclCacheRefreshSecond", effect=_AT_ONCE, doc="How often they are read again."
    )
    stateful_authentication_cache_max_num: int = setting(
        10_000, java="statefulAuthenticationCacheMaxNum", effect=_AT_ONCE, doc="Connections that are remembered."
    )
    stateful_authentication_cache_expired_s: int = setting(
        60, java="statefulAuthenticationCacheExpiredSecond", effect=_AT_ONCE, doc="How long they are remembered."
    )
    stateful_authorization_cache_max_num: int = setting(
        10_000, java="statefulAuthorizationCacheMaxNum", effect=_AT_ONCE, doc="Verdicts that are remembered."
    )
    stateful_authorization_cache_expired_s: int = setting(
        60, java="statefulAuthorizationCacheExpiredSecond", effect=_AT_ONCE, doc="How long they are remembered."
    )

    def relations(self) -> Iterable[str]:
        """Yield what would leave a server open, or closed to everybody."""
        if self.authorization_enabled and not self.authentication_enabled:
            yield (
                "authorizationEnabled needs authenticationEnabled=true: without it nobody is known, and everybody "
                "would be refused"
            )
        for key, value in (
            ("authenticationProvider", self.authentication_provider),
            ("authorizationProvider", self.authorization_provider),
            ("authenticationMetadataProvider", self.authentication_metadata_provider),
            ("authorizationMetadataProvider", self.authorization_metadata_provider),
        ):
            if value.strip() and value.strip() not in _PROVIDERS:
                yield f"{key}={value.strip()[:80]} cannot be honoured: no Java class is run here. Remove the key"
        for key, value in (
            ("authenticationStrategy", self.authentication_strategy),
            ("authorizationStrategy", self.authorization_strategy),
        ):
            if value.strip() and value.strip() not in _STATELESS + _STATEFUL:
                yield f"{key}={value.strip()[:80]} cannot be honoured: no Java class is run here. Remove the key"
        if self.auth_secrets_key_file:
            yield (
                "authSecretsKeyFile cannot be honoured: passwords are not encrypted in users.json, since the key would "
                "lie on the same machine. Keep the directory on an encrypted disk and remove the key"
            )
        if self.migrate_auth_from_v1_enabled and not self.acl_file:
            yield "migrateAuthFromV1Enabled needs aclFile, the path of the plain_acl.yml to import"
        for key, text, names in (
            ("initAuthenticationUser", self.init_authentication_user, ("username", "password")),
            ("innerClientAuthenticationCredentials", self.inner_client_authentication_credentials, _KEYS),
        ):
            problem = _pair_problem(text, names)
            if problem:
                yield f"{key}: {problem}"
        for word in words_of(self.proxy_protocol_trusted_addresses):
            try:
                network_of(word)
            except AccessRefusedError as error:
                yield f"proxyProtocolTrustedAddresses: {error.message}"
        yield from self._whitelist_problems()

    def _whitelist_problems(self) -> Iterable[str]:
        for key, text in (
            ("authenticationWhitelist", self.authentication_whitelist),
            ("authorizationWhitelist", self.authorization_whitelist),
        ):
            for word in words_of(text):
                if int_or(word, -1) not in HARMLESS_CODES:
                    yield (
                        f"{key}: {word[:40]} may not be left unchecked. Only these codes may: "
                        f"{', '.join(map(str, sorted(HARMLESS_CODES)))}"
                    )

    def believes_proxy(self) -> Callable[[str], bool]:
        """Return what tells of an address whether its PROXY header is believed."""
        words = words_of(self.proxy_protocol_trusted_addresses)
        if not words:
            return lambda host: not self.authentication_enabled
        networks = tuple(network_of(word) for word in words)
        return lambda host: is_within(address_of(host), networks)

    def open_codes(self) -> frozenset[int]:
        """Return the codes that need no user."""
        return codes_of(self.authentication_whitelist)

    def free_codes(self) -> frozenset[int]:
        """Return the codes that every user may send."""
        return codes_of(self.authorization_whitelist)

    @property
    def is_stateful(self) -> bool:
        """Tell whether a user is trusted for a time on a TLS connection."""
        return self.authentication_strategy.strip() in _STATEFUL

    def initial_user(self) -> User | None:
        """Return the Super user that is made at the first start, or None."""
        pair = _pair(self.init_authentication_user, ("username", "password"))
        return None if pair is None else User(pair[0], pair[1], UserType.SUPER)

    def inner_credentials(self) -> InnerCredentials | None:
        """Return what the server signs its own requests with, or None."""
        pair = _pair(self.inner_client_authentication_credentials, _KEYS)
        return None if pair is None else InnerCredentials(*pair)


_KEYS: Final = ("accessKey", "secretKey")
# Reads that show no message, no user and no setting.
HARMLESS_CODES: Final = frozenset(
    (
        28, 29, 30, 31, 32, 38, 46, 60, 61, 101, 105, 106, 202, 206, 219, 224, 300, 304, 305, 311, 312, 313, 351, 400,
        907, 1004, 1005, 1006, 1007,
    )
)  # fmt: skip


def words_of(text: str) -> list[str]:
    """Return the words of a list that is separated by commas."""
    return [word.strip() for word in text.split(",") if word.strip()]


def codes_of(text: str) -> frozenset[int]:
    """Return the request codes of a checked white list."""
    return frozenset(int_or(word, -1) for word in words_of(text))


def _object(text: str) -> dict[str, Any] | None:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _pair(text: str, names: tuple[str, str]) -> tuple[str, str] | None:
    found = _object(text) if text.strip() else None
    return None if found is None else (str(found.get(names[0], "")), str(found.get(names[1], "")))


def _pair_problem(text: str, names: tuple[str, str]) -> str | None:
    """Return what is wrong with a pair, without repeating any of it."""
    if not text.strip():
        return None
    pair = _pair(text, names)
    if pair is None:
        return f'it is not of the form {{"{names[0]}":"..","{names[1]}":".."}}'
    return user_problem(*pair)
