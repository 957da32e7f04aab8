"""Auto-created topics on every broker group of `aerobee up --brokers`.

A send creates its topic only on the broker that receives the send. A client that looks the topic up before it has sent
to the other brokers would use that one broker alone. `up --brokers` promises that topics spread, so the broker that
creates a topic creates it on the other groups, too. Topics that an administrator creates are left as they are.
"""

from __future__ import annotations

from aerobee.app.broker import BrokerNode
from aerobee.broker.assembly import Broker
from aerobee.errors import AerobeeError
from aerobee.model.dialect import loads_object
from aerobee.model.topic import TopicConfig
from aerobee.protocol.bodies.cluster import ClusterInfo
from aerobee.protocol.codes import RequestCode
from aerobee.protocol.command import request
from aerobee.protocol.headers.topic import CreateTopicRequestHeader
from aerobee.runtime.tasks import Tasks
from aerobee.telemetry.stdlog import get_log

_log = get_log("spread")
_MASTER = 0


class TopicSpread:
    """Creates the auto-created topics of one broker on the other groups of its cluster."""

    def __init__(self, node: BrokerNode, tasks: Tasks) -> None:
        self._node = node
        self._tasks = tasks
        self._follow(node.broker)
        node.on_rebuilt = self._follow

    def _follow(self, broker: Broker) -> None:
        broker.state.catalog.on_topic_made = self.made

    def made(self, config: TopicConfig) -> None:
        self._tasks.start(self._tell(config), name=f"spread {config.topic_name}")

    async def _tell(self, config: TopicConfig) -> None:
        header = CreateTopicRequestHeader(
            topic=config.topic_name,
            default_topic="TBW102",
            read_queue_nums=config.read_queue_nums,
            write_queue_nums=config.write_queue_nums,
            perm=config.perm,
            topic_filter_type=config.topic_filter_type,
            topic_sys_flag=config.topic_sys_flag,
            order=config.order,
        )
        client = self._node.client
        for address in await self._others():
            command = request(RequestCode.UPDATE_AND_CREATE_TOPIC, header, opaque=client.next_opaque())
            try:
                await client.ask(address, command)
            except AerobeeError as error:
                _log.warning(
                    "could not create the topic on another broker",
                    topic=config.topic_name,
                    broker=address,
                    reason=str(error),
                )

    async def _others(self) -> list[str]:
        """Return the masters of the other groups, as told by the first name server that answers."""
        node = self._node
        for namesrv in node.registrar.namesrvs:
            command = request(RequestCode.GET_BROKER_CLUSTER_INFO, opaque=node.client.next_opaque())
            try:
                answer = await node.client.ask(namesrv, command)
            except AerobeeError:
                continue
            info = ClusterInfo.from_json(loads_object(answer.body))
            names = info.cluster_addr_table.get(node.config.cluster_name, ())
            groups = (info.broker_addr_table[name] for name in names if name != node.state.name)
            return [one.broker_addrs[_MASTER] for one in groups if _MASTER in one.broker_addrs]
        return []
