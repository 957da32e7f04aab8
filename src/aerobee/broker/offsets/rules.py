"""Rules for consume offsets: committing, asking, resetting, cloning, cleaning.

The persisted table (`topic@group` to queue to offset) is the store's and handed in. This module owns only the two
tables that are never saved: resets that a client has not fetched yet, and how far each group has pulled.

RocketMQ: ConsumerOffsetManager, ConsumerManageProcessor.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, MutableMapping
from dataclasses import dataclass

from aerobee.broker.refusal import Refusal
from aerobee.model.topic import QUEUE_NUMS_MAX
from aerobee.protocol.codes import ResponseCode

NO_OFFSET = -1
_SEPARATOR = "@"

OffsetTable = MutableMapping[str, dict[int, int]]


@dataclass(frozen=True, slots=True)
class Committed:
    """The outcome of a commit. `went_back_from` is the higher offset that it replaced, which is worth a warning."""

    stored: bool
    went_back_from: int | None = None


def offset_key(topic: str, group: str) -> str:
    """Return the key of a topic and a group in Apache's file."""
    return topic + _SEPARATOR + group


class ConsumerOffsets:
    """Offsets of every group on this broker."""

    def __init__(self, table: OffsetTable, *, server_side_reset: bool = True) -> None:
        self.table = table
        self.server_side_reset = server_side_reset
        # Resets that wait for the group's next pull, by the keys of `table`.
        self.resets: dict[str, dict[int, int]] = {}
        # How far a group was handed a queue that it consumes by POP; its entry in `table` is what is safe. None: nobody
        # does.
        self.popped: Callable[[str, str, int], int | None] | None = None
        # Told of deleted topics and groups: (topic, group), one of them empty.
        self.removed: Callable[[str, str], None] | None = None
        # Told of a position that was set from outside, or set back by a commit: (group, topic, queue, position, whether
        # it was set from outside).
        self.moved: Callable[[str, str, int, int, bool], None] | None = None
        # By topic and group: noted with every pull, and a pair needs no new text.
        self._pulled: dict[tuple[str, str], dict[int, int]] = {}

    def commit(self, group: str, topic: str, queue_id: int, offset: int) -> Committed:
        """Store a client's commit. While a reset waits to be fetched, the client's older position is not taken.

        Apache stores whatever comes, lower offsets too: going back is how clients re-read.
        RocketMQ: ConsumerManageProcessor.updateConsumerOffset, ConsumerOffsetManager.commitOffset.
        """
        key = offset_key(topic, group)
        if self.server_side_reset and queue_id in self.resets.get(key, ()):
            return Committed(False)
        queues = self.table.get(key)
        if queues is None:
            self.table[key] = {queue_id: offset}
            return Committed(True)
        before = queues.get(queue_id)
        queues[queue_id] = offset
        if before is None or offset >= before:
            return Committed(True)
        if self.moved is not None:
            self.moved(group, topic, queue_id, offset, False)
        return Committed(True, before)

    def query(self, group: str, topic: str, queue_id: int) -> int:
        """Return the position of the group, -1 where it has none; a waiting reset counts as its position."""
        key = offset_key(topic, group)
        if self.server_side_reset:
            reset = self.resets.get(key, {}).get(queue_id)
            if reset is not None:
                return reset
        if self.popped is not None:
            taken = self.popped(group, topic, queue_id)
            if taken is not None:
                return taken
        return self.table.get(key, {}).get(queue_id, NO_OFFSET)

    def answer_query(
        self,
        group: str,
        topic: str,
        queue_id: int,
        *,
        set_zero_if_not_found: bool | None,
        min_offset: int,
        first_in_memory: Callable[[], bool],
        empty_at: int | None = None,
    ) -> int | Refusal:
        """Answer QUERY_CONSUMER_OFFSET. A group that never committed starts at 0 only where the queue still has its
        very first message, and that one in memory: a young queue; and at the end of a queue that exists and is empty
        (`empty_at`). Otherwise the client decides by its own consumeFromWhere.

        Apache says "not found" for an empty queue too. A client then asks for its end, and skips what was stored
        between the two questions. RocketMQ: ConsumerManageProcessor.queryConsumerOffset.
        """
        offset = self.query(group, topic, queue_id)
        if offset >= 0:
            return offset
        if set_zero_if_not_found is False:
            remark = "Not found, do not set to zero, maybe this group boot first"
        elif empty_at is not None:
            return empty_at
        elif min_offset <= 0 and first_in_memory():
            return 0
        else:
            remark = "Not found, V3_0_6_SNAPSHOT maybe this group consumer boot first"
        return Refusal(ResponseCode.QUERY_NOT_FOUND, remark)

    def note_pulled(self, group: str, topic: str, queue_id: int, next_offset: int) -> None:
        """Note how far a pull was answered. RocketMQ: commitPullOffset."""
        queues = self._pulled.get((topic, group))
        if queues is None:
            queues = self._pulled[topic, group] = {}
        queues[queue_id] = next_offset

    def pulled(self, group: str, topic: str, queue_id: int) -> int:
        """Return how far the group has pulled, else its position."""
        found = self._pulled.get((topic, group), {}).get(queue_id)
        return self.query(group, topic, queue_id) if found is None else found

    def reset(self, group: str, topic: str, queue_id: int, offset: int) -> bool:
        """Set the position from outside; the client learns of it with its next pull. False: nonsense.

        RocketMQ: ConsumerOffsetManager.assignResetOffset.
        """
        if not topic or not group or not 0 <= queue_id < QUEUE_NUMS_MAX or offset < 0:
            return False
        key = offset_key(topic, group)
        self.resets.setdefault(key, {})[queue_id] = offset
        queues = self.table.get(key)
        if queues is None:
            self.table[key] = {queue_id: offset}
        else:
            queues[queue_id] = offset
        if self.moved is not None:
            self.moved(group, topic, queue_id, offset, True)
        return True

    def take_reset(self, group: str, topic: str, queue_id: int) -> int | None:
        """Return the waiting reset, once. RocketMQ: queryThenEraseResetOffset."""
        if not self.resets:
            return None
        key = offset_key(topic, group)
        queues = self.resets.get(key)
        if queues is None:
            return None
        offset = queues.pop(queue_id, None)
        if not queues:
            del self.resets[key]
        return offset

    def of(self, group: str, topic: str) -> dict[int, int]:
        """Return the offset of each queue."""
        return dict(self.table.get(offset_key(topic, group), {}))

    def topics_of(self, group: str) -> list[str]:
        """Return the topics that a group has offsets of. RocketMQ: whichTopicByConsumer."""
        return [topic for topic, name in self._pairs() if name == group]

    def topics_by_group(self) -> dict[str, list[str]]:
        """Return the topics of all groups, in one pass."""
        found: dict[str, list[str]] = {}
        for topic, group in self._pairs():
            found.setdefault(group, []).append(topic)
        return found

    def groups_of(self, topic: str) -> list[str]:
        """Return the groups that have offsets of a topic. RocketMQ: whichGroupByTopic."""
        return [group for name, group in self._pairs() if name == topic]

    def clone(self, source_group: str, target_group: str, topic: str) -> bool:
        """Let one group stand where another stands. RocketMQ: cloneOffset."""
        queues = self.table.get(offset_key(topic, source_group))
        if queues is None:
            return False
        self.table[offset_key(topic, target_group)] = dict(queues)
        return True

    def min_of_all_groups(
        self, topic: str, min_offset: Callable[[int], int], exclude_groups: Collection[str] = ()
    ) -> dict[int, int]:
        """Return the lowest position of any group in each queue, among positions that still exist.

        Apache deletes the excluded groups' offsets on the way; here they are only left out. RocketMQ:
        queryMinOffsetInAllGroup.
        """
        lowest: dict[int, int] = {}
        for name, group in self._pairs():
            if name != topic or group in exclude_groups:
                continue
            for queue_id, offset in self.table[offset_key(topic, group)].items():
                if offset >= min_offset(queue_id):
                    lowest[queue_id] = min(offset, lowest.get(queue_id, offset))
        return lowest

    def remove_group(self, group: str) -> list[str]:
        """Forget a deleted group with its offsets. Return its topics. RocketMQ: removeOffset."""
        topics = self.topics_of(group)
        for topic in topics:
            del self.table[offset_key(topic, group)]
        suffix = _SEPARATOR + group
        for key in [key for key in self.resets if key.endswith(suffix)]:
            del self.resets[key]
        for pair in [pair for pair in self._pulled if pair[1] == group]:
            del self._pulled[pair]
        if self.removed is not None:
            self.removed("", group)
        return topics

    def remove_topic(self, topic: str) -> list[str]:
        """Forget the offsets of a deleted topic. Return its groups. RocketMQ: cleanOffsetByTopic."""
        groups = self.groups_of(topic)
        for group in groups:
            del self.table[offset_key(topic, group)]
        prefix = topic + _SEPARATOR
        for key in [key for key in self.resets if key.startswith(prefix)]:
            del self.resets[key]
        for pair in [pair for pair in self._pulled if pair[0] == topic]:
            del self._pulled[pair]
        if self.removed is not None:
            self.removed(topic, "")
        return groups

    def _pairs(self) -> Iterable[tuple[str, str]]:
        for key in list(self.table):
            topic, separator, group = key.partition(_SEPARATOR)
            if separator and _SEPARATOR not in group:
                yield topic, group
