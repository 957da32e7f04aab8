"""QUERY_ASSIGNMENT and SET_MESSAGE_REQUEST_MODE: the broker shares a topic's queues among a group's members.

A group consumes each topic by pulling queues of its own, or by POP. RocketMQ: QueryAssignmentProcessor,
AllocateMessageQueueAveragely, AllocateMessageQueueAveragelyByCircle.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from aerobee.broker.answers import answer_later, encoded, refuse_later, when_confirmed
from aerobee.broker.config import BrokerConfig
from aerobee.broker.membership.clients import Clients
from aerobee.broker.membership.members import BROADCASTING, CLUSTERING
from aerobee.broker.topics import Catalog, not_there
from aerobee.model.names import is_retry_topic
from aerobee.model.queue import MessageQueue
from aerobee.net.channel import Channel
from aerobee.net.server import Handler
from aerobee.protocol.bodies.groups import (
    MessageQueueAssignment,
    QueryAssignmentRequestBody,
    QueryAssignmentResponseBody,
    SetMessageRequestModeRequestBody,
)
from aerobee.protocol.codes import RequestCode, ResponseCode
from aerobee.protocol.command import Command, response
from aerobee.runtime.seams import Clock
from aerobee.store.metadata.plain import MessageRequestModeTable

# Every readable queue of a topic in the cluster, None where nobody has the topic; may be told later.
PULL = "PULL"
POP = "POP"
ANY_QUEUE = -1
Told = Callable[[Sequence[MessageQueue] | None], None]
Routes = Callable[[str, Told], None]


class AssignmentHandlers:
    """The requests of server-side balancing. `routes` asks the name servers; `own_queues` is for a single broker."""

    def __init__(
        self,
        catalog: Catalog,
        clients: Clients,
        modes: MessageRequestModeTable,
        routes: Routes,
        clock: Clock,
        config: Callable[[], BrokerConfig],
    ) -> None:
        self._catalog = catalog
        self._clients = clients
        self._modes = modes
        self._routes = routes
        self._clock = clock
        self._config = config

    def handlers(self) -> dict[int, Handler]:
        return {
            RequestCode.QUERY_ASSIGNMENT: self.query,
            RequestCode.SET_MESSAGE_REQUEST_MODE: self.set_mode,
        }

    def query(self, channel: Channel, command: Command) -> None:
        asked = QueryAssignmentRequestBody.decode(command.body)

        def told(queues: Sequence[MessageQueue] | None) -> None:
            mode, share = self._mode(asked.topic, asked.consumer_group)
            given = None if queues is None else self._share(asked, queues, share if mode == POP else None)
            if given is None:
                # Without a list the client keeps what it has.
                answer = response(command, body=b"{}")
            else:
                body = QueryAssignmentResponseBody(tuple(MessageQueueAssignment(one, mode) for one in given))
                channel.work(command, encoded(command, body))
                return
            answer_later(channel, answer, command)

        self._routes(asked.topic, told)

    def _mode(self, topic: str, group: str) -> tuple[str, int]:
        """Return how a group consumes a topic, and among how many members more a queue is shared."""
        saved = (self._modes.get(topic) or {}).get(group)
        if isinstance(saved, dict):
            share = saved.get("popShareQueueNum")
            return str(saved.get("mode") or PULL), share if isinstance(share, int) else 0
        if is_retry_topic(topic):
            return PULL, 0
        config = self._config()
        return config.default_message_request_mode.value, config.default_pop_share_queue_num

    def _share(
        self, asked: QueryAssignmentRequestBody, queues: Sequence[MessageQueue], share: int | None
    ) -> Sequence[MessageQueue] | None:
        """Return the queues of a member, None where it is to keep what it has. `share` counts for POP only."""
        if asked.message_model == BROADCASTING:
            return queues
        strategy = STRATEGIES.get(asked.strategy_name or "")
        members = self._clients.consumer_ids(asked.consumer_group)
        if asked.message_model != CLUSTERING or strategy is None or not members or not queues:
            return None
        # Sorted by tuples: comparing queues themselves is slow.
        ordered = sorted(queues, key=lambda one: (one.topic, one.broker_name, one.queue_id))
        if share is not None:
            return for_pop(strategy, asked.client_id, ordered, sorted(members), share)
        return strategy(asked.client_id, ordered, sorted(members))

    def set_mode(self, channel: Channel, command: Command) -> Command | None:
        body = SetMessageRequestModeRequestBody.decode(command.body)
        if is_retry_topic(body.topic):
            remark = "retry topic is not allowed to set mode"
            return response(command, ResponseCode.NO_PERMISSION, remark=remark)
        if self._catalog.find(body.topic) is None:
            remark = f"topic[{body.topic}] not exist"
            return response(command, ResponseCode.TOPIC_NOT_EXIST, remark=remark)
        if self._catalog.group(body.consumer_group) is None:
            refusal = not_there(body.consumer_group)
            return response(command, refusal.code, remark=refusal.remark)
        if body.mode not in (PULL, POP):
            remark = f"there is no message request mode {body.mode}: there are PULL and POP"
            return response(command, ResponseCode.SYSTEM_ERROR, remark=remark)
        groups = {**(self._modes.get(body.topic) or {}), body.consumer_group: body.to_json()}
        self._modes.put(body.topic, groups, self._clock.now_ms())

        def saved(error: Exception | None) -> None:
            if error is None:
                confirmed = when_confirmed(self._catalog, channel, command, response(command))
                if isinstance(confirmed, Command):
                    answer_later(channel, confirmed, command)
            else:
                refuse_later(channel, command, ResponseCode.SYSTEM_ERROR, f"not saved: {error}")

        self._modes.submit(saved)
        return None


def own_queues(catalog: Catalog, broker_name: str) -> Routes:
    """Return the routes of a broker that is the only one: its own table."""

    def routes(topic: str, told: Told) -> None:
        config = catalog.find(topic)
        if config is None:
            told(None)
        else:
            told([MessageQueue(topic, broker_name, queue_id) for queue_id in range(config.read_queue_nums)])

    return routes


def averagely(client_id: str, queues: Sequence[MessageQueue], members: Sequence[str]) -> list[MessageQueue]:
    """Give neighbouring queues to each member; the first members take what is left over."""
    if client_id not in members:
        return []
    index = members.index(client_id)
    share, left = divmod(len(queues), len(members))
    first = index * share + min(index, left)
    return list(queues[first : first + share + (index < left)])


def by_circle(client_id: str, queues: Sequence[MessageQueue], members: Sequence[str]) -> list[MessageQueue]:
    """Deal queues out one by one."""
    return list(queues[members.index(client_id) :: len(members)]) if client_id in members else []


def for_pop(
    strategy: Callable[[str, Sequence[MessageQueue], Sequence[str]], list[MessageQueue]],
    client_id: str,
    queues: Sequence[MessageQueue],
    members: Sequence[str],
    share: int,
) -> list[MessageQueue]:
    """Return what a member pops: any queue of each broker, or its own share and those of the next `share` members.

    RocketMQ: QueryAssignmentProcessor.allocate4Pop.
    """
    if share <= 0 or share >= len(members) - 1:
        brokers = dict.fromkeys(one.broker_name for one in queues)
        return [MessageQueue(queues[0].topic, broker, ANY_QUEUE) for broker in brokers]
    if client_id not in members:
        return []
    index = members.index(client_id)
    if len(members) <= len(queues):
        found = strategy(client_id, queues, members)
        for step in range(1, share + 1):
            found = [*found, *strategy(members[(index + step) % len(members)], queues, members)]
        return found
    return [queues[index % len(queues)]]


STRATEGIES = {"AVG": averagely, "AVG_BY_CIRCLE": by_circle}
