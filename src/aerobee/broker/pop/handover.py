"""What an Apache broker had in flight when its directory came here: its checkpoints, minus their acknowledgements.

Apache keeps both as messages of its revive topic, most of them as timed messages until shortly before a lease ends; our
timers deliver those like any others. This reader follows the topic from the offset of Apache's own reader. A checkpoint
is ripe some seconds after its time, when its acknowledgements have come too. What is not acknowledged by then is copied
to its retry topic. Nothing is written to the topic here, so with no past at Apache there is nothing to read.
RocketMQ: PopReviveService, PopCheckPoint, AckMsg, BatchAckMsg.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import msgspec

from aerobee.broker.log import STORED, queue_records
from aerobee.broker.offsets import offset_key
from aerobee.broker.pop.records import retry_copy
from aerobee.broker.topics import ensure_topic
from aerobee.errors import AerobeeError
from aerobee.hot.log.properties import find_property
from aerobee.hot.log.record import Draft, Record
from aerobee.model.names import REVIVE_TOPIC_PREFIX
from aerobee.telemetry.stdlog import get_log

if TYPE_CHECKING:
    from aerobee.broker.pop.driver import Pop

REVIVE_GROUP: Final = "CID_RMQ_SYS_REVIVE_GROUP"
# RocketMQ: PopAckConstants.ackTimeInterval is a second; its reader waits two more.
_RIPE_MS: Final = 3_000
_LOOK_MS: Final = 1_000
_RECORDS_MAX: Final = 500
_QUEUES_MAX: Final = 64

_log = get_log("broker.pop")


class _Said(msgspec.Struct):
    """A checkpoint or an acknowledgement, with Apache's short names."""

    c: str
    t: str
    q: int
    so: int
    pt: int
    it: int = 0
    bm: int = 0
    n: int = 0
    d: list[int] | None = None
    sp: bool = False
    ao: int = -1
    aol: list[int] | None = None


_DECODER: Final = msgspec.json.Decoder(_Said, strict=False)


@dataclass(slots=True)
class _Checkpoint:
    said: _Said
    # Where it stands: revive topic and queue, and offset.
    place: tuple[str, int]
    offset: int
    left: set[int] = field(default_factory=set)


class Handover:
    """Reads the revive topic of one broker."""

    def __init__(self, pop: Pop, cluster: str, host: bytes) -> None:
        self._pop = pop
        self._own_topic = REVIVE_TOPIC_PREFIX + cluster
        # The revive topics: the cluster may have had another name.
        self._topics: list[str] = []
        self._host = host
        self._read_to: dict[tuple[str, int], int] = {}
        self._open: dict[tuple[str, str, int, int, int], _Checkpoint] = {}
        self._next_ms = 0
        self._is_busy = False
        # Messages that came from an Apache broker.
        self.taken_over = 0

    def tick(self, now_ms: int) -> None:
        """Read what is new, and bring back what is ripe."""
        if now_ms < self._next_ms or self._is_busy:
            return
        self._next_ms = now_ms + _LOOK_MS
        if not self._topics:
            names = self._pop.catalog.topic_table.topics
            self._topics = sorted({self._own_topic, *(one for one in names if one.startswith(REVIVE_TOPIC_PREFIX))})
        for topic in self._topics:
            for queue_id in range(_QUEUES_MAX):
                if self._pop.store.max_offset(topic.encode(), queue_id) > self._from(topic, queue_id):
                    self._read(topic, queue_id)
        ripe = [one for one in self._open.values() if one.said.pt + one.said.it + _RIPE_MS <= now_ms]
        if ripe:
            self._bring_back(ripe)

    def _from(self, topic: str, queue_id: int) -> int:
        found = self._read_to.get((topic, queue_id))
        if found is None:
            saved = self._pop.offsets.table.get(offset_key(topic, REVIVE_GROUP), {}).get(queue_id, 0)
            found = max(saved, self._pop.store.min_offset(topic.encode(), queue_id))
        return found

    def _read(self, topic: str, queue_id: int) -> None:
        store, start = self._pop.store, self._from(topic, queue_id)
        offset = start
        for offset, record in queue_records(store, topic.encode(), queue_id, start, _RECORDS_MAX):
            if record is not None:
                self._learn(record, (topic, queue_id), offset)
        self._read_to[topic, queue_id] = offset + 1
        self._commit()

    def _learn(self, record: Record, place: tuple[str, int], offset: int) -> None:
        try:
            said = _DECODER.decode(record.body)
        except (msgspec.DecodeError, ValueError):
            return
        key = (said.t, said.c, said.q, said.so, said.pt)
        if find_property(record.properties, b"TAGS") == b"ck":
            distances = said.d if said.d is not None else list(range(min(max(said.n, 0), 64)))
            left = {said.so + one for bit, one in enumerate(distances[:64]) if not said.bm >> bit & 1}
            self._open[key] = _Checkpoint(said, place, offset, left)
            return
        found = self._open.get(key)
        if found is not None:
            found.left -= {said.ao, *(said.aol or ())}

    def _bring_back(self, ripe: list[_Checkpoint]) -> None:
        pop = self._pop
        drafts: list[Draft] = []
        for one in ripe:
            said = one.said
            if pop.catalog.find(said.t) is None or pop.catalog.group(said.c) is None:
                continue
            for offset in sorted(one.left):
                for _, record in queue_records(pop.store, said.t.encode(), said.q, offset, 1):
                    if record is None:
                        continue
                    try:
                        draft = retry_copy(record, said.t, said.c, said.pt, self._host, suspended=said.sp)
                        ensure_topic(pop.catalog, draft.topic.decode(), 1)
                    except AerobeeError:
                        continue
                    drafts.append(draft)
        self._is_busy = True

        def done(code: int, remark: str) -> None:
            self._is_busy = False
            if code not in STORED:
                return
            self.taken_over += len(drafts)
            for one in ripe:
                said = one.said
                self._open.pop((said.t, said.c, said.q, said.so, said.pt), None)
            self._commit()

        if drafts:
            _log.info("messages that were popped from another broker come again", messages=len(drafts))
            pop.puts.put(drafts, done)
        else:
            done(0, "")

    def _commit(self) -> None:
        """Say from where on a start reads: from the first checkpoint that is not settled."""
        for (topic, queue_id), read_to in self._read_to.items():
            place = (topic, queue_id)
            offset = min((one.offset for one in self._open.values() if one.place == place), default=read_to)
            table = self._pop.offsets.table.setdefault(offset_key(topic, REVIVE_GROUP), {})
            table[queue_id] = max(offset, table.get(queue_id, 0))
