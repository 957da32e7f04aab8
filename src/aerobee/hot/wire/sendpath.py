"""The properties of an ordinary send, looked at once: tags, keys and unique key found without building a dict.

An ordinary send carries tags, keys, a unique key, WAIT and properties of its user. Anything else that the broker
must act upon (a delay, a transaction, a copied CLUSTER ...) makes `scan_send_properties` say so, and the slow path
takes over.
"""

from types import FunctionType
from typing import Final

from librt.strings import read_i32_be
from mypy_extensions import i64

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
# Which letters from @ to _ they begin with, as bits. None is as short as the names looked for.
_SLOW_FIRSTS: Final = sum({1 << (name[0] - 0x40) for name in SLOW_NAMES})
_TAGS: Final = 0x54414753
_KEYS: Final = 0x4B455953
_WAIT: Final = 0x57414954
_TRUE: Final = 0x74727565
# Two words: mypyc makes an object of a number beyond 62 bits.
_UNIQ: Final = 0x554E4951
_KEY: Final = 0x5F4B4559

PLAIN: Final = 0
NO_WAIT: Final = 1
SLOW: Final = 2


def scan_send_properties(properties: bytes) -> tuple[int, bytes, bytes, bytes]:
    """(kind, tags, keys, unique key); kind is PLAIN, NO_WAIT (WAIT=false) or SLOW."""
    return by_pairs(properties) if _INTERPRETED else by_bytes(properties)


def by_pairs(properties: bytes) -> tuple[int, bytes, bytes, bytes]:
    """The scan for when this file runs interpreted: few calls, each a loop in C."""
    kind = PLAIN
    tags = b""
    keys = b""
    unique = b""
    if not properties:
        return PLAIN, b"", b"", b""
    pairs = properties.split(b"\x02")
    if not pairs[-1]:
        pairs.pop()
    for pair in pairs:
        name, mark, value = pair.partition(b"\x01")
        if not mark or name in SLOW_NAMES:
            return SLOW, b"", b"", b""
        if name == b"UNIQ_KEY":
            if unique:
                return SLOW, b"", b"", b""
            unique = value
        elif name == b"TAGS":
            if tags:
                return SLOW, b"", b"", b""
            tags = value
        elif name == b"KEYS":
            if keys:
                return SLOW, b"", b"", b""
            keys = value
        elif name == b"WAIT" and value != b"true":
            kind = NO_WAIT
    return kind, tags, keys, unique


def by_bytes(properties: bytes) -> tuple[int, bytes, bytes, bytes]:
    """The same compiled: one pass, and nothing is made but what is returned."""
    kind = PLAIN
    tags = b""
    keys = b""
    unique = b""
    firsts: i64 = _SLOW_FIRSTS
    pos: i64 = 0
    size: i64 = len(properties)
    while pos < size:
        split: i64 = pos
        while split < size and properties[split] != 1:
            if properties[split] == 2:
                return SLOW, b"", b"", b""
            split += 1
        if split == size:
            return SLOW, b"", b"", b""
        start: i64 = split + 1
        end: i64 = start
        while end < size and properties[end] != 2:
            end += 1
        word: i64
        length: i64 = split - pos
        if length == 4:
            word = i64(read_i32_be(properties, pos))
            if word == _TAGS:
                if tags:
                    return SLOW, b"", b"", b""
                tags = properties[int(start) : int(end)]
            elif word == _KEYS:
                if keys:
                    return SLOW, b"", b"", b""
                keys = properties[int(start) : int(end)]
            elif word == _WAIT and not (end - start == 4 and read_i32_be(properties, start) == _TRUE):
                kind = NO_WAIT
        elif length == 8 and read_i32_be(properties, pos) == _UNIQ and read_i32_be(properties, pos + 4) == _KEY:
            if unique:
                return SLOW, b"", b"", b""
            unique = properties[int(start) : int(end)]
        elif length > 4:
            first: i64 = properties[pos]
            if (
                0x40 <= first < 0x60
                and (firsts >> (first - 0x40)) & 1
                and properties[int(pos) : int(split)] in SLOW_NAMES
            ):
                return SLOW, b"", b"", b""
        pos = end + 1
    return kind, tags, keys, unique


_INTERPRETED: Final = isinstance(scan_send_properties, FunctionType)
