"""The signature that a broker with access control asks for: HMAC-SHA1 over every ext field and the body.

RocketMQ: AclClientRPCHook, AclUtils.combineRequestContent, AclSigner.
"""

from __future__ import annotations

import base64
import hmac

from aerobee.client.core.config import Credentials
from aerobee.net.client import Sign
from aerobee.protocol.command import Command

ACCESS_KEY = "AccessKey"
SECURITY_TOKEN = "SecurityToken"
SIGNATURE = "Signature"


def signer(credentials: Credentials) -> Sign:
    """Return a function that signs a command in place, just before it is encoded."""
    secret = credentials.secret_key.encode()

    def sign(command: Command) -> None:
        ext = command.ext
        ext.pop(SIGNATURE, None)
        ext[ACCESS_KEY] = credentials.access_key
        if credentials.security_token is not None:
            ext[SECURITY_TOKEN] = credentials.security_token
        # Java sorts by UTF-16 code unit, which for the names of ext fields (ASCII) is the same.
        content = "".join(ext[name] for name in sorted(ext)).encode("utf-8", "replace") + command.body
        ext[SIGNATURE] = base64.b64encode(hmac.digest(secret, content, "sha1")).decode()

    return sign
