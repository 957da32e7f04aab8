"""Keys of Apache's whose feature Aerobee does not have. Any value but "off" stops the start.

A warning would not be enough. An operator who sets such a key relies on the feature: that unknown clients are kept
out, that several brokers hold a message, or that messages are found where they were stored. The reasons are in
docs/decisions/0003-what-of-rocketmq-we-refuse.md.
"""

from __future__ import annotations

from typing import Final

_OLD_ACL: Final = (
    "this key of RocketMQ 4 does nothing any more, so every client would be let in: set authenticationEnabled=true and "
    "authorizationEnabled=true instead"
)
_REPLICAS: Final = "Aerobee has no such controller: groups that take over by themselves are set up by coordinatorAddr"
_LMQ: Final = "there are no light message queues (LMQ), so a message would reach its own topic only"
_ROCKSDB: Final = "there is no RocksDB, so everything is kept in RocketMQ's plain files"

# Key -> what it promises, and why Aerobee cannot keep that promise.
# RocketMQ: AuthConfig (5.x), BrokerConfig, MessageStoreConfig.
REFUSED: Final[dict[str, tuple[str, str]]] = {
    "aclEnable": ("that clients prove their identity and do only what they are allowed to", _OLD_ACL),
    "tls.ciphers": ("that only these ciphers are used", "those of Python's ssl module are used"),
    "tls.protocols": ("that only these versions of TLS are used", "TLS 1.2 and 1.3 are used, and no others"),
    "tls.config.file": (
        "that TLS is set up by another file",
        "that file would not be read; its keys belong into this one",
    ),
    "enableControllerMode": ("that another broker takes over", _REPLICAS),
    "enableControllerInNamesrv": ("that another broker takes over", _REPLICAS),
    "enableDLegerCommitLog": ("that another broker takes over", _REPLICAS),
    "enableSlaveActingMaster": ("that a slave stands in for its master", _REPLICAS),
    "allAckInSyncStateSet": ("that every replica in sync holds an acknowledged message", _REPLICAS),
    "enableLmq": ("that one message is delivered to several light queues", _LMQ),
    "enableMultiDispatch": ("that one message is delivered to several light queues", _LMQ),
    "timerRocksDBEnable": ("that timers are kept in RocksDB", _ROCKSDB),
    "transRocksDBEnable": ("that transactions are kept in RocksDB", _ROCKSDB),
    "indexRocksDBEnable": ("that the message index is kept in RocksDB", _ROCKSDB),
    "rocksdbCQDoubleWriteEnable": ("that consume queues are written to RocksDB too", _ROCKSDB),
    "messageStorePlugIn": (
        "that messages pass through a plug-in, such as the tiered store",
        "there are no store plug-ins, so messages would be in the local log only",
    ),
    "readOnlyCommitLogStorePaths": (
        "that old segments are read from other directories",
        "the log has one directory, so the messages there would be missing",
    ),
}


def refusal(key: str, text: str) -> str | None:
    """Return why a value of one of these keys is refused, or None if it turns the feature off."""
    if text.strip().lower() in ("", "false"):
        return None
    promise, reason = REFUSED[key]
    return f"{key}={text.strip()[:40]} promises {promise}, but {reason}. Remove the key"
