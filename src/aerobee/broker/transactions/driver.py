"""The driver of transactions: it takes ends, asks about half messages without one, and keeps the progress.

Whatever is done about a half message is one write of the log: the copy (committed, renewed, given up; nothing for a
rollback) and behind it the op message that says the half message is done. A write that a crash cuts short leaves at
most copies without their op message, and those are the last records of the log: at start they are found by their
origin, from a place saved every few seconds. So a commit is visible once, whatever is repeated, late or cut short.

Ends of one tick share one write and one op message. RocketMQ: TransactionalMessageServiceImpl,
TransactionalMessageCheckService, TransactionalOpBatchService, EndTransactionProcessor.
"""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from aerobee.broker.config import BrokerConfig
from aerobee.broker.log import STORED, Mark, Puts, SendSettings, queue_records, read_soon, saved_place, scan_marks
from aerobee.broker.offsets import OffsetTable, offset_key
from aerobee.broker.refusal import Refusal
from aerobee.broker.topics import TRANSACTION_GROUP, Catalog, deleted_topic_of, ensure_topic
from aerobee.broker.transactions.actions import OWN_KINDS, EndAction, Ended, EndKind, member_who
from aerobee.broker.transactions.copies import (
    CHECK_MAX_TIME_QUEUE_NUMS,
    HALF,
    OP,
    check_request,
    commit_properties,
    committed_copy,
    drop_prepared,
    given_up_copy,
    op_draft,
    real_topic,
    renewed_copy,
    resumed_copy,
)
from aerobee.broker.transactions.halves import (
    CheckRules,
    Due,
    Half,
    HalfState,
    HalfTable,
    Op,
    check_times_of,
    half_of,
    immunity_ms_of,
    op_of,
    origin_of,
    read_origin_mark,
)
from aerobee.errors import InvalidArgumentError, StoreError
from aerobee.hot.log.layout import TRANSACTION_COMMIT, TRANSACTION_ROLLBACK
from aerobee.hot.log.properties import decode_properties
from aerobee.hot.log.record import VERIFY_RECORD, Draft, Record, decode_record
from aerobee.model.names import HALF_TOPIC, OP_HALF_TOPIC, TRANS_CHECK_MAX_TIME_TOPIC
from aerobee.model.numbers import parse_int
from aerobee.model.sysproperties import CHECK_IMMUNITY_TIME, PRODUCER_GROUP, REAL_TOPIC, UNIQ_KEY
from aerobee.model.sysproperties import TRANSACTION_CHECK_TIMES as CHECK_TIMES
from aerobee.net.channel import Channel
from aerobee.protocol.codes import ResponseCode
from aerobee.protocol.headers.transaction import EndTransactionRequestHeader
from aerobee.runtime.paths import join
from aerobee.runtime.seams import Clock
from aerobee.store.messagestore import MessageStore
from aerobee.store.sent import sent_at
from aerobee.store.setaside import UNUSABLE
from aerobee.store.statefile import StateFile
from aerobee.store.steps import Steps
from aerobee.telemetry.stdlog import RateLimitedLog, get_log

# Limits of one write.
_BATCH_MAX: Final = 256
_BATCH_BYTES_MAX: Final = 2 << 20
# Half messages named by one op message beside those of its write.
_MISSING_MAX: Final = 10_000
# Half messages looked at in one tick; so many may be on their way to the log.
_DUE_MAX: Final = 256
_RETRY_MS: Final = 1_000
# A pending half message further back is stored again, so that a start reads no more of the half queue.
_SPAN_MAX: Final = 100_000
_SAVE_INTERVAL_S: Final = 5.0
_RESCAN_BYTES_MAX: Final = 16 << 20
_VERDICTS_MAX: Final = 10_000
# Requests to clients are told apart by number on each channel; administration counts from 1 << 30.
_FIRST_OPAQUE: Final = 1 << 29

_READER: Final = "transactions"
_GIVEN_UP: Final = TRANS_CHECK_MAX_TIME_TOPIC.encode()
_log = get_log("broker.transaction")

# Where a committed message is stored: its own place, or where it waits for its time. May change the properties.
Place = Callable[[str, int, dict[str, str]], "tuple[str, int] | Refusal"]


@dataclass(frozen=True, slots=True)
class _Progress:
    half_offset: int
    op_offset: int
    rescan_from: int
    settled_at: int


class Transactions:
    """The transactions of a broker: `open` after the store is open, `tick` often, `close` before offsets are saved."""

    def __init__(
        self,
        store: MessageStore,
        puts: Puts,
        catalog: Catalog,
        offsets: OffsetTable,
        place: Place,
        settings: SendSettings,
        config: Callable[[], BrokerConfig],
        producer: Callable[[str], Channel | None],
        clock: Clock,
    ) -> None:
        """`offsets` is where the progress is kept. `producer` finds a connected member of a group, in turn."""
        self.table = HalfTable()
        self._store = store
        self._puts = puts
        self._offsets = offsets
        self._catalog = catalog
        self._producer = producer
        self._place = place
        self._config = config
        self._store_host = settings.store_host
        self._clock = clock
        self._warn = RateLimitedLog(_log, clock)
        self._state = StateFile(store.disk, join(store.root, "config", "transactionProgress.json"))
        self._actions: deque[EndAction] = deque()
        self._flush_scheduled = False
        self._one_by_one = False
        # Writes under way: a number for each, and where the log ended when it was asked for.
        self._writing: dict[int, int] = {}
        self._writes = 0
        self._missing_ops: list[int] = []
        self._verdicts: OrderedDict[int, EndKind] = OrderedDict()
        self._opaque = _FIRST_OPAQUE
        self._rescan_from = 0
        self._progress: _Progress | None = None
        self._next_save_s, self.asked = 0.0, 0
        # How often clients committed (True) or rolled back, by topic.
        self.ends: Counter[tuple[bool, str]] = Counter()
        # Whether the user of a connection may see a topic's messages.
        self.may_see: Callable[[Channel, str], bool] = lambda channel, topic: True
        self._following = False
        # How much of the op queue was learnt while following.
        self._ops_to = 0

    @property
    def pending(self) -> int:
        """Half messages without an end."""
        return len(self.table)

    def _rules(self) -> CheckRules:
        config = self._config()
        return CheckRules(
            config.transaction_timeout_ms,
            config.transaction_check_interval_ms,
            config.transaction_check_max,
            self._store.config.file_reserved_time_hours,
        )

    # -- start and stop

    def open(self, *, following: bool = False) -> int:
        """Take up what is pending; how many. With `following` nobody is asked and nothing is written before `lead`."""
        store = self._store
        self._following = following
        half_offset = self._saved_offset(HALF_TOPIC, HALF)
        op_offset = self._saved_offset(OP_HALF_TOPIC, OP)
        self.table = HalfTable(half_offset, op_offset)
        self._ops_to = max(op_offset, store.max_offset(OP, 0))
        ops = [self._op(offset, record) for offset, record in queue_records(store, OP, 0, op_offset)]
        self.table.starting(ops)
        halves: list[tuple[Half, int]] = []
        without_op: list[int] = []
        for _, record in queue_records(store, HALF, 0, half_offset):
            if record is not None:
                try:
                    halves.append(half_of(record))
                except UNUSABLE as error:
                    if not self.table.is_removed(record.queue_offset, record.physical_offset):
                        self._set_aside(record, error)
                        without_op.append(record.queue_offset)
        self.table.ends_found(self._stored_ends(halves))
        rules, now_ms = self._rules(), self._clock.now_ms()
        for half, prepared_offset in halves:
            self.table.learn(half, prepared_offset, rules, now_ms)
        self.table.next_offset = max(self.table.next_offset, store.max_offset(HALF, 0))
        self._missing_ops = self.table.started() + without_op
        self._next_save_s = self._clock.monotonic() + _SAVE_INTERVAL_S
        return len(self.table)

    def _op(self, offset: int, record: Record | None) -> Op:
        """Return an op message. One that cannot be used names nothing."""
        if record is not None:
            try:
                return op_of(record)
            except UNUSABLE as error:
                self._store.asides.add(_READER, error, record)
        return Op(offset, -1, [])

    def _set_aside(self, record: Record, reason: object) -> None:
        """End a half message that cannot be used: nobody is asked about it. The caller writes its op message."""
        self._store.asides.add(_READER, reason, record)
        self._remember(origin_of(record), EndKind.ROLLBACK)

    def _saved_offset(self, topic: str, name: bytes) -> int:
        return saved_place(self._store, name, self._offsets.get(offset_key(topic, TRANSACTION_GROUP)))

    def _stored_ends(self, halves: list[tuple[Half, int]]) -> set[int]:
        """Return the origins of transactions whose end is stored, found in the log's tail."""
        saved = self._state.load(lambda content: parse_int(content.strip(), 0))
        if saved is None:
            # Apache kept this store, or nobody did. Ends lie above the half messages that they end.
            is_removed = self.table.is_removed
            places = ((half.queue_offset, half.physical_offset) for half, _ in halves)
            saved = min(
                (place for offset, place in places if not is_removed(offset, place)),
                default=self._store.dispatched_offset,
            )
        self._rescan_from = saved
        marks = scan_marks(self._store, saved, self._store.dispatched_offset)
        return {read_origin_mark(mark.value) for mark in marks if mark.value > 0 and mark.topic != HALF}

    def close(self) -> None:
        """Keep the progress, if the store got everything to disk."""
        progress = self._snapshot()
        if self._store.settled_offset >= progress.settled_at:
            self._keep(progress)
            self._state.save(str(self._rescan_from).encode())

    # -- following a master

    def follow(self, marks: Iterable[Mark], now_ms: int) -> None:
        """Take up half messages and ends that the master stored. Call it often while following.

        The order matters: a copy and an op message speak of half messages that lie before them in the log.
        """
        self._catch_up(now_ms)
        missing = set(self._missing_ops) | set(self.table.superseded())
        for mark in marks:
            half = self.table.find(read_origin_mark(mark.value)) if mark.value > 0 and mark.topic != HALF else None
            if half is not None:
                missing.add(half.queue_offset)
                self._remember(half.origin, EndKind.GIVE_UP if mark.topic == _GIVEN_UP else EndKind.COMMIT)
                self.table.finish(half)
        for offset, record in queue_records(self._store, OP, 0, self._ops_to):
            op = self._op(offset, record)
            missing.difference_update(op.named)
            for origin in self.table.op_learnt(op):
                self._remember(origin, EndKind.ROLLBACK)
            self._ops_to = offset + 1
        self._missing_ops = sorted(missing)
        self._save(self._clock.monotonic())

    def lead(self) -> None:
        """Ask and write from now on. Everything that the log holds was shown to `follow`."""
        self._following = False

    # -- time

    def tick(self, now_ms: int) -> None:
        """Ask about what is due, give up what was asked too often, keep the progress."""
        if not self._store.is_open:
            return
        assert not self._following, "a broker that follows asks nobody"
        self._catch_up(now_ms)
        if self._missing_ops and not self._flush_scheduled:
            self._schedule()
        for half in self.table.due(now_ms, max(0, _DUE_MAX - len(self._actions))):
            self._look_at(half, now_ms)
        oldest = self.table.oldest()
        if oldest is not None and oldest.queue_offset < self.table.next_offset - _SPAN_MAX:
            if oldest.state is HalfState.PENDING:
                self._store_again(oldest, EndKind.REFRESH)
        self._save(self._clock.monotonic())

    def is_behind(self, now_ms: int) -> bool:
        """Tell whether a half message that is due was not asked about, or something is on its way to the log."""
        return bool(self._actions or self._writing) or self.table.next_due_ms <= now_ms

    def _catch_up(self, now_ms: int) -> None:
        """Take up half messages that were stored since. Each is known here before it can end."""
        end = self._store.max_offset(HALF, 0)
        if self.table.next_offset >= end:
            return
        rules = self._rules()
        for _, record in queue_records(self._store, HALF, 0, self.table.next_offset):
            if record is not None:
                try:
                    half, prepared_offset = half_of(record)
                except UNUSABLE as error:
                    self._set_aside(record, error)
                    self._missing_ops.append(record.queue_offset)
                else:
                    self.table.learn(half, prepared_offset, rules, now_ms)
        self.table.next_offset = max(self.table.next_offset, end)

    def _look_at(self, half: Half, now_ms: int) -> None:
        rules = self._rules()
        if half.physical_offset >= self._store.dispatched_offset:
            # It was stored again, and replicas that are away have not confirmed that yet.
            self.table.wait(half, now_ms + rules.interval_ms)
            return
        due = self.table.decide(half, now_ms, rules, reachable=self._producer(half.group) is not None)
        if due is Due.WAIT:
            self.table.wait(half, now_ms + rules.interval_ms)
        else:
            self._store_again(half, EndKind.ASK if due is Due.ASK else EndKind.GIVE_UP)

    # -- questions

    def _store_again(self, half: Half, kind: EndKind) -> None:
        half.state = HalfState.RENEWING

        def found(record: Record | None) -> None:
            if record is None:
                # What cannot be read cannot be committed.
                _log.error("a half message cannot be read any more", offset=half.queue_offset, group=half.group)
                self._act(EndAction(half, EndKind.ROLLBACK, None))
            elif self._is_deleted(record):
                self._act(EndAction(half, EndKind.ROLLBACK, None))
            elif kind is EndKind.GIVE_UP:
                _log.error("a transaction without an end was given up", offset=half.queue_offset, group=half.group)
                ensure_topic(self._catalog, TRANS_CHECK_MAX_TIME_TOPIC, CHECK_MAX_TIME_QUEUE_NUMS)
                self._act(EndAction(half, kind, given_up_copy(record, half.origin)))
            else:
                times = half.check_times + 1 if kind is EndKind.ASK else None
                self._act(EndAction(half, kind, renewed_copy(record, half.origin, times)))

        self._read(half.physical_offset, self._store.message_at(half.physical_offset), found)

    def _ask(self, half: Half, copy: Draft) -> None:
        topic = decode_properties(copy.properties).get(REAL_TOPIC, "")
        channel = member_who(lambda: self._producer(half.group), lambda one: self.may_see(one, topic))
        if channel is None:
            half.check_times -= 1  # it was not asked about, so nothing is counted
            return
        self._opaque = _FIRST_OPAQUE | (self._opaque + 1) & (_FIRST_OPAQUE - 1)
        self.asked += 1
        channel.send(check_request(copy, self._opaque, self._config().broker_name))

    # -- ends

    def end(self, header: EndTransactionRequestHeader, ended: Ended) -> None:
        """Commit or roll back. `ended` is told when that is stored, or why it is not."""
        if header.commit_or_rollback not in (TRANSACTION_COMMIT, TRANSACTION_ROLLBACK):
            ended(ResponseCode.SUCCESS, None)  # unknown: it will be asked about
            return
        self._catch_up(self._clock.now_ms())

        def found(record: Record | None) -> None:
            refusal = self._refusal(header, record)
            if refusal is not None or record is None:
                code, remark = (refusal.code, refusal.remark) if refusal else (ResponseCode.SYSTEM_ERROR, None)
                ended(code, remark)
            else:
                self._end(origin_of(record), record, EndKind(header.commit_or_rollback), ended)

        self._read(header.commit_log_offset, sent_at(self._store, header.commit_log_offset), found)

    def _refusal(self, header: EndTransactionRequestHeader, record: Record | None) -> Refusal | None:
        """Return why an end does not count. RocketMQ: EndTransactionProcessor.rejectCommitOrRollback."""
        if record is None or record.topic != HALF:
            return Refusal(ResponseCode.SYSTEM_ERROR, "Find prepared transaction message failed")
        properties = decode_properties(record.properties)
        if CHECK_IMMUNITY_TIME in properties and not header.from_transaction_check:
            limit_ms = max(immunity_ms_of(properties) or 0, self._config().transaction_timeout_ms)
            if self._clock.now_ms() - record.born_timestamp > limit_ms:
                return Refusal(ResponseCode.ILLEGAL_OPERATION, "too late for an end: wait for the check")
        if properties.get(PRODUCER_GROUP) != header.producer_group:
            return Refusal(ResponseCode.SYSTEM_ERROR, "The producer group wrong")
        if record.queue_offset != header.tran_state_table_offset:
            return Refusal(ResponseCode.SYSTEM_ERROR, "The transaction state table offset wrong")
        if record.physical_offset != header.commit_log_offset:
            return Refusal(ResponseCode.SYSTEM_ERROR, "The commit log offset wrong")
        # Apache checks no further. After a power cut another transaction may stand at the place of a lost one.
        if header.transaction_id and properties.get(UNIQ_KEY) not in (header.transaction_id, header.msg_id):
            return Refusal(ResponseCode.SYSTEM_ERROR, "The transaction id wrong")
        return None

    def _end(self, origin: int, record: Record, kind: EndKind, ended: Ended) -> None:
        half = self.table.find(origin)
        if half is None:
            self._ended_before(origin, kind, ended)
        elif half.state is not HalfState.PENDING:
            # What is under way comes first. After it the half message has ended, or is pending again.
            half.waiting.append(lambda: self._end(origin, record, kind, ended))
        else:
            if self._is_deleted(record):
                kind = EndKind.ROLLBACK
            draft = self._committed(record, half) if kind is EndKind.COMMIT else None
            if isinstance(draft, Refusal):
                ended(draft.code, draft.remark)
                return
            half.state = HalfState.ENDING
            self.ends[draft is not None, real_topic(record)] += 1
            self._act(EndAction(half, kind, draft, [ended]))

    def _is_deleted(self, record: Record) -> bool:
        """Tell whether a half message went with its topic; where the topic was made again, the end still counts."""
        topic = deleted_topic_of(record, self._store.deletions)
        return topic is not None and self._catalog.find(topic) is None

    def _ended_before(self, origin: int, kind: EndKind, ended: Ended) -> None:
        """Answer an end that was sent twice, or late. The first one counts."""
        verdict = self._verdicts.get(origin)
        if verdict is kind:
            ended(ResponseCode.SUCCESS, None)
        else:
            known = "" if verdict is None else f": {verdict.name.lower()}"
            ended(ResponseCode.SYSTEM_ERROR, f"the transaction has ended before{known}")

    def _committed(self, record: Record, half: Half) -> Draft | Refusal:
        try:
            topic, queue_id, properties = commit_properties(record)
        except InvalidArgumentError as error:
            return Refusal(ResponseCode.SYSTEM_ERROR, f"the half message cannot be committed: {error.message}")
        if half.check_times and half.is_copy:
            # The end names an older copy. The message gets the count of the newest one.
            properties[CHECK_TIMES] = str(max(half.check_times, check_times_of(properties)))
        placed = self._place(topic, queue_id, properties)
        if isinstance(placed, Refusal):
            return placed
        if placed != (topic, queue_id):
            drop_prepared(properties)
        return committed_copy(record, half.origin, *placed, properties)

    def resume(self, physical_offset: int, ended: Ended) -> None:
        """Ask again about a half message that was given up."""

        def found(record: Record | None) -> None:
            if record is None or record.topic != _GIVEN_UP:
                ended(ResponseCode.SYSTEM_ERROR, f"no message of {TRANS_CHECK_MAX_TIME_TOPIC} is there")
            else:
                self._puts.put([resumed_copy(record)], lambda code, remark: ended(*_told(code, remark)))

        self._read(physical_offset, sent_at(self._store, physical_offset), found)

    # -- the log

    def _read(self, physical_offset: int, steps: Steps[bytes | None], found: Callable[[Record | None], None]) -> None:
        def read(data: bytes | StoreError | None) -> None:
            found(decode_record(data, 0, VERIFY_RECORD) if isinstance(data, bytes) else None)

        read_soon(self._store, physical_offset, steps, read)

    def _act(self, action: EndAction) -> None:
        self._actions.append(action)
        self._schedule()

    def _schedule(self) -> None:
        if not self._flush_scheduled:
            self._flush_scheduled = True
            asyncio.get_running_loop().call_soon(self._flush)

    def _flush(self) -> None:
        self._flush_scheduled = False
        named_max = min(_MISSING_MAX, self._store.config.max_message_size // 32)
        while self._actions or self._missing_ops:
            batch: list[EndAction] = []
            size = 0
            limit = 1 if self._one_by_one else _BATCH_MAX
            while self._actions and len(batch) < limit and size < _BATCH_BYTES_MAX:
                action = self._actions.popleft()
                size += 0 if action.draft is None else len(action.draft.body) + 512
                batch.append(action)
            missing, self._missing_ops = self._missing_ops[:named_max], self._missing_ops[named_max:]
            self._write(batch, missing)

    def _write(self, batch: list[EndAction], missing: list[int]) -> None:
        """Write copies, and behind them the op message that says so."""
        named = [action.half.queue_offset for action in batch] + missing
        op = op_draft(named, self._store_host, self._clock.now_ms())
        drafts = [action.draft for action in batch if action.draft is not None]
        self._writes += 1
        number = self._writes
        self._writing[number] = self._store.log_end

        def done(code: int, remark: str) -> None:
            del self._writing[number]
            if code in STORED:
                self.table.op_stored(op.queue_offset, named)
                for action in batch:
                    self._stored(action)
                if not self._actions:
                    self._one_by_one = False
            else:
                self._missing_ops += missing
                self._not_stored(batch, code, remark)

        self._puts.put([*drafts, op], done)

    def _stored(self, action: EndAction) -> None:
        half = action.half
        if action.kind in (EndKind.ASK, EndKind.REFRESH):
            copy = action.draft
            assert copy is not None
            half.state = HalfState.PENDING
            newer = Half(
                copy.queue_offset, copy.physical_offset, half.origin, half.group, copy.store_timestamp,
                half.check_times + (action.kind is EndKind.ASK), half.immunity_ms,
            )  # fmt: skip
            if copy.queue_offset > half.queue_offset:
                self.table.renewed(half, newer, self._rules(), self._clock.now_ms())
            else:
                self.table.wait(half, half.next_ms)
            if action.kind is EndKind.ASK:
                self._ask(half, copy)
        else:
            self._remember(half.origin, action.kind)
            self.table.finish(half)
            for ended in action.told:
                ended(ResponseCode.SUCCESS, None)
        self._go_on(half)

    def _not_stored(self, batch: list[EndAction], code: int, remark: str) -> None:
        """Try again what was not stored. Where the log refuses one message for what it is, each goes alone."""
        now_ms = self._clock.now_ms()
        self._warn.warning("store", "ends of transactions were not stored and wait", reason=remark)
        if code == ResponseCode.MESSAGE_ILLEGAL and len(batch) > 1:
            self._one_by_one = True
            self._actions.extendleft(reversed(batch))
            self._schedule()
            return
        for action in batch:
            if code == ResponseCode.MESSAGE_ILLEGAL and action.kind in OWN_KINDS:
                # The log refuses the copy for what it is, and would do so for ever.
                half, reason = action.half, f"it cannot be stored again to be asked about: {remark}"
                self._store.asides.add_place(_READER, reason, HALF, 0, half.queue_offset, half.physical_offset)
                self._act(EndAction(half, EndKind.ROLLBACK, None))
                continue
            action.half.state = HalfState.PENDING
            self.table.wait(action.half, max(action.half.next_ms, now_ms + _RETRY_MS))
            for ended in action.told:
                ended(code, remark)
            self._go_on(action.half)

    def _go_on(self, half: Half) -> None:
        waiting, half.waiting = half.waiting, []
        for again in waiting:
            again()

    def _remember(self, origin: int, kind: EndKind) -> None:
        self._verdicts[origin] = kind
        if len(self._verdicts) > _VERDICTS_MAX:
            self._verdicts.popitem(last=False)

    # -- progress

    def _snapshot(self) -> _Progress:
        end = self._store.dispatched_offset if self._following else self._store.log_end
        rescan_from = self._rescan_from if self._missing_ops else min(self._writing.values(), default=end)
        return _Progress(*self.table.progress(), rescan_from, end)

    def _keep(self, progress: _Progress) -> None:
        """Keep the progress in the table of consume offsets, as Apache does. The table is saved by others."""
        for topic, offset in ((HALF_TOPIC, progress.half_offset), (OP_HALF_TOPIC, progress.op_offset)):
            key = offset_key(topic, TRANSACTION_GROUP)
            if offset or key in self._offsets:
                self._offsets.setdefault(key, {})[0] = offset
        self._rescan_from = progress.rescan_from

    def _save(self, now_s: float) -> None:
        if self._progress is None:
            if now_s < self._next_save_s:
                return
            self._next_save_s = now_s + _SAVE_INTERVAL_S
            if self._store.dispatched_offset == self._rescan_from:
                return
            self._progress = self._snapshot()
        # Neither may name records that a power cut or another master could still take.
        if self._store.settled_offset < self._progress.settled_at:
            return
        progress, self._progress = self._progress, None
        grown = progress.rescan_from - self._rescan_from
        before = self._rescan_from
        self._keep(progress)
        if grown < _RESCAN_BYTES_MAX:
            self._rescan_from = before
            return

        def saved(error: Exception | None) -> None:
            if error is not None:
                self._warn.warning("save", "the progress of transactions was not saved", reason=error)

        self._state.submit(str(self._rescan_from).encode(), saved)


def _told(code: int, remark: str) -> tuple[int, str | None]:
    """Return the answer to a request to resume. RocketMQ: AdminBrokerProcessor.resumeCheckHalfMessage."""
    if code in STORED:
        return ResponseCode.SUCCESS, None
    return ResponseCode.SYSTEM_ERROR, f"Put message back to RMQ_SYS_TRANS_HALF_TOPIC failed. {remark}"
