"""A small synchronous client: topics, routes, offsets and groups of a cluster, over blocking connections.

It shares routes, codecs, signing, TLS and errors with the asyncio client. Every method returns the answer or raises one
error. A connection that turns out to be dead is made again once.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TypeVar

from aerobee.client.blocking.connection import CONNECTIONS, Call
from aerobee.client.core import ClientConfig, away_groups, decode_route, is_not_master, route_header, tls_hint
from aerobee.errors import AerobeeError, TransportError
from aerobee.errors.codes import GroupNotExistError, SystemFailureError, error_for
from aerobee.model.queue import MessageQueue
from aerobee.model.route import TopicRoute
from aerobee.protocol.bodies.cluster import ClusterInfo
from aerobee.protocol.bodies.groups import ConsumerList
from aerobee.protocol.bodies.topics import TopicList
from aerobee.protocol.codes import AWAY_FIELD, GENERATION_FIELD, MASTER_FIELD, NO_TOPIC_FIELD, RequestCode, ResponseCode
from aerobee.protocol.command import Command
from aerobee.protocol.headers.base import Header, decode_header
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

T = TypeVar("T")
# Called with the name of a broker group that cannot be reached, and with the reason.
Unreachable = Callable[[str, AerobeeError], None]


class BlockingClient:
    """A client of one cluster. It remembers the addresses of the broker groups in the routes it has seen."""

    # What to check where no name server answers.
    name_server_hint = "is it running, and is the address right?"

    def __init__(self, config: ClientConfig) -> None:
        self.config = config
        # By broker group. A group that left the routes keeps its last address: it may be about to come back.
        self._addresses: dict[str, str] = {}
        self._routes: dict[str, TopicRoute] = {}
        # By topic: the broker groups that have queues of it and are not in its route, with the number of these queues;
        # 0 for groups that were forgotten on purpose.
        self.away: dict[str, dict[str, int]] = {}

    # -- requests

    def ask(self, address: str, calls: Sequence[Call]) -> list[Command]:
        """Return the answers of one server, of any code."""
        connection = CONNECTIONS.take(address, self.config)
        try:
            answers = connection.ask_all(calls)
        except TransportError as error:
            if isinstance(error, TimeoutError):
                raise
            # The connection may have been idle for too long. A new one shows whether the server is there.
            connection = CONNECTIONS.take(address, self.config)
            answers = connection.ask_all(calls)
        CONNECTIONS.give(connection)
        return answers

    def ask_name_server(self, call: Call) -> Command:
        """Return the answer, of any code, of the first name server that gives one."""
        failures, hint = [], self.name_server_hint
        for address in self.config.namesrv:
            try:
                return self.ask(address, [call])[0]
            except TransportError as error:
                failures.append(f"{address}: {error.message}")
                hint = tls_hint(error, self.config.tls is not None) or hint
        raise TransportError(f"no name server answers ({'; '.join(failures)})", hint=hint)

    # -- topics and routes

    def topics(self) -> tuple[str, ...]:
        """Return every topic that the name servers know, also those of broker groups that are away."""
        call = Call(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, ext=((AWAY_FIELD, "true"),))
        answer = self.ask_name_server(call)
        if answer.code != ResponseCode.SUCCESS:
            raise error_for(answer.code, answer.remark or "", "the name server")
        return TopicList.decode(answer.body).topic_list

    def route(self, topic: str) -> TopicRoute | None:
        """Ask for the route of a topic. Return None where the topic does not exist."""
        call = Call(RequestCode.GET_ROUTEINFO_BY_TOPIC, route_header(topic), ext=((AWAY_FIELD, "true"),))
        answer = self.ask_name_server(call)
        self.away[topic] = away_groups(answer)
        data = decode_route(answer, "the name server")
        if data is None:
            return None
        # A slave may be behind: whoever took its end for that of the queue would read less than there is.
        for broker in data.broker_datas:
            if broker.master is not None:
                self._addresses[broker.broker_name] = broker.master
        route = self._routes[topic] = TopicRoute.of(topic, data)
        return route

    def registered(self) -> frozenset[str]:
        """Return the broker groups that are registered with the name servers now."""
        answer = self.ask_name_server(Call(RequestCode.GET_BROKER_CLUSTER_INFO))
        if answer.code != ResponseCode.SUCCESS:
            raise error_for(answer.code, answer.remark or "", "the name server")
        return frozenset(ClusterInfo.decode(answer.body).broker_addr_table)

    def broker_of(self, queue: MessageQueue) -> str:
        """Return the broker group that serves a queue, as far as routes are known."""
        route = self._routes.get(queue.topic)
        return queue.broker_name if route is None else route.broker_of(queue)

    def address_of(self, queue: MessageQueue) -> str | None:
        """Return the address of the broker that serves a queue, None where no route has named it."""
        return self._addresses.get(self.broker_of(queue))

    def require_address(self, queue: MessageQueue) -> str:
        """Return the address of the broker that serves a queue. Raise TransportError where it is not known."""
        address = self.address_of(queue)
        if address is None:
            raise TransportError(f"no route names an address of broker {self.broker_of(queue)} now")
        return address

    # -- offsets: all queues of a broker are asked for together

    def begins(
        self, queues: Iterable[MessageQueue], unreachable: Unreachable | None = None
    ) -> dict[MessageQueue, tuple[int, str | None]]:
        """Return the offset of the oldest message of each queue, and the generation of its topic on that broker.

        The generation is '' for a topic without one, and None where the broker does not tell it (Apache's). A broker
        that cannot be reached raises TransportError. Where `unreachable` is given, it is called instead, and the queues
        of that broker are left out. So it is for a broker of ours that does not have the topic any more.
        """
        return self._each(
            queues, RequestCode.GET_MIN_OFFSET, lambda q: GetMinOffsetRequestHeader(topic=q.topic, queue_id=q.queue_id,
            bname=q.broker_name), _begin, unreachable, ext=((GENERATION_FIELD, "true"),),
        )  # fmt: skip

    def end_offsets(
        self, queues: Iterable[MessageQueue], unreachable: Unreachable | None = None
    ) -> dict[MessageQueue, int]:
        """Return the offset that the next message of each queue will get. For `unreachable` see `begins`."""
        return self._each(
            queues, RequestCode.GET_MAX_OFFSET, lambda q: GetMaxOffsetRequestHeader(topic=q.topic, queue_id=q.queue_id,
            bname=q.broker_name), lambda answer: decode_header(GetMaxOffsetResponseHeader, answer).offset, unreachable,
            ext=((GENERATION_FIELD, "true"),),
        )  # fmt: skip

    def offsets_at(self, queues: Collection[MessageQueue], timestamp_ms: int) -> dict[MessageQueue, int]:
        """Return the offset of the first message of each queue that was stored at that time or later.

        The end of the queue is returned where there is no such message.
        """
        return self._each(
            queues, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP,
            lambda q: SearchOffsetRequestHeader(topic=q.topic, queue_id=q.queue_id, timestamp=timestamp_ms,
            boundary_type="lower", bname=q.broker_name),
            lambda answer: decode_header(SearchOffsetResponseHeader, answer).offset,
        )  # fmt: skip

    # -- consumer groups

    def committed(self, group: str, queues: Collection[MessageQueue]) -> dict[MessageQueue, int | None]:
        """Return the offset that a group has committed for each queue, None where it has committed none."""
        return self._each(
            queues, RequestCode.QUERY_CONSUMER_OFFSET,
            lambda q: QueryConsumerOffsetRequestHeader(consumer_group=group, topic=q.topic, queue_id=q.queue_id,
            set_zero_if_not_found=False, bname=q.broker_name), _offset_or_none,
        )  # fmt: skip

    def commit(self, group: str, offsets: Mapping[MessageQueue, int]) -> None:
        """Commit offsets of a group. A pull creates the group where it does not exist and the broker allows that."""

        def save() -> None:
            self._each(
                offsets, RequestCode.UPDATE_CONSUMER_OFFSET,
                lambda q: UpdateConsumerOffsetRequestHeader(consumer_group=group, topic=q.topic, queue_id=q.queue_id,
                commit_offset=offsets[q], bname=q.broker_name), lambda answer: None,
            )  # fmt: skip

        try:
            save()
        except GroupNotExistError:
            by_broker = {self.broker_of(queue): queue for queue in offsets}
            for broker, queue in by_broker.items():
                self.ask(self._addresses[broker], [Call(RequestCode.PULL_MESSAGE, _peek(group, queue))])
            try:
                save()
            except GroupNotExistError as error:
                error.hint = f"Create it first: aerobee group create {group}"
                raise

    def members(self, group: str, brokers: Iterable[str]) -> list[str]:
        """Return the client ids of the consumers of a group that are connected to these broker groups."""
        found: set[str] = set()
        header = GetConsumerListByGroupRequestHeader(consumer_group=group)
        for broker, answer in self.ask_brokers(brokers, Call(RequestCode.GET_CONSUMER_LIST_BY_GROUP, header)).items():
            if answer.code == ResponseCode.SUCCESS:
                found.update(ConsumerList.decode(answer.body).consumer_id_list)
                continue
            error = error_for(answer.code, answer.remark or "", broker)
            # A broker answers SYSTEM_ERROR for a group that has no consumers.
            if not isinstance(error, (SystemFailureError, GroupNotExistError)):
                raise error
        return sorted(found)

    def ask_brokers(self, brokers: Iterable[str], call: Call) -> dict[str, Command]:
        """Return the answers, of any code, of broker groups that routes have named."""
        return {broker: self.ask(self._addresses[broker], [call])[0] for broker in sorted(set(brokers))}

    def _each(
        self,
        queues: Iterable[MessageQueue],
        code: int,
        header: Callable[[MessageQueue], Header],
        value: Callable[[Command], T],
        unreachable: Unreachable | None = None,
        ext: tuple[tuple[str, str], ...] = (),
    ) -> dict[MessageQueue, T]:
        by_broker: dict[str, list[MessageQueue]] = {}
        for queue in sorted(queues):
            by_broker.setdefault(self.broker_of(queue), []).append(queue)
        found: dict[MessageQueue, T] = {}
        for broker, own in by_broker.items():
            address = self.require_address(own[0])
            try:
                calls = [Call(code, header(queue), ext=(*ext, (MASTER_FIELD, "true"))) for queue in own]
                address, answers = self._ask_master(address, own[0], calls)
            except TransportError as error:
                if unreachable is None:
                    raise TransportError(
                        f"broker {broker} cannot be reached: {error.message}", broker=address
                    ) from None
                unreachable(broker, error)
                continue
            gone = [queue.topic for queue, answer in zip(own, answers, strict=True) if NO_TOPIC_FIELD in answer.ext]
            if gone and unreachable is not None:
                # Name servers show it a moment longer. Its queues are not empty: they are gone.
                unreachable(broker, TransportError(f"it does not have topic {gone[0]} any more", broker=address))
                continue
            for queue, answer in zip(own, answers, strict=True):
                if answer.code not in (ResponseCode.SUCCESS, ResponseCode.QUERY_NOT_FOUND):
                    raise error_for(answer.code, answer.remark or "", f"{broker} ({address})")
                found[queue] = value(answer)
        return found

    def _ask_master(self, address: str, queue: MessageQueue, calls: Sequence[Call]) -> tuple[str, list[Command]]:
        """Return the answers of the master of a queue's broker group, and its address.

        If that broker is gone or is not the master any more, ask the one that the route names now. Raise TransportError
        where that is none, or is not the master either.
        """
        try:
            answers = self.ask(address, calls)
        except TransportError:
            now = self._moved(address, queue)
            if now is None:
                raise
            address, answers = now, self.ask(now, calls)
        if _are_refused(answers):
            now = self._moved(address, queue)
            if now is not None:
                address, answers = now, self.ask(now, calls)
            if _are_refused(answers):
                raise TransportError("it is not the master of its group now", broker=address)
        return address, answers

    def _moved(self, address: str, queue: MessageQueue) -> str | None:
        """Return the address that a new route names for the broker of a queue; None where that is still the same."""
        try:
            self.route(queue.topic)
        except AerobeeError:
            return None
        now = self.address_of(queue)
        return None if now == address else now


def _are_refused(answers: Iterable[Command]) -> bool:
    return any(is_not_master(error_for(one.code, one.remark)) for one in answers if one.code)


def _begin(answer: Command) -> tuple[int, str | None]:
    return decode_header(GetMinOffsetResponseHeader, answer).offset, answer.ext.get(GENERATION_FIELD)


def _offset_or_none(answer: Command) -> int | None:
    if answer.code == ResponseCode.QUERY_NOT_FOUND:
        return None
    return decode_header(QueryConsumerOffsetResponseHeader, answer).offset


def _peek(group: str, queue: MessageQueue) -> PullMessageRequestHeader:
    return PullMessageRequestHeader(
        consumer_group=group, topic=queue.topic, queue_id=queue.queue_id, queue_offset=0, max_msg_nums=1, sys_flag=4,
        commit_offset=0, suspend_timeout_millis=0, subscription="*", sub_version=0, expression_type="TAG",
        bname=queue.broker_name,
    )  # fmt: skip
