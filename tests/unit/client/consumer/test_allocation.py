"""Allocation gives every queue to one client, and the same ones as Apache's strategies."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aerobee.client.consumer.allocation import (
    AVERAGELY,
    AVERAGELY_BY_CIRCLE,
    Allocation,
    ByConfig,
    ByMachineRoom,
    ConsistentHash,
    MachineRoomNearby,
    parse_allocation,
)
from aerobee.errors import InvalidArgumentError
from aerobee.model.queue import MessageQueue

GOLDEN = Path(__file__).parents[3] / "golden" / "data" / "allocations.json"


def room_of_queue(queue: MessageQueue) -> str:
    return queue.broker_name.split("@")[0]


def room_of_client(client: str) -> str:
    return client.split("@")[0]


STRATEGIES: dict[str, Allocation] = {
    "averagely": AVERAGELY,
    "averagely_by_circle": AVERAGELY_BY_CIRCLE,
    "consistent_hash": ConsistentHash(),
    "consistent_hash_3": ConsistentHash(3),
    "machine_room": ByMachineRoom(frozenset({"r1", "r3"})),
    "machine_room_nearby": MachineRoomNearby(AVERAGELY, room_of_queue, room_of_client),
    "machine_room_nearby_circle": MachineRoomNearby(AVERAGELY_BY_CIRCLE, room_of_queue, room_of_client),
    "config": ByConfig((MessageQueue("T", "broker-a", 1),)),
}


def shares(strategy: Allocation, row: dict[str, Any]) -> list[str]:
    queues = sorted(MessageQueue("T", broker, i) for broker in row["brokers"] for i in range(row["queues"]))
    return [
        " ".join(f"{queue.broker_name}:{queue.queue_id}" for queue in strategy(client, queues, row["clients"]))
        for client in row["clients"]
    ]


@pytest.mark.parametrize("name", STRATEGIES)
def test_every_strategy_shares_as_apaches_does(name: str) -> None:
    rows = json.loads(GOLDEN.read_text())
    assert len(rows) == 60
    for row in rows:
        assert shares(STRATEGIES[name], row) == row["results"][name], row


@given(
    st.sampled_from(["averagely", "averagely_by_circle", "consistent_hash", "machine_room_nearby"]),
    st.lists(st.sampled_from(["r1@a", "r1@b", "r2@c", "r4@d"]), min_size=1, max_size=4, unique=True),
    st.integers(1, 9),
    st.lists(st.sampled_from([f"r{i % 3}@host{i}" for i in range(12)]), min_size=1, max_size=9, unique=True),
)
def test_every_queue_has_exactly_one_owner(name: str, brokers: list[str], count: int, clients: list[str]) -> None:
    queues = sorted(MessageQueue("T", broker, i) for broker in brokers for i in range(count))
    given_out = [queue for client in clients for queue in STRATEGIES[name](client, queues, sorted(clients))]
    assert sorted(given_out) == queues


def test_a_room_nobody_can_name_is_refused() -> None:
    strategy = MachineRoomNearby(AVERAGELY, lambda queue: "", room_of_client)
    with pytest.raises(InvalidArgumentError, match="no machine room"):
        strategy("r1@x", [MessageQueue("T", "a", 0)], ["r1@x"])


def test_strategies_can_be_named() -> None:
    assert parse_allocation("averagely_by_circle") is AVERAGELY_BY_CIRCLE
    assert parse_allocation(AVERAGELY) is AVERAGELY
    with pytest.raises(InvalidArgumentError, match="none of averagely"):
        parse_allocation("best")
