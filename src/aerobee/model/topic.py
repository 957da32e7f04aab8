"""A topic's settings, and the bits of its permission and of its system flag."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from aerobee.model.dialect import DialectError, dumps, loads
from aerobee.model.fields import bool_of, int_of, str_of, texts_of
from aerobee.model.numbers import INT32_MAX, INT32_MIN, parse_int

# RocketMQ: PermName.
PERM_READ = 4
PERM_WRITE = 2
PERM_INHERIT = 1

# RocketMQ: TopicSysFlag.
TOPIC_UNIT = 1
TOPIC_UNIT_SUB = 2

# Apache accepts any number. A route gives queues by their count, so this bounds the loops of clients.
QUEUE_NUMS_MAX = 65_536

SINGLE_TAG = "SINGLE_TAG"
MULTI_TAG = "MULTI_TAG"

# The attribute that tells a topic from one of the same name that was deleted (docs/formats/private.md).
GENERATION = "aerobee.generation"


@dataclass(frozen=True, slots=True)
class TopicConfig:
    """Settings of one topic on one broker."""

    topic_name: str
    read_queue_nums: int = 16
    write_queue_nums: int = 16
    perm: int = PERM_READ | PERM_WRITE
    topic_filter_type: str = SINGLE_TAG
    topic_sys_flag: int = 0
    order: bool = False
    attributes: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_readable(self) -> bool:
        """Return whether consumers may pull."""
        return self.perm & PERM_READ != 0

    @property
    def is_writable(self) -> bool:
        """Return whether producers may send."""
        return self.perm & PERM_WRITE != 0

    @property
    def generation(self) -> str:
        """Return what tells the topic from one of the same name that was deleted, or '' if it has no such mark."""
        return self.attributes.get(GENERATION, "")

    def to_json(self) -> dict[str, Any]:
        """Return Apache's JSON object with its order of keys."""
        return {
            "attributes": dict(self.attributes),
            "order": self.order,
            "perm": self.perm,
            "readQueueNums": self.read_queue_nums,
            "topicFilterType": self.topic_filter_type,
            "topicName": self.topic_name,
            "topicSysFlag": self.topic_sys_flag,
            "writeQueueNums": self.write_queue_nums,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any], name: str = "") -> TopicConfig:
        """Read Apache's JSON object. `name` is used when the object has none."""
        return cls(
            str_of(data, "topicName") or name,
            int_of(data, "readQueueNums", 16),
            int_of(data, "writeQueueNums", 16),
            int_of(data, "perm", PERM_READ | PERM_WRITE),
            str_of(data, "topicFilterType") or SINGLE_TAG,
            int_of(data, "topicSysFlag"),
            bool_of(data, "order"),
            texts_of(data, "attributes"),
        )

    def to_text(self) -> str:
        """Return the one-line form that RegisterBrokerBody uses. RocketMQ: TopicConfig.encode."""
        attributes = dumps(dict(self.attributes)).decode()
        return (
            f"{self.topic_name} {self.read_queue_nums} {self.write_queue_nums} {self.perm} "
            f"{self.topic_filter_type} {attributes}"
        )

    @classmethod
    def from_text(cls, text: str) -> TopicConfig | None:
        """Read the one-line form; return None when it has fewer than five words. RocketMQ: TopicConfig.decode."""
        words = text.split(" ")
        if len(words) < 5:
            return None
        attributes: dict[str, str] = {}
        if len(words) >= 6:
            # Apache ignores attributes that it cannot read: the separator may stand inside them.
            try:
                found = loads(words[5].encode())
            except DialectError:
                found = None
            if isinstance(found, dict):
                attributes = {str(k): str(v) for k, v in found.items()}
        reads, writes, perm = (parse_int(word, INT32_MIN, INT32_MAX) for word in words[1:4])
        return cls(words[0], reads, writes, perm, words[4], attributes=attributes)


def perm_text(perm: int) -> str:
    """Return a permission as mqadmin prints it, for example `RW-`. RocketMQ: PermName.perm2String."""
    return (
        ("R" if perm & PERM_READ else "-") + ("W" if perm & PERM_WRITE else "-") + ("X" if perm & PERM_INHERIT else "-")
    )
