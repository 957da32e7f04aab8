"""Apache's Java clients, 4.9.8 and 5.5.0, in both header codecs, on two name servers and two broker groups of ours.

One cluster serves all four; each has one JVM for its clients. Every check counts: nothing lost, every body as sent,
order kept within each queue, nothing twice (there are no faults here).
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from aerobee.testing import apache
from aerobee.testing.cluster import LocalCluster
from aerobee.testing.javachecks import Event, lost, of_kind, out_of_order, repeated, send_order_kept
from aerobee.testing.javasession import PATIENT, JavaSession

# Retries come after 10 s and 30 s of the broker's clock; the tests move it.
RETRY_DELAYS_S = (11, 31)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    reason = apache.unavailable()
    if reason:
        pytest.skip(reason)
    data = tmp_path_factory.mktemp("cluster")
    with LocalCluster(brokers=2, namesrvs=2, data=data, settings={**PATIENT, "defaultTopicQueueNums": "4"}) as started:
        yield started


def produce(java: JavaSession, topic: str, count: int, **options: object) -> list[Event]:
    return of_kind(java.run("produce", topic=topic, count=count, **options), "sent")


def check_all(sent: list[Event], taken: list[Event]) -> None:
    assert lost(sent, taken) == []
    assert repeated(taken) == []
    assert len(taken) == len(sent)


def test_every_kind_of_send_is_read_back(java: JavaSession, cluster: LocalCluster) -> None:
    topic = java.named("sends")
    cluster.create_topic(topic, 4)
    sent = produce(java, topic, 60, tags="a,b", keys="k", properties=True)
    sent += produce(java, topic, 100, from_=100, mode="async")
    sent += produce(java, topic, 60, from_=300, batch=20, keys="b")
    sent += produce(java, topic, 10, from_=500, size=20_000)  # compressed
    java.run("produce", topic=topic, count=20, from_=400, mode="oneway")
    assert all(one["status"] == "SEND_OK" for one in sent)
    assert len({(one["brokerName"], one["queueId"]) for one in sent}) == 8
    found = of_kind(java.run("pull-all", topic=topic), "message")
    oneway = [message for message in found if 400 <= message["sequence"] < 500]
    assert sorted(message["sequence"] for message in oneway) == list(range(400, 420))
    check_all(sent, [message for message in found if message not in oneway])
    assert out_of_order(found) == []
    assert send_order_kept([message for message in found if message["sequence"] < 100])
    by_place = {(one["brokerName"], one["queueId"], one["queueOffset"]): one["msgId"] for one in sent}
    hosts = {f"/{cluster.broker_address(index)}": cluster.broker_name(index) for index in (0, 1)}
    for message in found:
        place = hosts[message["storeHost"]], message["queueId"], message["queueOffset"]
        assert by_place.get(place, message["msgId"]) == message["msgId"]
    first = next(message for message in found if message["sequence"] == 1)
    assert (first["tags"], first["keys"], first["flag"]) == ("b", "k1 keven0", 1)
    assert first["properties"]["text"] == "值😀 1"
    print(f"{java.label}: {len(found)} messages read back, of them {len(oneway)} oneway, 60 in batches")


def test_a_send_makes_its_topic(java: JavaSession) -> None:
    topic = java.named("made")
    sent = produce(java, topic, 20)
    check_all(sent, of_kind(java.run("pull-all", topic=topic), "message"))


def test_tags_keys_ids_and_offsets(java: JavaSession) -> None:
    topic = java.named("lookups")
    before_ms = min(one["bornTimestamp"] for one in of_kind(java.run("pull-all", topic=java.named("sends")), "message"))
    sent = produce(java, topic, 40, tags="a,b,c", keys="k")
    tagged = of_kind(java.run("pull-all", topic=topic, tags="a || c"), "message")
    check_all([one for one in sent if one["tags"] in "ac"], tagged)
    keyed = of_kind(java.run("query", topic=topic, key="keven7"), "message")
    assert sorted(message["sequence"] for message in keyed) == [14, 15]
    for one in (sent[3]["msgId"], sent[3]["offsetMsgId"]):
        assert java.run("view", topic=topic, id=one)[0]["bodyHash"] == sent[3]["bodyHash"]
    ends = of_kind(java.run("offsets", topic=topic, time=before_ms), "offsets")
    assert sum(one["max"] for one in ends) == 40
    assert all(one["min"] == one["search"] == 0 for one in ends)
    # A group without an offset reads a queue that still has its first message from there, and one that has none yet
    # from its end.
    assert [one["consumer"] for one in ends] == [0] * len(ends)


def test_consumers_of_every_kind(java: JavaSession) -> None:
    """All at once on one topic: concurrent with tags, ordered, two that each get everything, lite pull."""
    topic = java.named("kinds")
    sent = produce(java, topic, 120, tags="a,b", shards=5)
    count = {"topic": topic, "expect": 120}
    concurrent = java.start("consume", group=java.named("concurrent"), topic=topic, tags="b", expect=60)
    ordered = java.start("consume", group=java.named("ordered"), orderly=True, fail_times=1, **count)
    shared = java.named("broadcast")
    broadcast = [java.start("consume", group=shared, broadcast=True, instance=f"i{i}", **count) for i in (1, 2)]
    lite = java.start("lite-consume", group=java.named("lite"), **count)
    check_all([one for one in sent if one["tags"] == "b"], of_kind(concurrent.wait(), "message"))
    in_order = of_kind(ordered.wait(), "message")
    check_all(sent, in_order)
    assert out_of_order(in_order) == []
    assert send_order_kept(in_order)
    assert len(ordered.events("refused")) == 120  # each came again at its place
    for one in broadcast:
        check_all(sent, of_kind(one.wait(), "message"))
    pulled = of_kind(lite.wait(), "message")
    check_all(sent, pulled)
    assert out_of_order(pulled) == []
    print(f"{java.label}: 60 by tag, 120 in order after 120 refusals, 2 x 120 broadcast, 120 by lite pull")


def test_offsets_are_kept_over_restarts_of_client_and_brokers(java: JavaSession, cluster: LocalCluster) -> None:
    topic, group = java.named("again"), java.named("again-group")
    first = produce(java, topic, 50)
    check_all(first, of_kind(java.run("consume", topic=topic, group=group, expect=50), "message"))
    for broker in (0, 1):
        cluster.restart(broker)
    second = produce(java, topic, 50, from_=50)
    taken = of_kind(java.run("consume", topic=topic, group=group, expect=50, idle_ms=20000), "message")
    check_all(second, taken)
    lite = java.named("again-lite")
    both = of_kind(java.run("lite-consume", topic=topic, group=lite, expect=100), "message")
    third = produce(java, topic, 10, from_=100)
    check_all(first + second, both)
    check_all(third, of_kind(java.run("lite-consume", topic=topic, group=lite, expect=10), "message"))


def test_a_new_group_may_start_at_the_end(java: JavaSession) -> None:
    """RocketMQ: a queue whose first message is still there and young counts as new, and is read from its beginning;
    the client alone asks for the end when the broker knows no offset and says so."""
    topic, group = java.named("last"), java.named("last-group")
    sent = produce(java, topic, 16)
    run = java.start("consume", topic=topic, group=group, from_="last", expect=16)
    check_all(sent, of_kind(run.wait(), "message"))


def test_retries_and_dead_letters(java: JavaSession, cluster: LocalCluster) -> None:
    topic, group = java.named("retried"), java.named("retrying")
    sent = produce(java, topic, 12)
    failing = java.start("consume", topic=topic, group=group, fail_times=1, expect=12)
    hopeless_group = java.named("hopeless")
    hopeless = java.start("consume", topic=topic, group=hopeless_group, fail_times=99, max_retries=2)
    failing.wait_for_events("refused", 12)
    hopeless.wait_for_events("refused", 12)
    for round_, seconds in enumerate(RETRY_DELAYS_S, start=2):
        # Refusals are sent back to the broker by the client; until they lie there, time must not pass.
        wait_for_delayed(java, cluster, {group: 12 if round_ == 2 else 0, hopeless_group: 12})
        cluster.advance(seconds=seconds)
        hopeless.wait_for_events("refused", 12 * round_)
    taken = of_kind(failing.wait(), "message")
    assert sorted(message["sequence"] for message in taken) == list(range(12))
    assert lost(sent, taken) == []
    assert all(message["reconsumeTimes"] == 1 for message in taken)
    dead = wait_for_dead_letters(java, cluster, hopeless_group, 12)
    assert lost(sent, dead) == [] and len(dead) == 12
    hopeless.stop()
    print(f"{java.label}: 12 retried once, 12 dead after {len(hopeless.events('refused'))} refusals")


def wait_for_delayed(java: JavaSession, cluster: LocalCluster, wanted: dict[str, int]) -> None:
    def waiting() -> bool:
        delayed = cluster.messages("SCHEDULE_TOPIC_XXXX")
        return all(
            sum(one.system_properties.get("REAL_TOPIC") == f"%RETRY%{group}" for one in delayed) >= count
            for group, count in wanted.items()
        )

    java.wait_until(waiting, f"send-backs of {wanted}", 30)


def wait_for_dead_letters(java: JavaSession, cluster: LocalCluster, group: str, count: int) -> list[Event]:
    java.wait_until(lambda: len(cluster.messages(f"%DLQ%{group}")) >= count, "dead letters", 30)
    return of_kind(java.run("pull-all", topic=f"%DLQ%{group}"), "message")


def test_request_and_reply(java: JavaSession, cluster: LocalCluster) -> None:
    topic = java.named("rpc")
    cluster.create_topic(topic, 2)
    replier = java.start("reply", topic=topic, group=java.named("repliers"), expect=10)
    replier.facts()
    replies = of_kind(java.run("request", topic=topic, count=10), "reply")
    assert [reply["body"] for reply in replies] == [f"answer to request-{i}" for i in range(10)]
    replier.wait()


def test_sends_and_consumers_over_the_vip_channel(java: JavaSession, cluster: LocalCluster) -> None:
    """setVipChannelEnabled(true): all but pulls and heartbeats goes to the port two below."""
    topic = java.named("vip")
    cluster.create_topic(topic, 2)
    before = [cluster.connections(broker)[1] for broker in (0, 1)]
    consumer = java.start("consume", topic=topic, group=java.named("vip-group"), vip=True, expect=80)
    lite = java.start("lite-consume", topic=topic, group=java.named("vip-lite"), vip=True, expect=80)
    consumer.facts()
    sent = produce(java, topic, 30, vip=True)
    sent += produce(java, topic, 30, from_=30, vip=True, mode="async")
    # The consumers, which ask for their offsets over it, still wait for the rest.
    java.wait_until(
        lambda: all(cluster.connections(broker)[1] > before[broker] for broker in (0, 1)), "VIP connections", 30
    )
    sent += produce(java, topic, 20, from_=60, vip=True, batch=10)
    for run in (consumer, lite):
        check_all(sent, of_kind(run.wait(), "message"))
