"""The levels that need Aerobee's broker: it holds rows until the batch is committed, or knows them by their keys."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import pyarrow as pa

from aerobee.client.producer import PublishInfo
from aerobee.errors import AerobeeError
from aerobee.model.numbers import int_or
from aerobee.model.queue import MessageQueue
from aerobee.runtime.entropy import SystemEntropy
from aerobee.telemetry.stdlog import get_log
from pyspark_rocketmq.sink.client import BODY_SIZE_MAX, SinkClient
from pyspark_rocketmq.sink.coordinator import BatchCoordinator
from pyspark_rocketmq.sink.decision import BatchConflictError, Driver, GroupsMissingError, Plan, Verdict
from pyspark_rocketmq.sink.groups import BrokerGroups
from pyspark_rocketmq.sink.layout import Layout
from pyspark_rocketmq.sink.levels import BatchName, Written
from pyspark_rocketmq.sink.outbox import Outbox, RowChunk
from pyspark_rocketmq.sink.rows import Row, RowEncoder
from pyspark_rocketmq.sinkoptions import EXACTLY_ONCE, SinkOptions

_log = get_log("spark.sink")

# The room for what is stored around a row that is held.
_ROOM: Final = 64 << 10


class Marked:
    """The base of both levels."""

    def __init__(self, options: SinkOptions, layout: Layout, job_id: str) -> None:
        self.options = options
        self.layout = layout
        self.job_id = job_id
        # The driver makes it once for each run of a batch job. Spark names the run of a stream.
        self.run = SystemEntropy().token(8).hex()

    def job(self) -> BatchName:
        return BatchName(self.job_id, 0, self.run)

    def probe(self) -> None:
        """Raise, before anything is written, where a broker is not Aerobee's."""
        with SinkClient(self.options) as client:
            groups = BrokerGroups(client)

            async def ask() -> None:
                await groups.statuses(await groups.find(), self.job_id, 0, Driver(0, self.run))

            client.run(ask())

    def encoder(self, client: SinkClient) -> RowEncoder:
        return RowEncoder(self.layout, self.options.topic, BODY_SIZE_MAX - _ROOM, client.next_id)


class ExactlyOnce(Marked):
    """The level at which brokers hold rows until the commit makes them readable. A replay finishes what was begun."""

    def write(self, name: BatchName, batches: Iterable[pa.RecordBatch]) -> Written:
        with SinkClient(self.options) as client:
            groups = BrokerGroups(client)
            coordinator = self._coordinator(groups, name, 0)
            decision = client.run(coordinator.decision())
            driver = coordinator.driver
            if decision.verdict is not Verdict.WRITE:
                # The brokers have the rows already.
                return Written(0, name, driver.epoch, dropped=sum(batch.num_rows for batch in batches))
            attempt = SystemEntropy().token(8).hex()
            chunks: dict[str, int] = {}
            turn = SystemEntropy().below(1 << 16)

            async def post(chunk: RowChunk) -> None:
                queue = chunk.queue
                assert queue is not None
                group = queue.broker_name
                await coordinator.begin_at(group)
                sequence = chunks.get(group, 0)
                chunks[group] = sequence + 1
                header = groups.rows_header(
                    name.query, name.batch, driver, chunk.topic, queue.queue_id, attempt=attempt, sequence=sequence
                )  # fmt: skip
                await groups.rows(group, header, chunk.body())

            def spread(row: Row, publish: PublishInfo) -> MessageQueue:
                nonlocal turn
                turn += 1
                return publish.queues[turn % len(publish.queues)]

            outbox = Outbox(client, post, spread, plain=False)
            rows = outbox.send(self.encoder(client), batches)
            return Written(rows, name, driver.epoch, attempt, chunks)

    def commit(self, messages: Sequence[Written | None], batch: int) -> None:
        """Make all rows readable. What was prepared or committed before is finished, and nothing else is."""
        written = [message for message in messages if message is not None]
        name, epoch = self._named(written, batch)
        attempts = {one.attempt: one.chunks for one in written if one.rows}
        with SinkClient(self.options) as client:
            coordinator = self._coordinator(BrokerGroups(client), name, epoch)
            rows = sum(one.rows for one in written)
            plan = client.run(coordinator.commit(attempts, f"{SystemEntropy().token(8).hex()}.{rows}"))
        if self.options.job_id is not None and plan is not None:
            self._require_same(plan, sum(one.dropped for one in written), rows)

    def _require_same(self, plan: Plan, dropped: int, rows: int) -> None:
        """Raise BatchConflictError where a job was committed under this name with another number of rows."""
        before = int_or(plan.plan_id.partition(".")[2], None)
        if dropped and not rows and before is not None and before != dropped:
            raise BatchConflictError(
                f"job {self.options.job_id} was committed before with {before} rows: the {dropped} rows of this run "
                "were not written",
                hint="use another jobId for other rows",
            )

    def _named(self, written: Sequence[Written], batch: int) -> tuple[BatchName, int]:
        """Return the batch and the epoch that the tasks have taken: later requests come from the same driver."""
        if not written:
            return BatchName(self.job_id, batch, self.run), 0
        name = written[0].name
        return BatchName(name.query, batch, name.run), max(one.epoch for one in written)

    def _coordinator(self, groups: BrokerGroups, name: BatchName, epoch: int) -> BatchCoordinator:
        stall_s = max(1.0, self.options.endpoint.retry_timeout_ms / 1000)
        first = self.options.exactly_once_from or 0
        patience_s = self.options.endpoint.retry_timeout_ms / 1000
        return BatchCoordinator(groups, Driver(epoch, name.run), name.query, name.batch, first, stall_s, patience_s)

    def abort(self, messages: Sequence[Written | None], batch: int) -> None:
        """Drop the rows that no plan names.

        Spark also calls this after a commit that failed half-way: rows that are prepared or committed stay, and the
        replay finishes them.
        """
        written = [message for message in messages if message is not None and message.attempt]
        if not written:
            return
        name, epoch = self._named(written, batch)
        with SinkClient(self.options) as client:
            try:
                client.run(self._coordinator(BrokerGroups(client), name, epoch).abort())
            except AerobeeError as error:  # the broker drops the rows when the lease ends
                _log.warning("rows of an aborted batch stay until the lease ends", reason=str(error))


class Idempotent(Marked):
    """The level at which a broker stores rows at once, and drops a row whose key the same batch has stored there."""

    def write(self, name: BatchName, batches: Iterable[pa.RecordBatch]) -> Written:
        with SinkClient(self.options) as client:
            groups = BrokerGroups(client)
            coordinator, begun = client.run(self._begun(groups, name))
            driver = coordinator.driver
            for topic, names in begun.items():
                client.publish(topic, names)  # a replay needs the groups that the batch was begun with
            spread = KeySpread(begun)

            async def post(chunk: RowChunk) -> None:
                queue = chunk.queue
                assert queue is not None
                await coordinator.begin_at(queue.broker_name)
                over = ",".join(spread.groups.get(chunk.topic, ()))
                header = groups.rows_header(
                    name.query, name.batch, driver, chunk.topic, queue.queue_id, keys=len(chunk.keys), groups=over
                )  # fmt: skip
                await groups.rows(queue.broker_name, header, b"".join(chunk.keys) + chunk.body())

            outbox = Outbox(client, post, spread, plain=False)
            return Written(outbox.send(self.encoder(client), batches), name, driver.epoch)

    @staticmethod
    async def _begun(groups: BrokerGroups, name: BatchName) -> tuple[BatchCoordinator, dict[str, tuple[str, ...]]]:
        """Return a coordinator that drives the query, and by topic the groups over which an earlier try spread keys."""
        coordinator = BatchCoordinator(groups, Driver(0, name.run), name.query, name.batch)
        answers = await coordinator.join(await groups.find())
        begun = {topic: names for answer in answers.values() for topic, names in answer.keyed.items() if names}
        return coordinator, begun

    def commit(self, messages: Sequence[Written | None], batch: int) -> None:
        """Do nothing: the rows are stored already."""

    def abort(self, messages: Sequence[Written | None], batch: int) -> None:
        """Do nothing: stored rows stay, and the replay does not store them again."""


class KeySpread:
    """The choice of a queue by the key of a row. On a replay each row must go to the broker group that knows its key.

    A row that names a queue goes there each time anyway.
    """

    def __init__(self, begun: Mapping[str, tuple[str, ...]]) -> None:
        self.groups: dict[str, tuple[str, ...]] = dict(begun)
        self._queues: dict[tuple[str, str], list[MessageQueue]] = {}
        self._seen: dict[str, PublishInfo] = {}

    def __call__(self, row: Row, publish: PublishInfo) -> MessageQueue:
        topic = row.topic
        if self._seen.get(topic) is not publish:
            self._learn(topic, publish)
        number = int.from_bytes(row.key[:8], "big")
        groups = self.groups[topic]
        queues = self._queues[topic, groups[number % len(groups)]]
        return queues[number // len(groups) % len(queues)]

    def _learn(self, topic: str, publish: PublishInfo) -> None:
        now = tuple(sorted({queue.broker_name for queue in publish.queues}))
        groups = self.groups.setdefault(topic, now)
        # The queues of a group that has gone since are known: requests to it wait until it is back.
        missing = [group for group in groups if group not in now and (topic, group) not in self._queues]
        if missing:
            raise GroupsMissingError(
                f"topic {topic!r}: the batch was begun over broker groups {', '.join(groups)}, of which "
                f"{', '.join(missing)} cannot be reached",
                hint="start them: only they know which of its rows are stored",
            )
        self._seen[topic] = publish
        for group in groups:
            if group in now:
                self._queues[topic, group] = [queue for queue in publish.queues if queue.broker_name == group]


def marked_level(options: SinkOptions, layout: Layout, job_id: str) -> ExactlyOnce | Idempotent:
    """Return the level that the options ask for."""
    level = ExactlyOnce if options.guarantee == EXACTLY_ONCE else Idempotent
    return level(options, layout, job_id)
