"""What a name server remembers of broker groups that are away, and how it and the brokers tell each other."""

from __future__ import annotations

from dataclasses import replace

from aerobee.model.dataversion import DataVersion
from aerobee.model.topic import TopicConfig
from aerobee.namesrv import declarations
from aerobee.namesrv.config import NamesrvConfig
from aerobee.namesrv.declarations import Declarations, compare
from aerobee.namesrv.effects import Departure, Registration
from aerobee.namesrv.routes import RouteTable
from aerobee.protocol.bodies.declarations import GroupDeclaration


def registration(name: str, *topics: str, version: int = 1) -> Registration:
    return Registration(
        cluster="c", broker_name=name, broker_id=0, broker_addr=f"{name}:1", ha_server_addr="", channel_id=1,
        data_version=DataVersion(version, version), topics={one: TopicConfig(one, 3, 3) for one in (*topics, "TBW102")},
        mappings={},
    )  # fmt: skip


def declaration(name: str, time: int, *topics: str, forgotten: bool = False) -> GroupDeclaration:
    return GroupDeclaration(name, "c", DataVersion(time, time), forgotten, dict.fromkeys(topics, 3))


def test_a_group_that_left_is_told_until_all_its_topics_are_back() -> None:
    table = RouteTable(NamesrvConfig())
    names = [f"t{number}" for number in range(450)]
    table.register(registration("a", "T"), 0)
    table.register(registration("b", "T", *names), 0)
    assert table.away("T") == {}
    table.unregister([Departure("c", "b", "b:1")])
    assert table.away("T") == {"b": 3} and table.away("t7") == {"b": 3} and table.away("other") == {}
    # Topics are learned in slices. In between, each is in the route or away.
    _, learning = table.enter(registration("b", "T", *names), 1)
    for _ in learning:
        assert {name for name in names if table.away(name)} ^ {name for name in names if table.route(name)} == {*names}
    assert not table.declared.known() and table.away("t7") == {}
    # If it leaves in the middle, nothing is forgotten.
    table.unregister([Departure("c", "b", "b:1")])
    _, learning = table.enter(registration("b", "T", *names), 1)
    next(learning)
    table.unregister([Departure("c", "b", "b:1")])
    assert all(table.away(name) == {"b": 3} for name in names)
    table.validate()


def test_a_topic_without_readers_is_not_waited_for() -> None:
    table = RouteTable(NamesrvConfig())
    mute = replace(registration("b", "T"), topics={"T": TopicConfig("T", 3, 3, perm=2), "U": TopicConfig("U", 0, 3)})
    table.register(mute, 0)
    table.unregister([Departure("c", "b", "b:1")])
    assert table.away("T") == table.away("U") == {}


def test_what_is_newer_wins_and_what_is_there_is_right() -> None:
    live = {"a": declaration("a", 5, "T")}
    away = {"b": declaration("b", 5, "T"), "f": declaration("f", 5, forgotten=True)}
    known = {one.broker_name: one.stamp for one in (declaration("a", 9), declaration("b", 4), declaration("f", 5))}
    found = compare(live, away, known, "x")
    assert [one.broker_name for one in found.news] == ["b", "f", "a"] and found.wanted == ()
    newer = {"b": declaration("b", 6).stamp, "f": declaration("f", 6).stamp, "g": declaration("g", 1).stamp}
    assert compare(live, away, newer | {"a": live["a"].stamp}, "x") == replace(found, news=(), wanted=("b", "f", "g"))
    # A broker is not told of itself, and stamps without sense are not believed.
    assert [one.broker_name for one in compare(live, away, {"b": "9" * 5000, "q": "x", "f": ""}, "a").news] == [
        "b",
        "f",
    ]
    assert compare(live, away, {"b": "-1.0.0.0", "q": "1.2.3"}, "a").wanted == ()


def test_a_merge_takes_the_newer_and_forgetting_counts_on_a_tie() -> None:
    table = RouteTable(NamesrvConfig())
    assert table.merge(declaration("b", 5, "T")) and not table.merge(declaration("b", 4, "U"))
    assert table.away("T") == {"b": 3} and table.away("U") == {}
    assert table.merge(declaration("b", 5, forgotten=True)) and table.away("T") == {"b": 0}
    assert not table.merge(declaration("b", 5, "T")) and table.merge(declaration("b", 6, "T"))
    table.register(registration("b", "T"), 0)
    assert not table.merge(declaration("b", 99, "T")) and table.away("T") == {}
    assert not table.declared.forget("b")


def test_a_group_that_was_forgotten_came_back_and_left_is_missed_again() -> None:
    table = RouteTable(NamesrvConfig())
    table.register(registration("b", "T", version=5), 0)
    table.unregister([Departure("c", "b", "b:1")])
    table.declared.forget("b")
    mark = table.declared.known()["b"]
    assert mark.forgotten
    table.register(registration("b", "T", version=5), 1)
    table.unregister([Departure("c", "b", "b:1")])
    # Broker a has slept meanwhile: it tells the mark that it knows.
    assert not table.merge(mark) and table.away("T") == {"b": 3}
    (news,) = compare({}, table.declared.known(), {"b": mark.stamp}, "a").news
    assert not news.forgotten and news.topics["T"] == 3, "so it learns better"
    assert not table.merge(mark)
    other = RouteTable(NamesrvConfig())
    assert other.merge(mark) and other.merge(news) and other.away("T") == {"b": 3}, "other name servers too"
    # Forgetting it again is newer than all of that.
    assert table.declared.forget("b") and table.away("T") == {"b": 0}
    assert other.merge(table.declared.known()["b"]) and other.away("T") == {"b": 0}


def test_the_digest_is_equal_where_both_know_the_same() -> None:
    table = RouteTable(NamesrvConfig())
    table.register(registration("a", "T"), 0)
    table.register(registration("b", "T"), 0)
    before = table.digest("a")
    table.unregister([Departure("c", "b", "b:1")])
    assert table.digest("a") == before, "what a broker keeps of b is the same whether b is away or not"
    table.declared.forget("b")
    assert table.digest("a") != before


def test_memory_is_bounded() -> None:
    declared = Declarations()
    for number in range(declarations.GROUPS_MAX + 10):
        declared.left(f"g{number}", "c", DataVersion(), {"T": 1})
    assert len(declared.known()) == declarations.GROUPS_MAX and "g0" not in declared.known()
    assert not declared.merge(declaration("told", 1, "T")), "what was seen is not pushed out by what is told"
    many = {f"t{number}": 1 for number in range(declarations.TOPICS_MAX)}
    declared.left("large", "c", DataVersion(), many)
    assert list(declared.known()) == ["large"]
