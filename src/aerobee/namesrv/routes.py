"""The route table: the live brokers and the topics that they serve. It is a machine without clock, socket and log.

Times are milliseconds of a monotonic clock, which the caller passes. A broker is one `BrokerProcess`, which is
held by address (for heartbeats and expiry) and in its group (for routes). `validate` checks that both agree.

The table differs from Apache's in these points. One address stands for one broker only, so a broker that comes back
under another name or id leaves no old entry. A refused registration changes nothing. A closed connection removes every
broker that registered over it. Static-topic mappings are removed with their topics. RocketMQ: RouteInfoManager.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from aerobee.model.dataversion import DataVersion
from aerobee.model.route import MASTER_ID, BrokerData, QueueData, TopicRouteData
from aerobee.model.topic import PERM_READ, PERM_WRITE, TopicConfig
from aerobee.namesrv.config import NamesrvConfig
from aerobee.namesrv.declarations import Declarations, compare
from aerobee.namesrv.effects import (
    DEFAULT_HEARTBEAT_TIMEOUT_MS,
    BrokerJoined,
    BrokerLeft,
    CloseChannel,
    Departure,
    Effect,
    NotifyMinBrokerId,
    Registered,
    Registration,
)
from aerobee.namesrv.pickup import show_acting_masters
from aerobee.namesrv.topics import TopicQueues
from aerobee.protocol.bodies.declarations import GroupDeclaration, GroupNews, digest_of

# Bounds of registrations. Apache has none. A closed connection removes all of its topics at once.
BROKERS_MAX = 5000
BROKERS_PER_CHANNEL_MAX = 64
TOPICS_PER_CHANNEL_MAX = 30_000
FILTER_SERVERS_MAX = 64
NAME_LENGTH_MAX = 255
_SLICE = 200


@dataclass(slots=True)
class BrokerProcess:
    """One live broker process."""

    cluster: str
    broker_name: str
    broker_id: int
    addr: str
    ha_addr: str
    channel_id: int
    data_version: DataVersion
    timeout_ms: int
    last_update_ms: int
    filter_servers: tuple[str, ...]


@dataclass(slots=True)
class BrokerGroup:
    """The brokers with one name: a master and its slaves."""

    cluster: str
    members: dict[int, BrokerProcess]
    enable_acting_master: bool = False
    zone_name: str | None = None


class RouteTable:
    """The brokers and topics that brokers have registered."""

    def __init__(self, config: NamesrvConfig) -> None:
        self.config = config
        self._revision = 0
        self._groups: dict[str, BrokerGroup] = {}
        self._clusters: dict[str, set[str]] = {}
        self._live: dict[tuple[str, str], BrokerProcess] = {}
        self._topics = TopicQueues()
        # The groups that are away, which a route does not show; and those of which all topics are in the table.
        self.declared = Declarations()
        self._learned: set[str] = set()

    @property
    def revision(self) -> int:
        """Return a number that grows with every change of a route."""
        return self._revision + self._topics.revision

    @property
    def broker_count(self) -> int:
        return len(self._live)

    @property
    def topic_count(self) -> int:
        return self._topics.count

    # -- events

    def problem(self, reg: Registration) -> str:
        """Return why a registration exceeds the bounds of a connection or of the name server, or an empty text."""
        longest = max(map(len, (reg.cluster, reg.broker_name, reg.broker_addr, reg.ha_server_addr)))
        if longest > NAME_LENGTH_MAX:
            return f"a name or an address has {longest} characters: at most {NAME_LENGTH_MAX} are allowed"
        if reg.filter_servers is not None and len(reg.filter_servers) > FILTER_SERVERS_MAX:
            return f"there are {len(reg.filter_servers)} filter servers: at most {FILTER_SERVERS_MAX} are allowed"
        own = {m.broker_name for m in self._live.values() if m.channel_id == reg.channel_id} - {reg.broker_name}
        if len(own) >= BROKERS_PER_CHANNEL_MAX or len(self._live) >= BROKERS_MAX:
            return f"{len(own)} brokers of this connection and {len(self._live)} in all are registered already"
        topics = sum(map(self._topics.count_of, own)) + max(len(reg.topics), len(reg.mappings))
        if topics > TOPICS_PER_CHANNEL_MAX:
            return f"the brokers of a connection would have {topics} topics: {TOPICS_PER_CHANNEL_MAX} are allowed"
        return ""

    def register(self, reg: Registration, now_ms: int) -> Registered:
        """Add or update a broker with its topics. RocketMQ: RouteInfoManager.registerBroker."""
        registered, learning = self.enter(reg, now_ms)
        for _ in learning:
            pass
        return registered

    def enter(self, reg: Registration, now_ms: int) -> tuple[Registered, Iterator[None]]:
        """Add or update a broker now, and its topics in the slices of the returned iterator."""
        group = self._groups.get(reg.broker_name)
        held = group.members.get(reg.broker_id) if group else None
        if held is None and len(reg.topics) == 1:
            # A single topic is an update, and there is nothing to update yet.
            return Registered(accepted=False), iter(())
        effects: list[Effect] = []
        if held is not None and held.addr != reg.broker_addr and self._is_stale(reg, held):
            self._drop_other_presence(reg, effects, every=True)
            return Registered(accepted=True, effects=tuple(effects)), iter(())

        known = self._live.get((reg.cluster, reg.broker_addr))
        previous_min_id = min(group.members) if group and group.members else MASTER_ID
        self._drop_other_presence(reg, effects)
        group = self._join_group(reg)
        member = self._take_place(reg, group, known, now_ms, effects)
        changed = held is None or known is None or known.data_version != reg.data_version
        learning = self._learn_topics(reg, group, member, changed)
        if reg.broker_id < previous_min_id and self.config.notify_min_broker_id_changed:
            effects.append(_min_id_notice(group, None, member.ha_addr))
        master = group.members.get(MASTER_ID) if reg.broker_id != MASTER_ID else None
        if master is None:
            return Registered(accepted=True, effects=tuple(effects)), learning
        registered = Registered(
            accepted=True, ha_server_addr=master.ha_addr, master_addr=master.addr, effects=tuple(effects)
        )
        return registered, learning

    def unregister(self, departures: Iterable[Departure], reason: str = "unregistered") -> list[Effect]:
        """Remove brokers together, so that members are notified once. RocketMQ: unRegisterBroker."""
        effects: list[Effect] = []
        lost_their_min: dict[str, str] = {}
        for gone in departures:
            member = self._live.get((gone.cluster, gone.broker_addr))
            if member is None or member.broker_name != gone.broker_name:
                continue
            if member.broker_id == min(self._groups[gone.broker_name].members):
                lost_their_min[gone.broker_name] = gone.broker_addr
            self._remove(member, reason, effects)
        for broker_name, offline_addr in lost_their_min.items():
            group = self._groups.get(broker_name)
            if group and group.enable_acting_master and self.config.notify_min_broker_id_changed:
                effects.append(_min_id_notice(group, offline_addr, None))
        return effects

    def heartbeat(self, cluster: str, broker_addr: str, now_ms: int) -> bool:
        """Renew a broker and return whether it is known. RocketMQ: updateBrokerInfoUpdateTimestamp."""
        member = self._live.get((cluster, broker_addr))
        if member is not None:
            member.last_update_ms = now_ms
        return member is not None

    def channel_closed(self, channel_id: int) -> list[Effect]:
        """Remove the brokers that registered over this connection. RocketMQ: onChannelDestroy."""
        return self.unregister(
            _departures(m for m in self._live.values() if m.channel_id == channel_id), "connection closed"
        )

    def renew(self, now_ms: int) -> None:
        """Renew all brokers. Tests that move the clock use it."""
        for member in self._live.values():
            member.last_update_ms = now_ms

    def expire(self, now_ms: int) -> list[Effect]:
        """Remove the brokers whose heartbeat is overdue. RocketMQ: scanNotActiveBroker."""
        late = [m for m in self._live.values() if m.last_update_ms + m.timeout_ms < now_ms]
        closes: list[Effect] = [CloseChannel(m.channel_id) for m in late]
        return closes + self.unregister(_departures(late), "heartbeat overdue")

    def register_topic(self, topic: str, queues: Sequence[QueueData]) -> bool:
        """Add the queues of a topic, or none if one names an unknown broker. RocketMQ: registerTopic."""
        if not queues or any(q.broker_name not in self._groups for q in queues):
            return False
        if any(self._topics.count_of(q.broker_name) >= TOPICS_PER_CHANNEL_MAX for q in queues):
            return False
        for queue in queues:
            self._topics.put(topic, queue)
        return True

    def delete_topic(self, topic: str, cluster: str | None = None) -> None:
        """Delete a topic until a broker registers it again, in one cluster or in all. RocketMQ: deleteTopic."""
        names = self._groups.keys() if cluster is None else self._clusters.get(cluster, set())
        for broker_name in [name for name in self._topics.queues(topic) if name in names]:
            self._topics.drop(topic, broker_name)

    def wipe_write_perm(self, broker_name: str) -> int:
        """Remove the write permission until the broker registers a change. RocketMQ: operateWritePermOfBroker."""
        return self._topics.set_perm(broker_name, keep=~PERM_WRITE, add=0)

    def add_write_perm(self, broker_name: str) -> int:
        """Set read and write permission, and no other. RocketMQ: operateWritePermOfBroker."""
        return self._topics.set_perm(broker_name, keep=0, add=PERM_READ | PERM_WRITE)

    # -- questions

    def route(self, topic: str) -> TopicRouteData | None:
        """Return the route of a topic. RocketMQ: pickupTopicRouteData."""
        queues = self._topics.queues(topic)
        if not queues:
            return None
        names = sorted(queues)
        filters = {
            m.addr: m.filter_servers for name in names for m in self._groups[name].members.values() if m.filter_servers
        }
        route = TopicRouteData(
            queue_datas=tuple(queues[name] for name in names),
            broker_datas=tuple(self._broker_data(name) for name in names),
            filter_server_table=filters,
            topic_queue_mapping_by_broker=dict(self._topics.mappings(topic)) or None,
        )
        return show_acting_masters(topic, route) if self.config.support_acting_master else route

    def data_version(self, cluster: str, broker_addr: str) -> DataVersion | None:
        member = self._live.get((cluster, broker_addr))
        return member.data_version if member else None

    def members(self, broker_name: str) -> dict[int, str]:
        """Return the addresses of a group by broker id."""
        group = self._groups.get(broker_name)
        return {i: m.addr for i, m in sorted(group.members.items())} if group else {}

    def epoch_of_master(self, broker_name: str) -> int | None:
        """Return the state version that the master of a group registered with: its epoch in a group that fails over."""
        group = self._groups.get(broker_name)
        master = group.members.get(MASTER_ID) if group else None
        return master.data_version.state_version if master else None

    def brokers(self) -> dict[str, BrokerData]:
        return {name: self._broker_data(name) for name in sorted(self._groups)}

    def clusters(self) -> dict[str, tuple[str, ...]]:
        return {name: tuple(sorted(brokers)) for name, brokers in sorted(self._clusters.items())}

    def topics(self) -> list[str]:
        return self._topics.names()

    def topics_of_cluster(self, cluster: str) -> list[str]:
        found: set[str] = set()
        for broker_name in self._clusters.get(cluster, ()):
            found |= self._topics.of_broker(broker_name)
        return sorted(found)

    def unit_topics(self, *, unit: bool | None = None, unit_sub: bool | None = None) -> list[str]:
        return self._topics.by_unit(unit, unit_sub)

    # -- groups that are away

    def away(self, topic: str) -> dict[str, int]:
        """Return the groups that declared a topic and do not serve it now, with the number of their read queues.

        Groups that were forgotten on purpose have 0.
        """
        return {name: queues for name, queues in self.declared.away(topic) if not self._topics.has(topic, name)}

    def away_groups(self) -> dict[str, str]:
        """Return the groups that are away, each with its cluster. Those that were forgotten on purpose are left out."""
        known = self.declared.known()
        return {name: one.cluster for name, one in known.items() if not one.forgotten and name not in self._groups}

    def digest(self, but: str) -> str:
        """Return a text that is equal where a broker knows the same of all other groups."""
        stamps = {name: one.stamp for name, one in self.declared.known().items()}
        stamps |= {name: self._declaration(name, {}).stamp for name in self._learned}
        return digest_of((name, stamp) for name, stamp in stamps.items() if name != but)

    def compare(self, stamps: Mapping[str, str], but: str) -> Generator[None, None, GroupNews]:
        """Return what a broker does not know of other groups, in slices."""
        live: dict[str, GroupDeclaration] = {}
        for name in sorted(self._learned):
            if name not in self._learned:
                continue
            is_known = stamps.get(name) == self._declaration(name, {}).stamp
            live[name] = self._declaration(name, {} if is_known else self._readable(name))
            yield
        return compare(live, self.declared.known(), stamps, but)

    def merge(self, told: GroupDeclaration) -> bool:
        """Take what a broker tells of a group that is not there. Return whether it was news."""
        return told.broker_name not in self._groups and self.declared.merge(told)

    def _declaration(self, name: str, topics: dict[str, int]) -> GroupDeclaration:
        group = self._groups[name]
        return GroupDeclaration(name, group.cluster, group.members[min(group.members)].data_version, False, topics)

    def _readable(self, name: str) -> dict[str, int]:
        # In the order of names: the bytes of an answer must not depend on the order of a set.
        queues = {topic: self._topics.queues(topic)[name] for topic in sorted(self._topics.of_broker(name))}
        return {
            topic: one.read_queue_nums
            for topic, one in queues.items()
            if one.perm & PERM_READ and one.read_queue_nums > 0
        }

    # -- steps

    def _is_stale(self, reg: Registration, held: BrokerProcess) -> bool:
        """Return whether a later elected process has this id. RocketMQ: registerBroker compares state versions."""
        return held.cluster == reg.cluster and held.data_version.state_version > reg.data_version.state_version

    def _drop_other_presence(self, reg: Registration, effects: list[Effect], *, every: bool = False) -> None:
        """Remove other entries of the address, for instance when a slave becomes master."""
        place = (reg.cluster, reg.broker_name, reg.broker_id)
        for member in list(self._live.values()):
            if member.addr != reg.broker_addr:
                continue
            if member.cluster != reg.cluster and member.broker_name != reg.broker_name:
                continue
            if every or (member.cluster, member.broker_name, member.broker_id) != place:
                moves = not every and member.broker_name == reg.broker_name
                self._remove(member, "registered elsewhere", effects, keep_group=moves)

    def _join_group(self, reg: Registration) -> BrokerGroup:
        group = self._groups.get(reg.broker_name)
        if group is None:
            group = self._groups[reg.broker_name] = BrokerGroup(cluster=reg.cluster, members={})
        shown = (bool(reg.enable_acting_master), reg.zone_name)
        if (group.enable_acting_master, group.zone_name) != shown:
            group.enable_acting_master, group.zone_name = shown
            self._revision += 1
        return group

    def _take_place(
        self, reg: Registration, group: BrokerGroup, known: BrokerProcess | None, now_ms: int, effects: list[Effect]
    ) -> BrokerProcess:
        held = group.members.get(reg.broker_id)
        if held is not None and (held.cluster, held.addr) != (reg.cluster, reg.broker_addr):
            self._remove(held, "replaced", effects, keep_group=True)
            held = None
        filters = known.filter_servers if known and reg.filter_servers is None else reg.filter_servers or ()
        member = BrokerProcess(
            cluster=reg.cluster,
            broker_name=reg.broker_name,
            broker_id=reg.broker_id,
            addr=reg.broker_addr,
            ha_addr=reg.ha_server_addr,
            channel_id=reg.channel_id,
            data_version=reg.data_version,
            timeout_ms=DEFAULT_HEARTBEAT_TIMEOUT_MS if reg.heartbeat_timeout_ms is None else reg.heartbeat_timeout_ms,
            last_update_ms=now_ms,
            filter_servers=filters,
        )
        if held is None:
            effects.append(BrokerJoined(reg.cluster, reg.broker_name, reg.broker_id, reg.broker_addr))
        if held is None or held.filter_servers != filters:
            self._revision += 1
        group.members[reg.broker_id] = self._live[reg.cluster, reg.broker_addr] = member
        if held is None:
            self._settle_clusters(reg.broker_name)
        return member

    def _learn_topics(
        self, reg: Registration, group: BrokerGroup, member: BrokerProcess, changed: bool
    ) -> Iterator[None]:
        """Take the topics of the master, or without one of the slave with the smallest id (brokers since 5.0).

        This is done in slices. If the broker leaves or registers again between two slices, the rest is dropped.
        """
        prime_slave = (
            reg.broker_id != MASTER_ID and reg.enable_acting_master is not None and reg.broker_id == min(group.members)
        )
        if reg.broker_id != MASTER_ID and not prime_slave:
            return
        name = reg.broker_name
        self._learned.discard(name)
        if self.config.delete_topic_with_broker_registration and not reg.mappings:
            for topic in self._topics.of_broker(name) - reg.topics.keys():
                self._topics.drop(topic, name)
        read_only = prime_slave and group.enable_acting_master
        for number, (topic, topic_config) in enumerate(reg.topics.items(), 1):
            if changed or not self._topics.has(topic, name):
                self._topics.put(topic, _queue_data(name, topic_config, read_only))
            if number % _SLICE == 0:
                yield
                if self._live.get((reg.cluster, reg.broker_addr)) is not member:
                    return
        for number, (topic, mapping) in enumerate(reg.mappings.items(), 1):
            if number % _SLICE == 0:
                yield
                if self._live.get((reg.cluster, reg.broker_addr)) is not member:
                    return
            if mapping.get("bname") == name and (changed or not self._topics.has_mapping(topic, name)):
                self._topics.put_mapping(topic, name, mapping)
        # Not before: a reader must find each topic here or there.
        self.declared.came(name)
        self._learned.add(name)

    def _remove(self, member: BrokerProcess, reason: str, effects: list[Effect], *, keep_group: bool = False) -> None:
        name = member.broker_name
        group = self._groups[name]
        del self._live[member.cluster, member.addr]
        del group.members[member.broker_id]
        self._revision += 1
        effects.append(BrokerLeft(member.cluster, name, member.broker_id, member.addr, reason))
        if keep_group:
            return
        if not group.members:
            del self._groups[name]
            self._learned.discard(name)
            self.declared.left(name, member.cluster, member.data_version, self._readable(name))
            self._topics.drop_broker(name)
        elif group.enable_acting_master and MASTER_ID not in group.members:
            # The queues of an acting master can be read, but not written.
            self._topics.set_perm(name, keep=~PERM_WRITE, add=0)
        self._settle_clusters(name)

    def _settle_clusters(self, name: str) -> None:
        """Update the clusters of a broker name, which are those that its members name."""
        group = self._groups.get(name)
        clusters = {m.cluster for m in group.members.values()} if group else set()
        if group and group.cluster not in clusters:
            group.cluster = min(clusters)
        for cluster in clusters:
            self._clusters.setdefault(cluster, set()).add(name)
        for cluster in [c for c, names in self._clusters.items() if name in names and c not in clusters]:
            self._clusters[cluster].discard(name)
            if not self._clusters[cluster]:
                del self._clusters[cluster]

    def _broker_data(self, name: str) -> BrokerData:
        group = self._groups[name]
        return BrokerData(
            cluster=group.cluster,
            broker_name=name,
            broker_addrs=self.members(name),
            zone_name=group.zone_name,
            enable_acting_master=group.enable_acting_master,
        )

    def validate(self) -> None:
        """Check the invariants. Tests use it."""
        for (cluster, addr), member in self._live.items():
            assert (cluster, addr) == (member.cluster, member.addr)
            assert self._groups[member.broker_name].members[member.broker_id] is member
        for name, group in self._groups.items():
            assert group.members, f"{name} has no member"
            assert all(self._live[m.cluster, m.addr] is m for m in group.members.values())
            assert all(i == m.broker_id and m.broker_name == name for i, m in group.members.items())
            assert len({m.addr for m in group.members.values()}) == len(group.members)
            assert name in self._clusters[group.cluster]
        places = {(m.cluster, m.broker_name) for m in self._live.values()}
        assert places == {(c, name) for c, names in self._clusters.items() for name in names}
        assert all(self._clusters.values())
        assert all(broker in self._groups for _, broker in self._topics.pairs())
        assert self._learned <= self._groups.keys() and not self._learned & self.declared.known().keys()
        self._topics.validate()


def _queue_data(broker_name: str, topic: TopicConfig, read_only: bool) -> QueueData:
    return QueueData(
        broker_name=broker_name,
        read_queue_nums=topic.read_queue_nums,
        write_queue_nums=topic.write_queue_nums,
        perm=topic.perm & ~PERM_WRITE if read_only else topic.perm,
        topic_sys_flag=topic.topic_sys_flag,
    )


def _departures(members: Iterable[BrokerProcess]) -> list[Departure]:
    return [Departure(m.cluster, m.broker_name, m.addr) for m in members]


def _min_id_notice(group: BrokerGroup, offline_addr: str | None, ha_addr: str | None) -> NotifyMinBrokerId:
    """Return the notice of a new smallest id. RocketMQ: chooseBrokerAddrsToNotify."""
    min_id = min(group.members)
    others_only = offline_addr is None and len(group.members) > 1
    told = tuple(m.addr for i, m in sorted(group.members.items()) if not (others_only and i == min_id))
    return NotifyMinBrokerId(told, min_id, group.members[min_id].addr, offline_addr, ha_addr)
