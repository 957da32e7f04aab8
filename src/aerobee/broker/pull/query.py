"""QUERY_MESSAGE and VIEW_MESSAGE_BY_ID: messages by key, by unique id, by tag, by place in the log.

Every read goes through the reader thread; the answer follows when it is done. RocketMQ: QueryMessageProcessor,
DefaultMessageStore.queryMessage.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from aerobee.broker.answers import answer_later, refuse_later
from aerobee.errors import StoreError
from aerobee.hot.log.properties import find_property
from aerobee.hot.log.record import VERIFY_RECORD
from aerobee.hot.log.scan import scan_records
from aerobee.model.sysproperties import TAGS
from aerobee.net.channel import Channel
from aerobee.net.server import Handler
from aerobee.protocol.codes import RequestCode, ResponseCode
from aerobee.protocol.command import Command, response
from aerobee.protocol.headers.base import decode_header
from aerobee.protocol.headers.message import (
    QueryMessageRequestHeader,
    QueryMessageResponseHeader,
    ViewMessageRequestHeader,
)
from aerobee.store.index import INDEX_TAG_TYPE, IndexResult
from aerobee.store.lookup import record_at
from aerobee.store.messagestore import MessageStore
from aerobee.store.sent import is_hidden, sent_at
from aerobee.store.steps import Steps

# RocketMQ: MixAll.UNIQUE_MSG_QUERY_FLAG.
UNIQUE_KEY_QUERY: Final = "_UNIQUE_KEY_QUERY"
# RocketMQ: MessageDecoder, Short.MAX_VALUE: what the properties of a message hold in all.
_KEY_LENGTH_MAX: Final = 32_767
_NOT_FOUND: Final = "can not find message, maybe time range not correct"
# One answer is one frame, which holds 16 MiB at most.
_ANSWER_SIZE_MAX: Final = 12 << 20


class QueryHandlers:
    """The requests that look messages up."""

    def __init__(self, store: MessageStore) -> None:
        self._store = store

    def handlers(self) -> dict[int, Handler]:
        return {RequestCode.QUERY_MESSAGE: self.by_key, RequestCode.VIEW_MESSAGE_BY_ID: self.by_offset}

    def by_offset(self, channel: Channel, command: Command) -> None:
        offset = decode_header(ViewMessageRequestHeader, command).offset

        def done(record: bytes | StoreError | None) -> None:
            if isinstance(record, bytes) and not is_hidden(self._store, record):
                answer_later(channel, response(command, body=record), command)
            else:
                remark = f"can not find message by the offset, {offset}"
                refuse_later(channel, command, ResponseCode.SYSTEM_ERROR, remark)

        self._store.run(sent_at(self._store, offset), done)

    def by_key(self, channel: Channel, command: Command) -> Command | None:
        header = decode_header(QueryMessageRequestHeader, command)
        count_max, kind = header.max_num, header.index_type
        if command.ext.get(UNIQUE_KEY_QUERY, "").lower() == "true":
            count_max, kind = self._store.config.default_query_max_num, None
        index = self._store.index
        # No message has a longer key, so that hashing one of a megabyte is useless.
        if index is None or len(header.key) > _KEY_LENGTH_MAX or len(header.topic) > _KEY_LENGTH_MAX:
            answer = QueryMessageResponseHeader(index_last_update_timestamp=0, index_last_update_phyoffset=0)
            return response(command, ResponseCode.QUERY_NOT_FOUND, answer, remark=_NOT_FOUND)

        def found(result: IndexResult | OSError) -> None:
            if isinstance(result, OSError):
                refuse_later(channel, command, ResponseCode.SYSTEM_ERROR, f"the index cannot be read: {result}")
                return
            kept = self._store.deletions.kept(header.topic.encode(), result.offsets)
            steps = matching(kept, header, kind, self._store.dispatched_offset)
            self._store.run(steps, lambda records: self._answer(channel, command, result, records))

        span = (header.begin_timestamp, header.end_timestamp)
        index.submit_query(header.topic, header.key, max(0, count_max), span, kind, found)
        return None

    def _answer(
        self, channel: Channel, command: Command, result: IndexResult, records: list[bytes] | StoreError
    ) -> None:
        header = QueryMessageResponseHeader(
            index_last_update_timestamp=result.last_update_timestamp,
            index_last_update_phyoffset=result.last_update_offset,
        )
        if isinstance(records, StoreError):
            refuse_later(channel, command, ResponseCode.SYSTEM_ERROR, records.message)
        elif not (shown := [record for record in records if not is_hidden(self._store, record)]):
            answer = response(command, ResponseCode.QUERY_NOT_FOUND, header, remark=_NOT_FOUND)
            answer_later(channel, answer, command)
        else:
            answer_later(channel, response(command, header=header, body=b"".join(shown)), command)


def matching(
    offsets: Iterable[int], header: QueryMessageRequestHeader, kind: str | None, limit: int
) -> Steps[list[bytes]]:
    """Read the records that the index named, oldest first, without those that only share a hash. Apache leaves that to
    the client."""
    found: list[bytes] = []
    size = 0
    for offset in sorted(offsets):
        record = yield from record_at(offset, limit)
        if record is None or not _matches(record, offset, header.topic.encode(), header.key, kind):
            continue
        size += len(record)
        if found and size > _ANSWER_SIZE_MAX:
            break
        found.append(record)
    return found


def _matches(record: bytes, offset: int, topic: bytes, key: str, kind: str | None) -> bool:
    draft = scan_records(record, offset, VERIFY_RECORD)[0][0]
    if draft.topic != topic:
        return False
    if kind == INDEX_TAG_TYPE:
        return find_property(draft.properties, TAGS.encode()) == key.encode()
    return key == draft.uniq_key or key in draft.keys.split(" ")
