"""Scripts of what a route table is told and what it answers: `transcripts/*.txt`.

A script is blocks of `command`, a line `----`, the expected lines, and an empty line. Words of a command are
`key=value`; topics are `name:queues[:perm[:flag]]` joined by commas.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from aerobee.config.setting import parse, replace_values, settings_of
from aerobee.model.dataversion import DataVersion
from aerobee.model.route import QueueData
from aerobee.model.topic import TopicConfig
from aerobee.namesrv.config import NamesrvConfig
from aerobee.namesrv.effects import (
    BrokerJoined,
    BrokerLeft,
    CloseChannel,
    Departure,
    Effect,
    NotifyMinBrokerId,
    Registration,
)
from aerobee.namesrv.pickup import only_zone
from aerobee.namesrv.routes import RouteTable

SCRIPTS = sorted((Path(__file__).parent / "transcripts").glob("*.txt"))


def blocks(text: str) -> Iterator[tuple[int, list[str], list[str]]]:
    line_number = 0
    for block in text.split("\n\n"):
        lines = [line for line in block.split("\n") if line and not line.startswith("#")]
        if lines:
            cut = lines.index("----")
            yield line_number + 1, lines[:cut], lines[cut + 1 :]
        line_number += block.count("\n") + 2


class Player:
    """Turns words into events on one table, and what comes back into words."""

    def __init__(self) -> None:
        self.table = RouteTable(NamesrvConfig())
        self.now_ms = 0

    def play(self, command: str) -> list[str]:
        verb, *words = command.split()
        args = dict(word.split("=", 1) for word in words if "=" in word)
        names = [word for word in words if "=" not in word]
        lines = getattr(self, f"do_{verb}")(*names, **args)
        self.table.validate()
        return list(lines)

    def do_at(self, now: str) -> list[str]:
        self.now_ms = int(now)
        return []

    def do_config(self, **args: str) -> list[str]:
        declared = {one.java: one for one in settings_of(NamesrvConfig)}
        values = {declared[key].name: parse(declared[key], text) for key, text in args.items()}
        self.table.config = replace_values(self.table.config, values)
        return []

    def do_register(self, name: str, addr: str, **args: str) -> Iterator[str]:
        cluster, _, broker = name.rpartition("/")
        topics = [topic_config(word) for word in args.get("topics", "A:1,B:1").split(",")]
        state, _, counter = args.get("version", "0.1").partition(".")
        registration = Registration(
            cluster=cluster or "c",
            broker_name=broker,
            broker_id=int(args.get("id", "0")),
            broker_addr=addr,
            ha_server_addr=args.get("ha", f"{addr}-ha"),
            channel_id=int(args.get("channel", "1")),
            data_version=DataVersion(state_version=int(state), timestamp=0, counter=int(counter)),
            topics={topic.topic_name: topic for topic in topics},
            mappings={},
            heartbeat_timeout_ms=int(args["timeout"]) if "timeout" in args else None,
            enable_acting_master={"true": True, "false": False, "old": None}[args.get("acting", "false")],
            zone_name=args.get("zone"),
            filter_servers=tuple(filter(None, args["filters"].split(","))) if "filters" in args else None,
        )
        result = self.table.register(registration, self.now_ms)
        yield from map(show, result.effects)
        if not result.accepted:
            yield "refused"
        elif result.master_addr:
            yield f"master {result.master_addr} ha {result.ha_server_addr}"
        else:
            yield "ok"

    def do_unregister(self, *names: str) -> list[str]:
        departures = []
        for word in names:
            name, addr = word.split("@")
            cluster, _, broker = name.rpartition("/")
            departures.append(Departure(cluster or "c", broker, addr))
        return list(map(show, self.table.unregister(departures)))

    def do_heartbeat(self, addr: str, cluster: str = "c") -> list[str]:
        return ["known" if self.table.heartbeat(cluster, addr, self.now_ms) else "unknown"]

    def do_close(self, channel: str) -> list[str]:
        return list(map(show, self.table.channel_closed(int(channel))))

    def do_expire(self) -> list[str]:
        return list(map(show, self.table.expire(self.now_ms)))

    def do_route(self, topic: str, zone: str = "") -> Iterator[str]:
        route = self.table.route(topic)
        if route is None:
            yield "none"
            return
        if zone:
            route = only_zone(route, zone)
        for queue in route.queue_datas:
            counts = f"r{queue.read_queue_nums} w{queue.write_queue_nums}"
            yield f"queue {queue.broker_name} {counts} perm{queue.perm}"
        for broker in route.broker_datas:
            addrs = " ".join(f"{i}={addr}" for i, addr in broker.broker_addrs.items())
            yield f"broker {broker.cluster}/{broker.broker_name} {addrs}"
        for addr, servers in route.filter_server_table.items():
            yield f"filter {addr} {','.join(servers)}"

    def do_topics(self, cluster: str | None = None) -> list[str]:
        return [" ".join(self.table.topics() if cluster is None else self.table.topics_of_cluster(cluster)) or "none"]

    def do_units(self, **args: str) -> list[str]:
        return [" ".join(self.table.unit_topics(**{k: v == "true" for k, v in args.items()})) or "none"]

    def do_clusters(self) -> list[str]:
        return [f"{name}: {' '.join(brokers)}" for name, brokers in self.table.clusters().items()] or ["none"]

    def do_wipe(self, broker: str) -> list[str]:
        return [str(self.table.wipe_write_perm(broker))]

    def do_add(self, broker: str) -> list[str]:
        return [str(self.table.add_write_perm(broker))]

    def do_delete(self, topic: str, cluster: str | None = None) -> list[str]:
        self.table.delete_topic(topic, cluster)
        return []

    def do_topic(self, topic: str, *brokers: str) -> list[str]:
        queues = [QueueData(b, read_queue_nums=1, write_queue_nums=1, perm=6, topic_sys_flag=0) for b in brokers]
        return ["ok" if self.table.register_topic(topic, queues) else "ignored"]


def topic_config(word: str) -> TopicConfig:
    name, *numbers = word.split(":")
    queues, perm, flag = (*map(int, numbers), *(1, 6, 0)[len(numbers) :])
    return TopicConfig(topic_name=name, read_queue_nums=queues, write_queue_nums=queues, perm=perm, topic_sys_flag=flag)


def show(effect: Effect) -> str:
    match effect:
        case BrokerJoined():
            return f"joined {effect.cluster}/{effect.broker_name}:{effect.broker_id} {effect.broker_addr}"
        case BrokerLeft():
            place = f"{effect.cluster}/{effect.broker_name}:{effect.broker_id}"
            return f"left {place} {effect.broker_addr} ({effect.reason})"
        case CloseChannel():
            return f"close {effect.channel_id}"
        case NotifyMinBrokerId():
            return (
                f"notify {','.join(effect.addresses)} min {effect.min_broker_id}={effect.min_broker_addr} "
                f"offline {effect.offline_broker_addr} ha {effect.ha_broker_addr}"
            )


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_transcript(path: Path) -> None:
    player = Player()
    played = 0
    for line_number, commands, expected in blocks(path.read_text()):
        actual: list[str] = []
        for command in commands:
            actual += player.play(command)
        assert actual == expected, f"{path.name}, block at line {line_number}: {commands}"
        played += 1
    assert played >= 3


def test_there_are_transcripts() -> None:
    assert len(SCRIPTS) >= 8
