"""The door: who is it, and may they? This is what every front end asks: brokers, name servers, the gRPC service.

    user = access.authenticate(fields, body, version, source)    # raises AccessRefusedError, always in the same words
    access.authorize(user, needs, source, code)                   # raises AccessRefusedError: user, resource, action

Signatures are compared in constant time, and an unknown user costs as much as a wrong key. What is remembered of a
user is void as soon as users or rights change (`epoch`).
"""

from __future__ import annotations

import base64
import binascii
import hmac
from collections.abc import Callable, Iterable, Mapping
from typing import Final, Protocol

from aerobee.access.config import AccessConfig
from aerobee.access.directory import UserDirectory
from aerobee.access.policies import Action, ResourceKind
from aerobee.access.refusal import NOT_AUTHENTICATED, AccessRefusedError
from aerobee.access.sources import Address, address_of
from aerobee.access.users import User, UserStatus
from aerobee.access.verdicts import AccessVerdict, Claim, Need, decide, may_somewhere
from aerobee.protocol.codes import FOR_USER_FIELD
from aerobee.protocol.signing import ACCESS_KEY, SIGNATURE, digest_of

# A key of nobody: checking it takes as long as checking a user's.
_NOBODY: Final = User("", "no user has this secret", status=UserStatus.DISABLE)
_SIGNATURE_LENGTH_MAX: Final = 64
_VERDICTS_MAX: Final = 50_000
_NAME_KEPT_MAX: Final = 255


class RefusalWitness(Protocol):
    """Whoever is told of refusals, for the audit log."""

    def refused_login(self, name: str, source: str, code: object, reason: str) -> None: ...
    def refused(self, user: User, source: str, code: object, verdict: AccessVerdict) -> None: ...


class Access:
    """Users and rights in force. `cluster` is what policies call this cluster."""

    def __init__(self, config: AccessConfig, cluster: str, witness: RefusalWitness) -> None:
        self.config = config
        self.cluster = cluster
        self.epoch = 0
        self._tables = UserDirectory()
        self._witness = witness
        self._checks_rights = config.authorization_enabled
        self._addresses: dict[str, Address | None] = {}
        self._verdicts: dict[tuple[str, Need, str], AccessVerdict] = {}
        # Called after users or rights changed.
        self.on_changed: list[Callable[[], None]] = []

    @property
    def tables(self) -> UserDirectory:
        """Return the users and rights in force."""
        return self._tables

    def take(self, tables: UserDirectory) -> None:
        """Go on with these users and rights from the next request on."""
        if tables is self._tables:
            return
        self._tables = tables
        self.epoch += 1
        self._verdicts.clear()
        for told in self.on_changed:
            told()

    # -- who

    def authenticate(
        self, fields: Mapping[str, str], body: bytes, version: int, source: str, code: object = ""
    ) -> User:
        """Return the user who signed a request. `source` is a host without port. Raise AccessRefusedError."""
        name = fields.get(ACCESS_KEY, "")
        user = self._tables.users.get(name, _NOBODY)
        wanted = digest_of(user.password.encode(), fields, body, version)
        is_right = hmac.compare_digest(wanted, _signature_bytes(fields.get(SIGNATURE, "")))
        return self._known(user, is_right, name, source, code)

    def authenticate_text(
        self, name: str, text: bytes, signature: bytes, source: str, code: object = ""
    ) -> User:  # fmt: skip
        """Return the user who signed a text, as gRPC clients sign a date. `signature` is its 20 bytes."""
        user = self._tables.users.get(name, _NOBODY)
        wanted = hmac.digest(user.password.encode(), text, "sha1")
        return self._known(user, hmac.compare_digest(wanted, signature), name, source, code)

    def user_of(self, fields: Mapping[str, str]) -> User:
        """Return the user of a request that the guard has let through."""
        user = self._tables.users[fields[ACCESS_KEY]]
        return self._tables.users[fields[FOR_USER_FIELD]] if FOR_USER_FIELD in fields and user.is_super else user

    def known(self, name: str, source: str, code: object = "") -> User:
        """Return an enabled user whom somebody else has authenticated. Raise AccessRefusedError."""
        return self._known(self._tables.users.get(name, _NOBODY), True, name, source, code)

    def _known(self, user: User, is_right: bool, name: str, source: str, code: object) -> User:
        if is_right and user is not _NOBODY and user.is_enabled:
            return user
        if user is _NOBODY:
            reason = "no access key" if not name else "no such user"
        else:
            reason = "the user is disabled" if is_right else "wrong signature"
        self._witness.refused_login(name[:120], source, code, reason)
        raise AccessRefusedError(NOT_AUTHENTICATED)

    # -- may they

    def verdict(self, user: User, needs: Iterable[Need], source: str) -> AccessVerdict:
        """Return whether a user may do what needs these rights, and which entry decided."""
        if not self._checks_rights:
            return AccessVerdict(True, "authorizationEnabled is off")
        last = AccessVerdict(True, "every user may")
        for need in needs:
            last = self._one(user, need, source)
            if not last.allowed:
                break
        return last

    def _one(self, user: User, need: Need, source: str) -> AccessVerdict:
        key = (user.name, need, source)
        found = self._verdicts.get(key)
        if found is None:
            found = decide(user, self._tables.acls.get(user.name), (need,), self._address(source))
            if len(self._verdicts) >= _VERDICTS_MAX:
                self._verdicts.clear()
            # Names come from requests: long ones would fill memory.
            if all(len(claim.name) <= _NAME_KEPT_MAX for claim in need):
                self._verdicts[key] = found
        return found

    def authorize(self, user: User, needs: Iterable[Need], source: str, code: object = "") -> AccessVerdict:
        """Return the verdict if it is good. Raise AccessRefusedError, which names user, resource and action."""
        found = self.verdict(user, needs, source)
        if not found.allowed:
            self._witness.refused(user, source, code, found)
            # Which entry decided is told by `aerobee acl check` and the audit log, not to whoever was refused.
            told = "the decision is deny" if found.rule.startswith("the decision is deny") else found.rule
            wanted = " or ".join(str(claim) for claim in found.need) or "the retry topic of another group"
            raise AccessRefusedError(f"{user.subject} has no permission to access {wanted} from {source}, {told}.")
        return found

    def require_super(self, user: User, source: str, code: object = "") -> None:
        """Raise AccessRefusedError unless the user is a Super user."""
        if not user.is_super:
            verdict = AccessVerdict(False, "only a Super user may")
            self._witness.refused(user, source, code, verdict)
            raise AccessRefusedError(
                f"{user.subject} has no permission to access Cluster:{self.cluster} (Super) from {source}, "
                f"{verdict.rule}."
            )

    def require_any(self, user: User, kind: ResourceKind, action: Action, source: str, code: object = "") -> None:
        """Raise AccessRefusedError unless the user may do this on some resource of this kind."""
        if not self._checks_rights or user.is_super:
            return
        if not may_somewhere(self._tables.acls.get(user.name), kind, action, self._address(source)):
            need = (Claim(kind, "*", (action,)),)
            verdict = AccessVerdict(False, "no matched policies", need)
            self._witness.refused(user, source, code, verdict)
            raise AccessRefusedError(
                f"{user.subject} has no permission to access {need[0]} from {source}, {verdict.rule}."
            )

    def _address(self, source: str) -> Address | None:
        found = self._addresses.get(source)
        if found is None and source not in self._addresses:
            if len(self._addresses) >= _VERDICTS_MAX:
                self._addresses.clear()
            found = self._addresses[source] = address_of(source)
        return found


def _signature_bytes(text: str) -> bytes:
    """Return the bytes of a signature, or none: they are equal to no digest."""
    if len(text) > _SIGNATURE_LENGTH_MAX:
        return b""
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return b""
