"""Signatures of requests: HMAC-SHA1 over the values of all ext fields, in the order of their names, and the body.

A binary header and a JSON header with the same fields have the same signature.
RocketMQ: AclUtils.combineRequestContent, AclSigner, DefaultAuthenticationContextBuilder.
"""

from __future__ import annotations

import base64
import hmac
from collections.abc import Callable, Mapping
from typing import Final

from aerobee.protocol.codes import FOR_SOURCE_FIELD, FOR_USER_FIELD
from aerobee.protocol.command import Command

ACCESS_KEY: Final = "AccessKey"
SECURITY_TOKEN: Final = "SecurityToken"
SIGNATURE: Final = "Signature"
# Clients up to 4.9.3 add this field after they have signed. RocketMQ: MixAll.UNIQUE_MSG_QUERY_FLAG.
UNIQUE_KEY_QUERY: Final = "_UNIQUE_KEY_QUERY"
# Who asked. A server passes none of this on: a signature covers no request code and no time, so whoever gets one can
# send the same fields as another request.
CREDENTIAL_FIELDS: Final = frozenset((ACCESS_KEY, SECURITY_TOKEN, SIGNATURE, FOR_USER_FIELD, FOR_SOURCE_FIELD))
# The ordinal of MQVersion.V4_9_3.
V4_9_3: Final = 399


def _java_order(name: str) -> bytes:
    """Return what orders names as Java does: by UTF-16 code units."""
    return name.encode("utf-16-be", "surrogatepass")


def signed_text(ext: Mapping[str, str], version: int) -> bytes:
    """Return the part of a signature's content that comes before the body."""
    names = [name for name in ext if name != SIGNATURE]
    if version <= V4_9_3 and UNIQUE_KEY_QUERY in ext:
        names.remove(UNIQUE_KEY_QUERY)
    try:
        names.sort(key=str.encode if all(map(str.isascii, names)) else _java_order)
        return "".join([ext[name] for name in names]).encode("utf-8")
    except UnicodeEncodeError:
        return "".join([ext[name] for name in names]).encode("utf-8", "replace")


def digest_of(secret: bytes, ext: Mapping[str, str], body: bytes, version: int) -> bytes:
    """Return the 20 bytes of the signature of a request."""
    return hmac.digest(secret, signed_text(ext, version) + body, "sha1")


def signer(access_key: str, secret_key: str, security_token: str | None = None) -> Callable[[Command], None]:
    """Return a function that signs a command in place, just before it is encoded."""
    secret = secret_key.encode()

    def sign(command: Command) -> None:
        ext = command.ext
        ext.pop(SIGNATURE, None)
        ext[ACCESS_KEY] = access_key
        if security_token is not None:
            ext[SECURITY_TOKEN] = security_token
        found = digest_of(secret, ext, command.body, command.version)
        ext[SIGNATURE] = base64.b64encode(found).decode()

    return sign
