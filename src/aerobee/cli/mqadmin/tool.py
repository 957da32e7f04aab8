"""What all of mqadmin's sub-commands use: the connection, the routes, and text on standard output."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass

from aerobee.admin.connection import AdminConnection
from aerobee.cli.mqadmin.options import Opt, Options
from aerobee.cli.mqadmin.printed import in_map_order
from aerobee.errors import AerobeeError, BrokerError, InvalidArgumentError
from aerobee.errors.codes import TopicNotExistError, error_for
from aerobee.model.names import retry_topic
from aerobee.model.route import BrokerData, TopicRouteData
from aerobee.protocol.bodies.cluster import ClusterInfo
from aerobee.protocol.bodies.groups import ConsumerConnection
from aerobee.protocol.bodies.topics import TopicList
from aerobee.protocol.codes import RequestCode, ResponseCode
from aerobee.protocol.headers.group import GetConsumerConnectionListRequestHeader

UNKNOWN_CLUSTER = "Make sure the specified clusterName exists or the name server connected to is correct."


class Tool:
    """The state of one sub-command: its options, its connection, and whether something failed."""

    def __init__(self, admin: AdminConnection, given: Options) -> None:
        self.admin = admin
        self.given = given
        # Whether a part failed although the command went on, as Apache's does.
        self.failed = False

    # -- text

    def say(self, text: str) -> None:
        """Print text as it is, without a line feed."""
        sys.stdout.write(text)

    def line(self, text: str = "") -> None:
        sys.stdout.write(text + "\n")

    def fail(self, text: str) -> None:
        """Print text that tells of a failure on standard output, where Apache prints it too."""
        self.say(text)
        self.failed = True

    def went_wrong(self, error: AerobeeError) -> None:
        """Tell of an error after which the command goes on."""
        sys.stderr.write(f"error: {error.message}\n")
        self.failed = True

    # -- brokers

    async def cluster_info(self) -> ClusterInfo:
        return await self.admin.cluster_info()

    async def masters_of(self, cluster: str) -> list[str]:
        """Return the masters' addresses of a cluster. RocketMQ: CommandUtil.fetchMasterAddrByClusterName."""
        found = [data.master for data in await self._brokers_of(cluster)]
        return in_map_order([address for address in found if address is not None])

    async def members_of(self, cluster: str) -> list[str]:
        """Return all addresses of a cluster. RocketMQ: CommandUtil.fetchMasterAndSlaveAddrByClusterName."""
        return in_map_order([one for data in await self._brokers_of(cluster) for one in data.broker_addrs.values()])

    async def groups_of(self, cluster: str) -> dict[str | None, list[str]]:
        """Return the slaves of each master. RocketMQ: CommandUtil.fetchMasterAndSlaveDistinguish."""
        found: dict[str | None, list[str]] = {}
        for data in await self._brokers_of(cluster):
            slaves = found.setdefault(data.master, [])
            slaves += [address for number, address in sorted(data.broker_addrs.items()) if number]
        names = in_map_order([name or "NO_MASTER" for name in found])
        return {(None if name == "NO_MASTER" else name): found[None if name == "NO_MASTER" else name] for name in names}

    async def _brokers_of(self, cluster: str) -> list[BrokerData]:
        info = await self.cluster_info()
        if cluster not in info.cluster_addr_table:
            self.fail(f"[error] {UNKNOWN_CLUSTER}")
            return []
        names = in_map_order(info.cluster_addr_table[cluster])
        return [info.broker_addr_table[name] for name in names if name in info.broker_addr_table]

    async def broker_names_of(self, cluster: str) -> list[str]:
        """Return the names of the broker groups of a cluster. Raise InvalidArgumentError for an unknown cluster."""
        names = (await self.cluster_info()).cluster_addr_table.get(cluster)
        if not names:
            raise InvalidArgumentError(UNKNOWN_CLUSTER)
        return in_map_order(names)

    async def broker_name_at(self, address: str) -> str:
        for name, data in (await self.cluster_info()).broker_addr_table.items():
            if address in data.broker_addrs.values():
                return name
        raise InvalidArgumentError(UNKNOWN_CLUSTER)

    # -- topics and groups

    async def topics(self) -> list[str]:
        """Return all topics of the name server, as Apache's tool lists them."""
        body = (await self.admin.ask_namesrv(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)).body
        return in_map_order(TopicList.decode(body).topic_list)

    async def route(self, topic: str) -> TopicRouteData:
        found = await self.admin.route(topic)
        if found is None:
            raise TopicNotExistError(
                f"No topic route info in name server for the topic: {topic}", code=ResponseCode.TOPIC_NOT_EXIST
            )
        return found

    async def addresses(self, topic: str) -> list[str]:
        """Return one address of each broker group of a topic: its master, or a slave."""
        found = [data.address() for data in (await self.route(topic)).broker_datas]
        return [address for address in found if address is not None]

    async def connection(self, group: str, address: str | None = None) -> ConsumerConnection:
        """Return the members of a group. Raise a BrokerError where none is connected."""
        if address is None:
            address = (await self.addresses(retry_topic(group)))[0]
        header = GetConsumerConnectionListRequestHeader(consumer_group=group)
        body = (await self.admin.ask(address, RequestCode.GET_CONSUMER_CONNECTION_LIST, header)).body
        found = ConsumerConnection.decode(body)
        if not found.connection_set:
            raise error_for(ResponseCode.CONSUMER_NOT_ONLINE, "Not found the consumer group connection", address)
        return found


Run = Callable[[Tool], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class SubCommand:
    """One sub-command: Apache's words for it, its options, and what does it here."""

    name: str
    description: str
    options: tuple[Opt, ...]
    run: Run


def sub_command(name: str, description: str, *options: Opt) -> Callable[[Run], SubCommand]:
    """Make a sub-command of a function."""

    def decorate(run: Run) -> SubCommand:
        return SubCommand(name, description, options, run)

    return decorate


def opts(*rows: str) -> tuple[Opt, ...]:
    """Return options from rows of `short long meaning`. `!` before the short name marks a required option.

    `/` before it marks a member of the group of which exactly one must be given, `|` one of a second such group, and
    `+` an option without a value.
    """
    found = []
    for row in rows:
        head, long, meaning = row.split(" ", 2)
        short = head.lstrip("!/+|")
        found.append(
            Opt(
                "" if short == "-" else short,
                long,
                meaning,
                required="!" in head,
                takes_value="+" not in head,
                one_of="place" if "/" in head else "what" if "|" in head else "",
            )
        )
    return tuple(found)


def commands_of(*commands: SubCommand) -> Mapping[str, SubCommand]:
    return {one.name: one for one in commands}


def code_of(error: AerobeeError) -> int | None:
    return error.code if isinstance(error, BrokerError) else None


def row(format_text: str, *values: object) -> str:
    """Return a row of a table: Java's format and Python's agree in %s, %d and widths."""
    return format_text % values


def cut(text: str, size: int) -> str:
    """Return the first `size` characters. RocketMQ: UtilAll.frontStringAtLeast."""
    return text[:size]


def joined(rows: Sequence[str]) -> str:
    return "\n".join(rows)
