"""The properties of an ordinary send, looked at once: tags, keys and unique key found without building a dict.

An ordinary send carries tags, keys, a unique key, WAIT and properties of its user. Anything else that the broker
must act upon (a delay, a transaction, a copied CLUSTER ...) makes `scan_send_properties` say so, and the slow path
takes over.
"""

from typing import Final

# Names the broker acts upon, or must not store as they came. RocketMQ: SendMessageProcessor, HookUtils, CommitLog.
SLOW_NAMES: Final = frozenset(
    (
        b"DELAY",
        b"TIMER_DELAY_SEC",
        b"TIMER_DELAY_MS",
        b"TIMER_DELIVER_MS",
        b"TIMER_DEL_UNIQKEY",
        b"TIMER_OUT_MS",
        b"TRAN_MSG",
        b"POP_CK",
        b"CLUSTER",
        b"INNER_MULTI_DISPATCH",
        b"INNER_MULTI_QUEUE_OFFSET",
        b"INNER_NUM",
        b"INNER_BASE",
        b"__LITE_TOPIC",
        b"_SYS_MSG_PRIORITY_",
        b"__CRC32#",
        b"REPLY_TO_CLIENT",
        b"MSG_TYPE",
        b"__AEROBEE_PID",
    )
)

PLAIN: Final = 0
NO_WAIT: Final = 1
SLOW: Final = 2


def scan_send_properties(properties: bytes) -> tuple[int, bytes, bytes, bytes]:
    """(kind, tags, keys, unique key); kind is PLAIN, NO_WAIT (WAIT=false) or SLOW."""
    kind = PLAIN
    tags = b""
    keys = b""
    unique = b""
    pos = 0
    size = len(properties)
    while pos < size:
        end = properties.find(b"\x02", pos)
        if end < 0:
            end = size
        split = properties.find(b"\x01", pos, end)
        if split < 0:
            return SLOW, b"", b"", b""
        name = properties[pos:split]
        if name == b"UNIQ_KEY":
            if unique:
                return SLOW, b"", b"", b""
            unique = properties[split + 1 : end]
        elif name == b"TAGS":
            if tags:
                return SLOW, b"", b"", b""
            tags = properties[split + 1 : end]
        elif name == b"KEYS":
            if keys:
                return SLOW, b"", b"", b""
            keys = properties[split + 1 : end]
        elif name == b"WAIT":
            if properties[split + 1 : end] != b"true":
                kind = NO_WAIT
        elif name in SLOW_NAMES:
            return SLOW, b"", b"", b""
        pos = end + 1
    return kind, tags, keys, unique
