"""Brokers register, change roles, die and come back in any order: routes equal a flat, slow oracle's."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from aerobee.model.dataversion import DataVersion
from aerobee.model.topic import TopicConfig
from aerobee.namesrv.config import NamesrvConfig
from aerobee.namesrv.effects import Departure, Registration
from aerobee.namesrv.routes import RouteTable

CLUSTERS = st.sampled_from(["c", "d"])
NAMES = st.sampled_from(["a", "b"])
IDS = st.integers(0, 2)
ADDRS = st.sampled_from(["h:1", "h:2", "h:3", "h:4"])
CHANNELS = st.integers(1, 4)
TOPICS = ("T", "U", "V")
TIMEOUTS = st.sampled_from([None, 10_000])
TOPIC_SETS = st.dictionaries(st.sampled_from(TOPICS), st.integers(1, 3), min_size=1)


@dataclass
class Presence:
    cluster: str
    name: str
    id: int
    addr: str
    version: tuple[int, int]
    channel: int
    timeout_ms: int
    last_ms: int


@dataclass
class Oracle:
    """Every rule by scanning one list. No index, no group object."""

    present: list[Presence] = field(default_factory=list)
    queues: dict[tuple[str, str], tuple[int, int]] = field(default_factory=dict)
    acting: dict[str, bool] = field(default_factory=dict)

    def leave(self, gone: Presence) -> None:
        self.present.remove(gone)
        ids = [p.id for p in self.present if p.name == gone.name]
        for key in [key for key in self.queues if key[1] == gone.name]:
            if not ids:
                del self.queues[key]
            elif self.acting[gone.name] and 0 not in ids:
                self.queues[key] = (self.queues[key][0], self.queues[key][1] & ~2)

    def register(self, new: Presence, acting: bool | None, topics: dict[str, int]) -> None:
        holders = [p for p in self.present if (p.name, p.id) == (new.name, new.id)]
        if not holders and len(topics) == 1:
            return
        same_addr = [p for p in self.present if p.addr == new.addr and (p.cluster == new.cluster or p.name == new.name)]
        for holder in holders:
            if holder.addr != new.addr and holder.cluster == new.cluster and holder.version[0] > new.version[0]:
                for presence in same_addr:
                    self.leave(presence)
                return
        known = [p.version for p in self.present if (p.cluster, p.addr) == (new.cluster, new.addr)]
        for presence in same_addr:
            if presence.name != new.name:
                self.leave(presence)
        self.present = [p for p in self.present if p not in same_addr and p not in holders] + [new]
        self.acting[new.name] = bool(acting)
        prime_slave = new.id != 0 and acting is not None and new.id == min(self.ids(new.name))
        if new.id != 0 and not prime_slave:
            return
        for topic, count in topics.items():
            if not holders or known != [new.version] or (topic, new.name) not in self.queues:
                self.queues[topic, new.name] = (count, 4 if prime_slave and acting else 6)

    def ids(self, name: str) -> list[int]:
        return [p.id for p in self.present if p.name == name]


class RoutesAgree(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.table = RouteTable(NamesrvConfig())
        self.oracle = Oracle()
        self.now_ms = 0

    @rule(
        cluster=CLUSTERS,
        name=NAMES,
        broker_id=IDS,
        addr=ADDRS,
        channel=CHANNELS,
        version=st.tuples(st.integers(0, 2), st.integers(0, 1)),
        topics=TOPIC_SETS,
        acting=st.sampled_from([None, False, True]),
        timeout_ms=TIMEOUTS,
    )
    def register(
        self,
        cluster: str,
        name: str,
        broker_id: int,
        addr: str,
        channel: int,
        version: tuple[int, int],
        topics: dict[str, int],
        acting: bool | None,
        timeout_ms: int | None,
    ) -> None:
        configs = {
            t: TopicConfig(topic_name=t, read_queue_nums=n, write_queue_nums=n, perm=6) for t, n in topics.items()
        }
        self.table.register(
            Registration(
                cluster=cluster,
                broker_name=name,
                broker_id=broker_id,
                broker_addr=addr,
                ha_server_addr="",
                channel_id=channel,
                data_version=DataVersion(state_version=version[0], timestamp=0, counter=version[1]),
                topics=configs,
                mappings={},
                heartbeat_timeout_ms=timeout_ms,
                enable_acting_master=acting,
            ),
            self.now_ms,
        )
        presence = Presence(cluster, name, broker_id, addr, version, channel, timeout_ms or 120_000, self.now_ms)
        self.oracle.register(presence, acting, topics)

    @rule(cluster=CLUSTERS, name=NAMES, addr=ADDRS)
    def unregister(self, cluster: str, name: str, addr: str) -> None:
        self.table.unregister([Departure(cluster, name, addr)])
        for presence in list(self.oracle.present):
            if (presence.cluster, presence.name, presence.addr) == (cluster, name, addr):
                self.oracle.leave(presence)

    @rule(channel=CHANNELS)
    def connection_closes(self, channel: int) -> None:
        self.table.channel_closed(channel)
        for presence in [p for p in self.oracle.present if p.channel == channel]:
            self.oracle.leave(presence)

    @rule(cluster=CLUSTERS, addr=ADDRS)
    def heartbeat(self, cluster: str, addr: str) -> None:
        known = self.table.heartbeat(cluster, addr, self.now_ms)
        found = [p for p in self.oracle.present if (p.cluster, p.addr) == (cluster, addr)]
        assert known == bool(found)
        for presence in found:
            presence.last_ms = self.now_ms

    @rule(step_ms=st.sampled_from([1, 5_000, 10_000, 60_000, 120_001]))
    def time_passes(self, step_ms: int) -> None:
        self.now_ms += step_ms
        self.table.expire(self.now_ms)
        for presence in [p for p in self.oracle.present if p.last_ms + p.timeout_ms < self.now_ms]:
            self.oracle.leave(presence)

    @rule(topic=st.sampled_from(TOPICS))
    def delete_topic(self, topic: str) -> None:
        self.table.delete_topic(topic)
        for key in [key for key in self.oracle.queues if key[0] == topic]:
            del self.oracle.queues[key]

    @rule(name=NAMES)
    def wipe(self, name: str) -> None:
        topics = [key for key in self.oracle.queues if key[1] == name]
        assert self.table.wipe_write_perm(name) == len(topics)
        for key in topics:
            self.oracle.queues[key] = (self.oracle.queues[key][0], self.oracle.queues[key][1] & ~2)

    @invariant()
    def sound(self) -> None:
        self.table.validate()

    @invariant()
    def same_routes(self) -> None:
        for topic in TOPICS:
            route = self.table.route(topic)
            expected = {b: q for (t, b), q in self.oracle.queues.items() if t == topic}
            if route is None:
                assert not expected
                continue
            assert {q.broker_name: (q.read_queue_nums, q.perm) for q in route.queue_datas} == expected
            for broker in route.broker_datas:
                members = {p.id: p.addr for p in self.oracle.present if p.name == broker.broker_name}
                assert dict(broker.broker_addrs) == members
        clusters: dict[str, set[str]] = {}
        for presence in self.oracle.present:
            clusters.setdefault(presence.cluster, set()).add(presence.name)
        assert {c: set(names) for c, names in self.table.clusters().items()} == clusters


TestRoutesAgree = RoutesAgree.TestCase
TestRoutesAgree.settings = settings(max_examples=150, stateful_step_count=30, deadline=None)
