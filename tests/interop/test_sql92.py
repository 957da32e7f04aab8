"""SQL92 filters asked for by Apache's Java clients of our broker: push (filter by heartbeat) and lite pull (carried by
each pull), on messages of which some lack the property that is asked for."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from aerobee import Producer
from aerobee.testing import apache
from aerobee.testing.cluster import LocalCluster
from aerobee.testing.javasession import PATIENT, JavaSession

COUNT = 60
EXPRESSION = "(price BETWEEN 10 AND 19 OR city IN ('oslo', 'rome')) AND NOT (vip IS NULL)"


def properties_of(number: int) -> dict[str, str]:
    """Every third has no price, every fourth no city, every fifth is not marked."""
    properties = {"n": str(number)}
    if number % 3:
        properties["price"] = str(number % 30)
    if number % 4:
        properties["city"] = ("rome", "paris", "oslo")[number % 3]
    if number % 5:
        properties["vip"] = "yes"
    return properties


def wanted(number: int) -> bool:
    """What EXPRESSION says in Python's words: unknown is no match."""
    properties = properties_of(number)
    in_range = 10 <= int(properties.get("price", -1)) <= 19
    return (in_range or properties.get("city") in ("oslo", "rome")) and "vip" in properties


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cluster")


@pytest.fixture(scope="module")
def cluster(store: Path) -> Iterator[LocalCluster]:
    reason = apache.unavailable()
    if reason:
        pytest.skip(reason)
    with LocalCluster(data=store, settings={**PATIENT, "enablePropertyFilter": "true"}) as started:
        yield started


def send(cluster: LocalCluster, topic: str, numbers: range) -> None:
    async def main() -> None:
        async with Producer(cluster.namesrv) as producer:
            for number in numbers:
                await producer.send(topic, b"%d" % number, properties=properties_of(number))

    asyncio.run(main())


def numbers_of(events: list[dict[str, object]]) -> list[int]:
    return sorted(int(event["properties"]["n"]) for event in events)  # type: ignore[index]


@pytest.mark.parametrize("command", ["consume", "lite-consume"])
def test_what_matches_comes_and_nothing_else(java: JavaSession, cluster: LocalCluster, command: str) -> None:
    topic = java.named(f"sql-{command}")
    cluster.create_topic(topic, queues=2)
    send(cluster, topic, range(COUNT))
    run = java.start(command, topic=topic, group=java.named(f"g-{command}"), sql=EXPRESSION)
    run.facts()
    first = [number for number in range(COUNT) if wanted(number)]
    run.wait_for_events("message", len(first), 60)
    # Now the pulls are held: what does not match leaves them so, what matches wakes them.
    send(cluster, topic, range(COUNT, 2 * COUNT))
    expected = [number for number in range(2 * COUNT) if wanted(number)]
    run.wait_for_events("message", len(expected), 60)
    events = [event for event in run.stop() if event["event"] == "message"]
    assert numbers_of(events) == expected
    print(f"{java.label} {command}: {len(expected)} of {2 * COUNT} messages match, exactly those came")


def test_a_failing_consumer_gets_its_retries_unfiltered(java: JavaSession, cluster: LocalCluster) -> None:
    topic = java.named("sql-retries")
    cluster.create_topic(topic, queues=1)
    send(cluster, topic, range(20))
    expected = [number for number in range(20) if wanted(number)]
    run = java.start("consume", topic=topic, group=java.named("g-retries"), sql=EXPRESSION, fail_times=1)
    run.wait_for_events("refused", len(expected), 60)
    cluster.advance(seconds=11)
    run.wait_for_events("message", len(expected), 60)
    assert numbers_of(run.events("message")) == expected
    run.stop()


def test_a_wrong_expression_is_refused_when_subscribing(java: JavaSession, cluster: LocalCluster) -> None:
    topic = java.named("sql-wrong")
    cluster.create_topic(topic, queues=1)
    with pytest.raises(apache.ApacheError) as refused:
        java.run("consume", topic=topic, group=java.named("g-wrong"), sql="price >> 5", limit_ms=5000)
    assert "a property, a value or a bracket is wanted at character 8" in str(refused.value)


def test_the_filters_are_kept_as_apache_keeps_them(cluster: LocalCluster, java: JavaSession, store: Path) -> None:
    topic, group = java.named("sql-consume"), java.named("g-consume")
    cluster.restart(0)
    saved = json.loads((store / "broker-a" / "config" / "consumerFilter.json").read_text())
    data = saved["filterDataByTopic"][topic]["groupFilterData"][group]
    assert (data["expression"], data["expressionType"], data["dead"]) == (EXPRESSION, "SQL92", True)
