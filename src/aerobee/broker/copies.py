"""A stored message once more on its way into the log, in another place: when its time is up, for a retry, committed."""

from __future__ import annotations

from collections.abc import Mapping

from aerobee.hot.javahash import tags_code
from aerobee.hot.record import Draft, Record
from aerobee.model.sysproperties import KEYS, TAGS, UNIQ_KEY


def copy_of(
    record: Record, topic: str, queue_id: int, properties: Mapping[str, str], block: bytes, mark: int = 0
) -> Draft:
    """The same message in that queue. `block` is `properties` as they are stored, without a checksum of the record that
    was; `mark` goes into the field of the prepared transaction offset."""
    return Draft(
        topic.encode(),
        queue_id,
        record.flag,
        record.sys_flag,
        record.born_timestamp,
        record.born_host,
        record.store_host,
        record.reconsume_times,
        mark,
        record.body,
        block,
        tags_code(properties.get(TAGS, "")),
        properties.get(KEYS, ""),
        properties.get(UNIQ_KEY, ""),
    )
