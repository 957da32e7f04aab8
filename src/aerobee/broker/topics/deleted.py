"""Messages that were put away (delayed, timed, half) for a topic and went with it when it was deleted."""

from __future__ import annotations

from typing import Final

from aerobee.hot.log.properties import find_property
from aerobee.hot.log.record import Record
from aerobee.model.sysproperties import REAL_TOPIC
from aerobee.store.deletions import Deletions

_REAL_TOPIC: Final = REAL_TOPIC.encode()


def deleted_topic_of(record: Record, deletions: Deletions) -> str | None:
    """Return the topic that a record was put away for, if that was deleted after it; else None.

    Apache stores it all the same: under a topic that does not exist, or in one made since that only has the name.
    """
    if record.physical_offset >= deletions.highest:
        return None
    topic = find_property(record.properties, _REAL_TOPIC)
    if topic is None or not deletions.covers(topic, record.physical_offset):
        return None
    return topic.decode("utf-8", "replace")
