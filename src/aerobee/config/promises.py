"""Keys of Apache's that promise what is not built: only "off" is true, anything else stops the start.

A warning would not do: whoever sets such a key believes that strangers are kept out, or that a message is held by
more than one broker.
"""

from __future__ import annotations

from typing import Final

_ACCESS: Final = "access control is not built yet: every client would be let in"
_REPLICAS: Final = "there is no replication yet: messages would be held by one broker only"

# Key -> what it promises, and why that would not be so. Apache: AuthConfig (5.x), BrokerConfig, MessageStoreConfig.
PROMISES: Final[dict[str, tuple[str, str]]] = {
    "authenticationEnabled": ("that clients prove who they are", _ACCESS),
    "authorizationEnabled": ("that clients may do only what they were allowed to", _ACCESS),
    "aclEnable": ("that clients prove who they are and may do only what they were allowed to", _ACCESS),
    "enableControllerMode": ("that another broker takes over", _REPLICAS),
    "enableDLegerCommitLog": ("that another broker takes over", _REPLICAS),
    "allAckInSyncStateSet": ("that every replica in sync holds an acknowledged message", _REPLICAS),
}


def broken_promise(key: str, text: str) -> str | None:
    """Return why a value of one of these keys cannot be taken, in words; None where it is off."""
    if text.strip().lower() in ("", "false"):
        return None
    promise, reason = PROMISES[key]
    return f"{key}={text.strip()[:40]} promises {promise}, and {reason}. Take the key out, or set {key}=false"
