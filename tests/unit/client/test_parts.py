"""The client's machines and values: routes, faults, ids, names, signatures, traces."""

from __future__ import annotations

from aerobee import selectors
from aerobee.client.core.namespace import with_namespace, without_namespace
from aerobee.client.core.routes import RouteCache
from aerobee.client.producer.brokerfaults import FaultTable
from aerobee.client.producer.trace import encode_sub_after, encode_sub_before
from aerobee.model.message import Message
from aerobee.model.queue import MessageQueue
from aerobee.model.route import BrokerData, QueueData, TopicRoute, TopicRouteData
from aerobee.model.uniqueids import UniqueIds
from aerobee.testing.entropy import SeededEntropy

A = BrokerData("C", "a", {0: "1:1", 1: "1:2"})
B = BrokerData("C", "b", {1: "2:2"})


def test_a_group_without_master_and_a_queue_without_permission_are_not_written_to() -> None:
    data = TopicRouteData((QueueData("b", 1, 1, 6), QueueData("a", 2, 1, 6), QueueData("c", 1, 1, 4)), (A, B))
    route = TopicRoute.of("t", data)
    assert route.write_queues == (MessageQueue("t", "a", 0),)
    assert [q.broker_name for q in route.read_queues] == ["a", "a", "b", "c"]
    ordered = TopicRoute.of("t", TopicRouteData((), (A,), "a:2;b:1;junk"))
    assert [(q.broker_name, q.queue_id) for q in ordered.write_queues] == [("a", 0), ("a", 1), ("b", 0)]


def test_addresses_fall_back_as_apaches_client_does_and_offline_brokers_go() -> None:
    table = RouteCache()
    assert table.put("t", TopicRouteData((), (A, B))) is not None
    assert table.put("t", TopicRouteData((), (A, B))) is None
    assert table.master("a") == "1:1" and table.master("b") is None
    assert table.address("a", 1) == "1:2" and table.address("b") == "2:2"
    assert table.address("x") is None
    assert sorted(table.addresses()) == ["1:1", "1:2", "2:2"]
    moved = BrokerData("C", "a", {0: "9:9"})
    assert table.put("t", TopicRouteData((), (moved,))) is not None
    assert table.masters() == ["9:9"] and table.master("b") is None


def test_a_slow_or_failed_broker_is_avoided_for_the_time_of_its_band() -> None:
    faults = FaultTable()
    faults.succeeded("a", 549, 0)
    assert faults.is_available("a", 0)
    faults.succeeded("a", 550, 0)
    assert not faults.is_available("a", 1_999) and faults.is_available("a", 2_000)
    faults.failed("b", 0)
    assert not faults.is_available("b", 9_999) and faults.is_available("b", 10_000)
    assert not faults.is_reachable("b")
    faults.succeeded("b", 1, 10_000)
    assert faults.is_reachable("b")


def test_unique_ids_have_apaches_parts_and_follow_the_month() -> None:
    ids = UniqueIds(
        "10.1.2.3", 70_000, b"\x01\x02\x03\x04", lambda now: (1_000, 10_000) if now < 10_000 else (10_000, 99_000)
    )
    first, second = ids.next(5_000), ids.next(5_000)
    ip, pid, loader_hash, month_ms = "0A010203", 70_000 & 0xFFFF, "01020304", 4_000
    assert first.startswith(f"{ip}{pid:04X}{loader_hash}{month_ms:08X}") and first != second
    assert ids.next(10_500)[20:28] == f"{500:08X}"
    assert ids.next(9_999)[20:28] == f"{0:08X}"
    assert len(UniqueIds("::1", 1, bytes(4), lambda now: (0, 10)).next(1)) == 56


def test_namespaces_wrap_once_and_leave_system_names_alone() -> None:
    assert with_namespace("ns", "t") == "ns%t" == with_namespace("ns", "ns%t")
    assert with_namespace("ns", "%RETRY%g") == "%RETRY%ns%g" and without_namespace("ns", "%RETRY%ns%g") == "%RETRY%g"
    assert with_namespace("ns", "RMQ_SYS_TRACE_TOPIC") == "RMQ_SYS_TRACE_TOPIC"
    assert without_namespace("ns", "other%t") == "other%t" and with_namespace("", "t") == "t"
    assert without_namespace("ns", "ns%t") == "t"


def test_selectors_choose_as_they_say() -> None:
    queues = [MessageQueue("t", name, i) for name in ("r1@a", "r2@b") for i in range(2)]
    message = Message("t", b"")
    near = selectors.MachineRoom(["r2"])
    assert [near(queues, message).broker_name for _ in range(3)] == ["r2@b"] * 3
    assert selectors.MachineRoom(["none"])(queues, message) == queues[0]
    chosen = {selectors.Random(SeededEntropy(seed))(queues, message) for seed in range(50)}
    assert chosen == set(queues)
    # "polygenelubricants".hashCode() is Integer.MIN_VALUE, the one whose absolute value Java cannot hold.
    assert selectors.by_hash("polygenelubricants")(queues, message) == queues[(1 << 31) % 4]


def test_consumer_traces_are_apaches_records() -> None:
    before = encode_sub_before("g", "r1", "DefaultRegion", [("m1", 2, "k1 k2"), ("m2", 0, "")], 5)
    assert before.text == (
        "SubBefore\x015\x01DefaultRegion\x01g\x01r1\x01m1\x012\x01k1 k2\x02"
        "SubBefore\x015\x01DefaultRegion\x01g\x01r1\x01m2\x010\x01null\x02"
    )
    assert before.keys == ("m1", "k1", "k2", "m2")
    after = encode_sub_after("g", "r1", [("m1", "k")], cost_ms=3, success=True, context_code=0, now_ms=9)
    assert after.text == "SubAfter\x01r1\x01m1\x013\x01true\x01k\x010\x019\x01g\x02"
