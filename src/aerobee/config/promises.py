"""Keys of Apache's that promise protection which is not built: only "off" is true, anything else stops the start.

A warning would not do: whoever sets such a key believes that strangers are kept out.
"""

from __future__ import annotations

from typing import Final

# Key -> what it promises. Apache: AuthConfig (5.x), BrokerConfig.aclEnable (4.x).
PROMISES: Final[dict[str, str]] = {
    "authenticationEnabled": "that clients prove who they are",
    "authorizationEnabled": "that clients may do only what they were allowed to",
    "aclEnable": "that clients prove who they are and may do only what they were allowed to",
}


def broken_promise(key: str, text: str) -> str | None:
    """Return why a value of one of these keys cannot be taken, in words; None where it is off."""
    if text.strip().lower() in ("", "false"):
        return None
    return (
        f"{key}={text.strip()[:40]} promises {PROMISES[key]}, and access control is not built yet: every client would "
        f"be let in. Take the key out (or set {key}=false), and keep strangers off the server's network"
    )
