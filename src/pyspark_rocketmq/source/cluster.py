"""What the driver asks name servers and brokers: topics, routes, the bounds of queues, offsets by time and of groups.

Every call answers or raises one error in words; a connection that turns out to be dead is made again once.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TypeVar

from aerobee.client.core.tls import tls_hint
from aerobee.errors import AerobeeError, TransportError
from aerobee.errors.codes import GroupNotExistError, SystemFailureError, error_for
from aerobee.model.dialect import loads_object
from aerobee.model.names import AUTO_CREATE_TOPIC, DLQ_PREFIX, RETRY_PREFIX, is_system_topic
from aerobee.model.queue import MessageQueue
from aerobee.model.route import TopicRouteData
from aerobee.model.topic import PERM_READ, PERM_WRITE
from aerobee.protocol.bodies.groups import ConsumerList
from aerobee.protocol.bodies.topics import TopicList
from aerobee.protocol.codes import RequestCode, ResponseCode
from aerobee.protocol.command import Command
from aerobee.protocol.headers.base import decode_header
from aerobee.protocol.headers.group import GetConsumerListByGroupRequestHeader
from aerobee.protocol.headers.offset import (
    GetMaxOffsetRequestHeader,
    GetMaxOffsetResponseHeader,
    GetMinOffsetRequestHeader,
    GetMinOffsetResponseHeader,
    QueryConsumerOffsetRequestHeader,
    QueryConsumerOffsetResponseHeader,
    SearchOffsetRequestHeader,
    SearchOffsetResponseHeader,
    UpdateConsumerOffsetRequestHeader,
)
from aerobee.protocol.headers.pull import PullMessageRequestHeader
from aerobee.protocol.headers.route import GetRouteInfoRequestHeader
from aerobee.protocol.headers.topic import CreateTopicRequestHeader
from pyspark_rocketmq.options import Endpoint
from pyspark_rocketmq.source.planning import Bounds
from pyspark_rocketmq.source.settings import Wanted
from pyspark_rocketmq.source.wire import WIRES, Ask, checked

T = TypeVar("T")


class NoSuchTopicError(AerobeeError):
    """The name servers know no such topic."""


class Cluster:
    """One endpoint, asked from the driver."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        # By broker name, from the routes seen last.
        self.addresses: dict[str, str] = {}

    # -- requests

    def ask(self, address: str, asks: Sequence[Ask]) -> list[Command]:
        """The answers of one server, whatever their codes."""
        wire = WIRES.take(address, self.endpoint)
        try:
            answers = wire.call_all(asks)
        except TransportError as error:
            if isinstance(error, TimeoutError):
                raise
            # It may have been idle for too long; a new one tells.
            wire = WIRES.take(address, self.endpoint)
            answers = wire.call_all(asks)
        WIRES.give(wire)
        return answers

    def ask_name_server(self, ask: Ask) -> Command:
        """The answer of the first that gives one, whatever its code."""
        failures, hint = [], "Check option nameServer."
        for address in self.endpoint.name_servers:
            try:
                return self.ask(address, [ask])[0]
            except TransportError as error:
                failures.append(f"{address}: {error.message}")
                hint = tls_hint(error, self.endpoint.tls is not None) or hint
        raise TransportError(f"no name server answers ({'; '.join(failures)})", hint=hint)

    # -- topics and queues

    def topics(self) -> tuple[str, ...]:
        """Every topic the name servers know."""
        answer = self.ask_name_server(Ask(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER))
        return TopicList.decode(checked(answer, "the name server").body).topic_list

    def queues(self, wanted: Wanted, *, missing_is_error: bool = True) -> list[MessageQueue]:
        """Every readable queue that is wanted, in order. Also learns the addresses of their brokers."""
        names = wanted.topics if wanted.pattern is None else self._matching(wanted.pattern)
        if not names and missing_is_error:
            raise NoSuchTopicError(f"no topic matches topicPattern {wanted.pattern!r}")
        found: list[MessageQueue] = []
        for topic in names:
            route = self._route(topic)
            if route is not None:
                found += [queue for queue in self._queues_of(topic, route) if wanted.takes(queue)]
            elif missing_is_error and wanted.pattern is None:
                raise self._no_such_topic(topic)
        if missing_is_error:
            _require_assigned(wanted, found)
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

    def _route(self, topic: str) -> TopicRouteData | None:
        answer = self.ask_name_server(Ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, GetRouteInfoRequestHeader(topic=topic)))
        if answer.code == ResponseCode.TOPIC_NOT_EXIST:
            return None
        return TopicRouteData.from_json(loads_object(checked(answer, "the name server").body))

    def _queues_of(self, topic: str, route: TopicRouteData) -> list[MessageQueue]:
        for broker in route.broker_datas:
            address = broker.address()
            if address is not None:
                self.addresses[broker.broker_name] = address
        return [
            MessageQueue(topic, data.broker_name, queue_id)
            for data in route.queue_datas
            if data.perm & PERM_READ and data.broker_name in self.addresses
            for queue_id in range(data.read_queue_nums)
        ]

    def _no_such_topic(self, topic: str) -> NoSuchTopicError:
        near = difflib.get_close_matches(topic, [one for one in self.topics() if not is_system_topic(one)], n=1)
        meant = f": did you mean {near[0]!r}?" if near else ""
        return NoSuchTopicError(f"topic {topic!r} does not exist at {', '.join(self.endpoint.name_servers)}{meant}")

    # -- queues, each asked of its broker, all of a broker in one go

    def bounds(
        self, queues: Collection[MessageQueue], *, unreachable: Callable[[str, AerobeeError], None] | None = None
    ) -> dict[MessageQueue, Bounds]:
        """First and end offset of each. Queues of a broker that is away raise, or are left out and told of."""
        firsts = self._each(
            queues, RequestCode.GET_MIN_OFFSET, lambda q: GetMinOffsetRequestHeader(topic=q.topic, queue_id=q.queue_id,
            bname=q.broker_name), lambda answer: decode_header(GetMinOffsetResponseHeader, answer).offset, unreachable,
        )  # fmt: skip
        ends = self._each(
            firsts, RequestCode.GET_MAX_OFFSET, lambda q: GetMaxOffsetRequestHeader(topic=q.topic, queue_id=q.queue_id,
            bname=q.broker_name), lambda answer: decode_header(GetMaxOffsetResponseHeader, answer).offset, unreachable,
        )  # fmt: skip
        # Apache says -1 for a queue that has never had a message.
        return {queue: Bounds(max(0, min(firsts[queue], end)), max(0, end)) for queue, end in ends.items()}

    def offsets_at(self, queues: Collection[MessageQueue], timestamp_ms: int) -> dict[MessageQueue, int]:
        """The first message stored at that time or later, in each queue; its end where there is none."""
        return self._each(
            queues, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP,
            lambda q: SearchOffsetRequestHeader(topic=q.topic, queue_id=q.queue_id, timestamp=timestamp_ms,
            boundary_type="lower", bname=q.broker_name),
            lambda answer: decode_header(SearchOffsetResponseHeader, answer).offset,
        )  # fmt: skip

    def committed(self, group: str, queues: Collection[MessageQueue]) -> dict[MessageQueue, int | None]:
        """Where a group stands in each queue; None where nowhere."""
        return self._each(
            queues, RequestCode.QUERY_CONSUMER_OFFSET,
            lambda q: QueryConsumerOffsetRequestHeader(consumer_group=group, topic=q.topic, queue_id=q.queue_id,
            set_zero_if_not_found=False, bname=q.broker_name), _offset_or_none,
        )  # fmt: skip

    def commit(self, group: str, offsets: Mapping[MessageQueue, int]) -> None:
        """Save a group's offsets. A group nobody made yet comes into being with a pull, where the broker lets it."""

        def save() -> None:
            self._each(
                offsets, RequestCode.UPDATE_CONSUMER_OFFSET,
                lambda q: UpdateConsumerOffsetRequestHeader(consumer_group=group, topic=q.topic, queue_id=q.queue_id,
                commit_offset=offsets[q], bname=q.broker_name), lambda answer: None,
            )  # fmt: skip

        try:
            save()
        except GroupNotExistError:
            by_broker = {queue.broker_name: queue for queue in offsets}
            for queue in by_broker.values():
                self.ask(self.addresses[queue.broker_name], [Ask(RequestCode.PULL_MESSAGE, _peek(group, queue))])
            try:
                save()
            except GroupNotExistError as error:
                error.hint = f"Make it first: aerobee group create {group}"
                raise

    def make_visible(self, group: str, brokers: Iterable[str]) -> None:
        """Make the group's retry topic where it has none: Apache's consumerProgress asks for its route first.

        RocketMQ: DefaultMQAdminExtImpl.examineConsumeStats. A consumer's heartbeat makes it; a query has none. A
        broker that refuses (its operator alone may) takes the progress all the same.
        """
        topic = RETRY_PREFIX + group
        if self._route(topic) is not None:
            return
        header = CreateTopicRequestHeader(
            topic=topic, default_topic=AUTO_CREATE_TOPIC, read_queue_nums=1, write_queue_nums=1,
            perm=PERM_READ | PERM_WRITE, topic_filter_type="SINGLE_TAG", topic_sys_flag=0,
        )  # fmt: skip
        for broker in sorted(set(brokers)):
            self.ask(self.addresses[broker], [Ask(RequestCode.UPDATE_AND_CREATE_TOPIC, header)])

    def members(self, group: str, brokers: Iterable[str]) -> list[str]:
        """The client ids of a group's connected consumers."""
        found: set[str] = set()
        for broker in sorted(set(brokers)):
            header = GetConsumerListByGroupRequestHeader(consumer_group=group)
            answer = self.ask(self.addresses[broker], [Ask(RequestCode.GET_CONSUMER_LIST_BY_GROUP, header)])[0]
            if answer.code == ResponseCode.SUCCESS:
                found.update(ConsumerList.decode(answer.body).consumer_id_list)
            else:
                error = error_for(answer.code, answer.remark or "", broker)
                # A system error is what a broker says of a group without consumers.
                if not isinstance(error, (SystemFailureError, GroupNotExistError)):
                    raise error
        return sorted(found)

    def _each(
        self,
        queues: Iterable[MessageQueue],
        code: int,
        header: Callable[[MessageQueue], object],
        value: Callable[[Command], T],
        unreachable: Callable[[str, AerobeeError], None] | None = None,
    ) -> dict[MessageQueue, T]:
        by_broker: dict[str, list[MessageQueue]] = {}
        for queue in sorted(queues):
            by_broker.setdefault(queue.broker_name, []).append(queue)
        found: dict[MessageQueue, T] = {}
        for broker, own in by_broker.items():
            address = self.addresses.get(broker)
            if address is None:
                raise TransportError(f"broker {broker} has no address now")
            try:
                answers = self.ask(address, [Ask(code, header(queue)) for queue in own])  # type: ignore[arg-type]
            except TransportError as error:
                if unreachable is None:
                    raise TransportError(
                        f"broker {broker} cannot be reached: {error.message}", broker=address
                    ) from None
                unreachable(broker, error)
                continue
            for queue, answer in zip(own, answers, strict=True):
                if answer.code not in (ResponseCode.SUCCESS, ResponseCode.QUERY_NOT_FOUND):
                    raise error_for(answer.code, answer.remark or "", f"{broker} ({address})")
                found[queue] = value(answer)
        return found


def _offset_or_none(answer: Command) -> int | None:
    if answer.code == ResponseCode.QUERY_NOT_FOUND:
        return None
    return decode_header(QueryConsumerOffsetResponseHeader, answer).offset


def _require_assigned(wanted: Wanted, found: Collection[MessageQueue]) -> None:
    """Every queue of option assign must be there."""
    there = {(queue.topic, queue.queue_id) for queue in found}
    brokers = {(queue.topic, queue.broker_name, queue.queue_id) for queue in found}
    for topic, by_broker in wanted.queues.items():
        for broker, numbers in by_broker.items():
            for number in numbers:
                if (topic, number) not in there if broker == "*" else (topic, broker, number) not in brokers:
                    where = "" if broker == "*" else f" on {broker}"
                    raise NoSuchTopicError(f"option assign: topic {topic} has no queue {number}{where}")


def _peek(group: str, queue: MessageQueue) -> PullMessageRequestHeader:
    return PullMessageRequestHeader(
        consumer_group=group, topic=queue.topic, queue_id=queue.queue_id, queue_offset=0, max_msg_nums=1, sys_flag=4,
        commit_offset=0, suspend_timeout_millis=0, subscription="*", sub_version=0, expression_type="TAG",
        bname=queue.broker_name,
    )  # fmt: skip
