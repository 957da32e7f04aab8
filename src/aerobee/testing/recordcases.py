"""One record of each kind, and logs made of bytes: what the suites of torn and rotten records share."""

from __future__ import annotations

from aerobee.hot.log.layout import TRANSACTION_COMMIT, TRANSACTION_PREPARED
from aerobee.hot.log.properties import encode_properties
from aerobee.hot.log.record import Draft
from aerobee.testing.history import SCHEDULE_TOPIC
from aerobee.testing.storeshapes import HOST_V4, HOST_V6, LONG_TOPIC

LARGE_SIZE = 66_000


def draft_of(
    body: bytes,
    topic: bytes = b"orders",
    properties: dict[str, str] | None = None,
    *,
    sys_flag: int = 0,
    host: bytes = HOST_V4,
) -> Draft:
    encoded = encode_properties(properties or {})
    names = properties or {}
    return Draft(
        topic,
        0,
        0,
        sys_flag,
        1_700_000_000_000,
        host,
        host,
        0,
        0,
        body,
        encoded,
        0,
        names.get("KEYS", ""),
        names.get("UNIQ_KEY", ""),
    )


def record_cases() -> dict[str, list[Draft]]:
    """Return drafts by kind of record; those of a batch are written by one call."""
    names = {"KEYS": "key1 key2", "UNIQ_KEY": "7F000001000018B4AAC2", "CLUSTER": "DefaultCluster"}
    return {
        "plain": [draft_of(b"a plain body of some bytes", properties=names)],
        "empty body": [draft_of(b"", properties=names)],
        "no properties": [draft_of(b"nothing but a body")],
        "no properties, no body": [draft_of(b"", b"t")],
        "batch": [draft_of(b"part %d" % number, properties=names) for number in range(3)],
        "half": [draft_of(b"half", properties={**names, "TRAN_MSG": "true"}, sys_flag=TRANSACTION_PREPARED)],
        "committed": [draft_of(b"whole", properties=names, sys_flag=TRANSACTION_COMMIT)],
        "delayed": [draft_of(b"later", SCHEDULE_TOPIC, {**names, "DELAY": "3", "REAL_TOPIC": "orders"})],
        "ipv6": [draft_of(b"six", properties=names, host=HOST_V6)],
        "v2": [draft_of(b"long topic", LONG_TOPIC, names)],
        "v2 ipv6": [draft_of(b"both", LONG_TOPIC, names, host=HOST_V6)],
        "long properties": [draft_of(b"body", properties={**names, "p": "v" * 900})],
        "large": [draft_of(bytes(range(1, 251)) * (LARGE_SIZE // 250), properties=names)],
    }


class BytesLog:
    """A LogSource of one segment in memory, at offset 0."""

    def __init__(self, data: bytes) -> None:
        self.data = data

    def read(self, offset: int, size: int) -> bytes:
        return self.data[offset : offset + size]

    def next_data(self, offset: int) -> int:
        return len(self.data) - len(self.data[offset:].lstrip(b"\0"))

    def segment_end(self, offset: int) -> int:
        return len(self.data) if offset < len(self.data) else -1

    def next_segment(self, offset: int) -> int:
        return 0 if offset <= 0 else -1
