"""What transcripts do not show: revisions, copies, static topics. Behaviour is in `test_transcripts.py`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from aerobee.model.dataversion import DataVersion
from aerobee.model.topic import TopicConfig
from aerobee.namesrv.config import NamesrvConfig
from aerobee.namesrv.effects import Departure, Registration
from aerobee.namesrv.routes import RouteTable


def mapping(broker_name: str, epoch: int = 1) -> dict[str, Any]:
    return {"bname": broker_name, "epoch": epoch, "topic": "S", "totalQueues": 2, "currIdMap": {0: 1}}


def registration(broker_name: str = "a", counter: int = 1) -> Registration:
    return Registration(
        cluster="c",
        broker_name=broker_name,
        broker_id=0,
        broker_addr=f"{broker_name}:1",
        ha_server_addr=f"{broker_name}:2",
        channel_id=1,
        data_version=DataVersion(counter=counter),
        topics={"S": TopicConfig("S", 1, 1), "T": TopicConfig("T", 1, 1)},
        mappings={"S": mapping(broker_name)},
    )


def mappings_of(table: RouteTable, topic: str) -> object:
    route = table.route(topic)
    return None if route is None else route.topic_queue_mapping_by_broker


def test_the_revision_grows_with_what_routes_show_and_only_then() -> None:
    table = RouteTable(NamesrvConfig())
    seen = [table.revision]

    def grew() -> bool:
        seen.append(table.revision)
        return seen[-1] > seen[-2]

    assert table.register(registration(), 0).accepted and grew()
    table.register(registration(), 5)
    table.heartbeat("c", "a:1", 6)
    table.expire(7)
    table.channel_closed(99)
    assert not grew()
    table.register(registration(counter=2), 8)
    assert not grew()
    for change in (
        replace(registration(), zone_name="z"),
        replace(registration(), enable_acting_master=True),
        replace(registration(), filter_servers=("f",)),
        replace(registration(counter=3), mappings={"S": mapping("a", epoch=2)}),
    ):
        table.register(change, 9)
        assert grew()
    table.wipe_write_perm("a")
    assert grew()
    table.wipe_write_perm("a")
    assert not grew()
    table.delete_topic("T")
    assert grew()
    table.unregister([Departure("c", "a", "a:1")])
    assert grew()


def test_what_was_answered_does_not_change_afterwards() -> None:
    table = RouteTable(NamesrvConfig())
    table.register(registration(), 0)
    route, brokers, clusters = table.route("S"), table.brokers(), table.clusters()
    assert route is not None
    shown = repr((route, brokers, clusters))
    table.register(replace(registration(), broker_id=1, broker_addr="a1:1"), 1)
    table.wipe_write_perm("a")
    table.unregister([Departure("c", "a", "a:1")])
    assert repr((route, brokers, clusters)) == shown


def test_a_static_topics_mapping_lives_as_long_as_its_queues() -> None:
    table = RouteTable(NamesrvConfig())
    table.register(registration("a"), 0)
    table.register(registration("b"), 0)
    assert mappings_of(table, "S") == {"a": mapping("a"), "b": mapping("b")}
    assert mappings_of(table, "T") is None
    table.unregister([Departure("c", "b", "b:1")])
    assert mappings_of(table, "S") == {"a": mapping("a")}
    table.delete_topic("S")
    # Its broker still has it: both come back with the next registration, though the data version is equal.
    table.register(registration("a"), 1)
    assert mappings_of(table, "S") == {"a": mapping("a")}
    table.validate()


def test_a_mapping_in_another_brokers_name_is_not_taken() -> None:
    table = RouteTable(NamesrvConfig())
    table.register(replace(registration("a"), mappings={"S": mapping("b")}), 0)
    assert mappings_of(table, "S") is None


def test_a_mapping_changes_with_the_data_version_only() -> None:
    table = RouteTable(NamesrvConfig())
    table.register(registration("a"), 0)
    newer = {"S": mapping("a", epoch=2)}
    table.register(replace(registration("a"), mappings=newer), 1)
    assert mappings_of(table, "S") == {"a": mapping("a")}
    table.register(replace(registration("a", counter=2), mappings=newer), 2)
    assert mappings_of(table, "S") == {"a": mapping("a", epoch=2)}
