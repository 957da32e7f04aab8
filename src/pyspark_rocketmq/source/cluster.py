"""What the driver asks the cluster: the queues that the options name, and their bounds."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable

from aerobee.client.blocking import BlockingClient, Call
from aerobee.errors import AerobeeError
from aerobee.model.names import AUTO_CREATE_TOPIC, DLQ_PREFIX, RETRY_PREFIX, is_system_topic
from aerobee.model.queue import MessageQueue
from aerobee.model.topic import PERM_READ, PERM_WRITE
from aerobee.protocol.codes import RequestCode
from aerobee.protocol.headers.topic import CreateTopicRequestHeader
from pyspark_rocketmq.options import Endpoint
from pyspark_rocketmq.source.backfill import ArchivedPart, ArchiveIndex
from pyspark_rocketmq.source.missing import MissingPart
from pyspark_rocketmq.source.planning import PACKED_OFFSETS, PACKED_RECORDS, Bounds, QueueRange, partitions_of
from pyspark_rocketmq.source.pulling import PlannedRange, RangesPartition, needs_no_record
from pyspark_rocketmq.source.settings import SourceSettings, Wanted
from pyspark_rocketmq.source.topics import NoSuchTopicError, no_such_topic


class Cluster(BlockingClient):
    """The cluster of one endpoint, as the driver asks it."""

    name_server_hint = "Check option nameServer."

    def __init__(self, endpoint: Endpoint, archive: ArchiveIndex | None = None) -> None:
        """Make a client of the cluster. With an archive, queues begin at their first archived message."""
        super().__init__(endpoint.client_config())
        self._archive = archive
        # The topics that `queues` last asked for.
        self._asked: tuple[str, ...] = ()

    def queues(self, wanted: Wanted, *, missing_is_error: bool = True) -> list[MessageQueue]:
        """Return every readable queue that is wanted, in order, and learn the addresses of their brokers."""
        names = wanted.topics if wanted.pattern is None else self._matching(wanted.pattern)
        if not names and missing_is_error:
            raise NoSuchTopicError(f"no topic matches topicPattern {wanted.pattern!r}")
        found: list[MessageQueue] = []
        for topic in names:
            route = self.route(topic)
            if route is not None:
                found += [queue for queue in route.read_queues if wanted.takes(queue)]
            elif missing_is_error and wanted.pattern is None and not any(self.away[topic].values()):
                raise no_such_topic(self, topic)
        self._asked = names
        if missing_is_error and not any(any(self.away[topic].values()) for topic in names):
            _require_assigned(wanted, found)
        return sorted(found)

    def missing(
        self,
        takes: Callable[[MessageQueue], bool],
        queues: Collection[MessageQueue],
        known: Iterable[MessageQueue] = (),
    ) -> list[MissingPart]:
        """Return the parts of the topics that `self.queues` asked for which no route shows. `queues` is what it found.

        `known` are queues that were seen earlier, as a checkpoint tells. A group that is registered and does not have
        the topic any more is not missing: the topic was deleted there. Nor is a group that was forgotten on purpose.
        """
        away = "is away"
        found = {
            MissingPart(topic, group, away)
            for topic in self._asked
            for group, count in self.away.get(topic, {}).items()
            if any(takes(MessageQueue(topic, group, number)) for number in range(count))
        }
        found |= {
            MissingPart(queue.topic, self.broker_of(queue), "has no address now")
            for queue in queues
            if self.address_of(queue) is None
        }
        routed = {(queue.topic, queue.broker_name) for queue in queues}
        gone = {(queue.topic, queue.broker_name) for queue in known if takes(queue)} - routed
        gone = {(topic, group) for topic, group in gone if self.away.get(topic, {}).get(group) is None}
        if gone:
            registered = self.registered()
            reason = "is not registered with the name servers any more"
            found |= {MissingPart(topic, group, reason) for topic, group in gone if group not in registered}
        return sorted(found)

    def _matching(self, pattern: str) -> tuple[str, ...]:
        expression = re.compile(pattern)
        special = pattern.startswith("%") or pattern.startswith("^%")
        return tuple(
            topic
            for topic in sorted(self.topics())
            if expression.fullmatch(topic)
            and not is_system_topic(topic)
            and (special or not topic.startswith((RETRY_PREFIX, DLQ_PREFIX)))
        )

    def bounds(
        self, queues: Collection[MessageQueue], *, unreachable: Callable[[str, AerobeeError], None] | None = None
    ) -> dict[MessageQueue, Bounds]:
        """Return the first and the end offset of each queue.

        A broker that cannot be reached raises TransportError; where `unreachable` is given it is called instead, and
        the queues of that broker are left out.
        """
        begins = self.begins(queues, unreachable)
        ends = self.end_offsets(begins, unreachable)
        found: dict[MessageQueue, Bounds] = {}
        for queue, end in ends.items():
            first, generation = begins[queue]
            # Apache answers -1 for a queue that has never had a message.
            found[queue] = Bounds(max(0, min(first, end)), max(0, end), generation)
        return found if self._archive is None else self._archive.extended(found)

    def planned(
        self, ranges: Iterable[QueueRange], settings: SourceSettings, columns: tuple[str, ...]
    ) -> list[RangesPartition]:
        """Return what the tasks read: of the archive one file each, and of the brokers what the options say."""
        parts: list[ArchivedPart] = []
        if self._archive is not None:
            ranges, parts = self._archive.divided(ranges)
        groups = partitions_of(
            ranges,
            partitions_min=settings.partitions_min,
            records_max=settings.partition_records_max,
            packed_records=PACKED_OFFSETS if needs_no_record(columns, settings.filter) else PACKED_RECORDS,
        )
        return [RangesPartition((), archived=(part,)) for part in parts] + [
            RangesPartition(tuple(PlannedRange(one, self.require_address(one.queue)) for one in group))
            for group in groups
        ]

    def make_visible(self, group: str, brokers: Iterable[str]) -> None:
        """Create the retry topic of a group where it has none: Apache's consumerProgress asks for its route first.

        RocketMQ: DefaultMQAdminExtImpl.examineConsumeStats. The heartbeat of a consumer creates that topic, and a query
        sends none. A broker that refuses to create it still takes the progress.
        """
        topic = RETRY_PREFIX + group
        if self.route(topic) is not None:
            return
        header = CreateTopicRequestHeader(
            topic=topic, default_topic=AUTO_CREATE_TOPIC, read_queue_nums=1, write_queue_nums=1,
            perm=PERM_READ | PERM_WRITE, topic_filter_type="SINGLE_TAG", topic_sys_flag=0,
        )  # fmt: skip
        self.ask_brokers(brokers, Call(RequestCode.UPDATE_AND_CREATE_TOPIC, header))


def cluster_of(settings: SourceSettings) -> Cluster:
    """Return the cluster that the options name, with the archive that they name."""
    return Cluster(settings.endpoint, None if settings.archive is None else ArchiveIndex(settings.archive))


def _require_assigned(wanted: Wanted, found: Collection[MessageQueue]) -> None:
    """Raise NoSuchTopicError where a queue of option assign does not exist."""
    there = {(queue.topic, queue.queue_id) for queue in found}
    brokers = {(queue.topic, queue.broker_name, queue.queue_id) for queue in found}
    for topic, by_broker in wanted.queues.items():
        for broker, numbers in by_broker.items():
            for number in numbers:
                if (topic, number) not in there if broker == "*" else (topic, broker, number) not in brokers:
                    where = "" if broker == "*" else f" on {broker}"
                    raise NoSuchTopicError(f"option assign: topic {topic} has no queue {number}{where}")
