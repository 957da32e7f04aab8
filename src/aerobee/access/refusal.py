"""The error of everything that access control refuses. Its text never holds a secret or a signature."""

from __future__ import annotations

from typing import Final

from aerobee.errors import AerobeeError
from aerobee.protocol.codes import ResponseCode

# The same words whatever was wrong: who asks must not learn which users exist.
NOT_AUTHENTICATED: Final = (
    "check signature failed: the access key or the secret key is wrong or missing, or the user is disabled"
)


class AccessRefusedError(AerobeeError):
    """A request or a change is refused. `code` is the answer's."""

    def __init__(self, message: str, code: int = ResponseCode.NO_PERMISSION) -> None:
        super().__init__(message, code=code)


def invalid(message: str) -> AccessRefusedError:
    """Return the refusal of a value that is not allowed."""
    return AccessRefusedError(message, ResponseCode.INVALID_PARAMETER)
