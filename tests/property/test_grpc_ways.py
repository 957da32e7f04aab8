"""Sends and acknowledgements of 5.x clients by the short way and by the long way, before brokers in every state: the
answers are the same, and so is what the brokers store and count.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from aerobee.broker.config import BrokerConfig
from aerobee.model.topic import PERM_READ, PERM_WRITE, TopicConfig
from aerobee.protocol.v2 import calls, enums
from aerobee.protocol.v2.fields import encode
from aerobee.protocol.v2.values import (
    PbBroker,
    PbDuration,
    PbMessage,
    PbMessageQueue,
    PbResource,
    PbSystemProperties,
    PbTimestamp,
)
from aerobee.telemetry.config import MetricsConfig, MetricsExporter
from aerobee.testing.brokerkit import BrokerKit, run_broker
from aerobee.testing.frontkit import FrontKit, FrontPeer
from aerobee.testing.grpckit import consumer_settings, topic_named
from aerobee.testing.storekit import small_config

# What one state of a broker is: its settings, what is done to it at the beginning, and before each call.
State = tuple[dict[str, Any], Callable[[BrokerKit], None], Callable[[BrokerKit, int], None]]
BOTH = PERM_READ | PERM_WRITE
# The ways end a wait for the broker at times that differ by a part of a second.
WAITS = "a replica without quorum"
KINDS = ("NORMAL", "FIFO", "DELAY", "TRANSACTION", "MIXED", "PRIORITY")
CALLS = 200
ANSWERS: dict[str, type] = {
    "SendMessage": calls.PbSendMessageResponse, "AckMessage": calls.PbAckMessageResponse,
    "ReceiveMessage": calls.PbReceiveMessageResponse,
}  # fmt: skip
BORN = (None, *(PbTimestamp(1_690_000_000, 5_000_000),) * 5, PbTimestamp(-5), PbTimestamp(1 << 60))


def with_topics(perm: int = BOTH, queues: int = 3) -> Callable[[BrokerKit], None]:
    def begin(kit: BrokerKit) -> None:
        kit.state.catalog.put_topic(TopicConfig("T", queues, queues, perm))
        for kind in KINDS:
            kit.state.catalog.put_topic(TopicConfig(kind, queues, queues, perm, attributes={"message.type": kind}))

    return begin


def nothing(kit: BrokerKit, number: int) -> None:
    """Leave the broker as it is."""


def changes(kit: BrokerKit, number: int) -> None:
    """Change rights, numbers of queues and types, delete a topic and make it again."""
    catalog = kit.state.catalog
    if number % 20 == 5:
        catalog.put_topic(TopicConfig("T", 2, 5, BOTH))
    elif number % 20 == 9:
        catalog.put_topic(TopicConfig("T", 3, 3, PERM_READ))
    elif number % 20 == 13:
        catalog.delete_topic("T")
    elif number % 20 == 17:
        catalog.put_topic(TopicConfig("T", 3, 3, BOTH, attributes={"message.type": "FIFO"}))
    elif number % 20 == 0:
        catalog.put_topic(TopicConfig("T", 3, 3, BOTH))


def quorum_comes_and_goes(kit: BrokerKit, number: int) -> None:
    kit.store.set_confirm_limit(1 << 40 if number // 10 % 2 else kit.store.log_end)


def config(**settings: Any) -> dict[str, Any]:
    return {"config": BrokerConfig(broker_name="broker-a", **settings)}


STATES: dict[str, State] = {
    "in order": ({}, with_topics(), nothing),
    "topics to read": ({}, with_topics(PERM_READ), nothing),
    "topics to write": ({}, with_topics(PERM_WRITE), nothing),
    "topics of no use": ({}, with_topics(0), nothing),
    "no topics": ({}, lambda kit: None, nothing),
    "a broker to read": (config(broker_permission=PERM_READ), with_topics(), nothing),
    "a small limit": ({"store_config": small_config(segment=1 << 20, max_message_size=200)}, with_topics(), nothing),
    "a quota": (config(quotas="topic:T messages=3; address:10.0.0.9 messages=20"), with_topics(), nothing),
    "changes": ({}, with_topics(), changes),
    "a follower": ({"authority": lambda: False, "following": True}, lambda kit: None, nothing),
    WAITS: (
        {"authority": lambda: True, "confirm_limit": 1 << 40}, with_topics(), quorum_comes_and_goes
    ),
    "metrics": ({"metrics": MetricsConfig(exporter_type=MetricsExporter.PROM)}, with_topics(), nothing),
}  # fmt: skip


def a_message(pick: random.Random, number: int) -> PbMessage:
    def perhaps(chance: float, *texts: str) -> str | None:
        return pick.choice(texts) if pick.random() < chance else None

    system = PbSystemProperties(
        tag=perhaps(0.5, *("TagA", "TagB") * 5, "a|b", " ", "ü"),
        keys=[f"key-{number}"] * pick.choice((0, 1, 2)),
        message_id=pick.choice((f"id-{number}",) * 30 + ("",)),
        body_encoding=pick.choice((0, enums.IDENTITY, enums.GZIP)),
        message_type=pick.choice((0, enums.NORMAL) * 8 + (enums.FIFO, enums.TRANSACTION)),
        born_timestamp=pick.choice(BORN),
        born_host=perhaps(0.5, *("host",) * 9, "h\x01") or "",
        message_group=perhaps(0.1, "g1", "g2", "x" * 64),
        trace_context=perhaps(0.1, "00-trace"),
    )
    if pick.random() < 0.05:
        system.delivery_timestamp = pick.choice((PbTimestamp(1_700_000_060), PbTimestamp(-(1 << 62)), PbTimestamp(5)))
    if pick.random() < 0.05:
        system.priority = pick.choice((0, 3, -1, 1 << 30))
    if pick.random() < 0.05:
        system.orphaned_transaction_recovery_duration = PbDuration(pick.choice((-(1 << 62), -5, 30)))
    user = {pick.choice(("n", "name", "UNIQ_KEY", "__AEROBEE_PID", "ü")): pick.choice(("v", "", "ü", "\x02"))}
    topic = pick.choice(("T",) * 12 + (*KINDS, "none", "rmq_sys_x"))
    body = pick.choice((b"x" * 20,) * 9 + (b"y" * 300, b""))
    return PbMessage(PbResource(pick.choice(("", "ns")), topic), user if pick.random() < 0.2 else {}, system, body)


class _Run:
    """A number of random calls by one way, and what became of them."""

    def __init__(self, seed: int, each: Callable[[BrokerKit, int], None], *, is_short: bool, sends_only: bool) -> None:
        self.pick = random.Random(seed)
        self.each = each
        self.is_short = is_short
        self.sends_only = sends_only
        # What was told, and the header blocks.
        self.answers: list[tuple[str, bytes]] = []
        self.log = b""
        self.metrics = ""
        # How many calls took the short way.
        self.short = 0
        self.handles: list[tuple[str, str]] = []

    def counted(self, take: Callable[..., bool]) -> Callable[..., bool]:
        def taken(*arguments: Any) -> bool:
            done = take(*arguments)
            self.short += done
            return done

        return taken

    async def main(self, kit: BrokerKit) -> None:
        front = FrontKit(kit, is_short=self.is_short)
        ways = front.service.short_methods
        for path in list(ways):
            ways[path] = self.counted(ways[path])
        peers = [front.connect(f"client-{number}@1", 50_000 + number) for number in range(2)]
        for peer in peers:
            stream = peer.begin(
                calls.PbTelemetryCommand(settings=consumer_settings("G", ["T"])), name="Telemetry", ends=False
            )
            await kit.pass_time(1.0)
            peer.receive()
            assert stream.data or stream.has_ended
        for number in range(CALLS):
            self.each(kit, number)
            pick = self.pick
            await self.one(pick, 0.0 if self.sends_only else pick.random(), number, peers[pick.randrange(2)])
            if pick.random() < 0.05:
                await kit.pass_time(pick.choice((0.5, 3.0)))
        self.log = kit.store.read_log(kit.store.log_start, kit.store.log_end - kit.store.log_start)
        if kit.broker.metrics is not None:
            self.metrics = "\n".join(kit.broker.metrics.page())
        await front.close()

    async def one(self, pick: random.Random, what: float, number: int, peer: FrontPeer) -> None:
        if what < 0.6:
            request: object = calls.PbSendMessageRequest([a_message(pick, number)])
            await self.made(peer, "SendMessage", encode(request))
        elif what < 0.64 or not self.handles:
            topic = pick.choice(("T", "T", "FIFO"))
            place = PbMessageQueue(topic_named(topic), -1, enums.READ, PbBroker("broker-a", 0, None), [])
            request = calls.PbReceiveMessageRequest(
                group=topic_named("G"), message_queue=place, batch_size=pick.choice((1, 4)),
                invisible_duration=PbDuration(10), long_polling_timeout=PbDuration(5), auto_renew=pick.random() < 0.5,
            )  # fmt: skip
            call = await self.made(peer, "ReceiveMessage", encode(request))
            for one in call.messages(calls.PbReceiveMessageResponse):
                if one.message is not None and one.message.system_properties is not None:
                    self.handles.append((topic, one.message.system_properties.receipt_handle or ""))
        else:
            topic, handle = pick.choice(self.handles)
            if pick.random() < 0.3:
                words = handle.split(" ")
                words[pick.randrange(len(words))] = pick.choice(("0", "1", "-1", "99", "x", "", "broker-b", "1" * 18))
                handle = " ".join(words)
            group = pick.choice(("G", "G", "G", "other", "CID_RMQ_SYS_x"))
            ack = calls.PbAckMessageRequest(
                topic_named(group), topic_named(topic), [calls.PbAckMessageEntry(f"id-{number}", handle)]
            )
            await self.made(peer, "AckMessage", encode(ack))

    async def made(self, peer: FrontPeer, name: str, message: bytes) -> Any:
        call = await peer.ended(peer.begin_bytes(name, message))
        # Both ways have words of their own for a broker that does not answer.
        told = re.sub(r"no answer (in time|within [0-9]+ s)", "no answer", repr(call.messages(ANSWERS[name])))
        self.answers.append((told, call.blocks))
        return call


def ran(name: str, seed: int, *, is_short: bool) -> _Run:
    settings, begin, each = STATES[name]
    run = _Run(seed, each, is_short=is_short, sends_only=name == WAITS)

    async def main(kit: BrokerKit) -> None:
        begin(kit)
        await run.main(kit)

    work: Callable[[BrokerKit], Coroutine[None, None, None]] = main
    run_broker(work, **settings)
    return run


def without_times(page: str) -> str:
    """Return a page of metrics without what depends on the wall clock of this machine."""
    return "\n".join(line for line in page.splitlines() if not re.search(r"latency|cpu|memory|seconds", line))


@pytest.mark.parametrize("name", STATES)
@pytest.mark.parametrize("seed", range(3))
def test_both_ways_are_the_same(name: str, seed: int) -> None:
    short, long = (ran(name, seed, is_short=is_short) for is_short in (True, False))
    for at, (one, other) in enumerate(zip(short.answers, long.answers, strict=True)):
        assert one == other, f"call {at}"
    if name != WAITS:
        assert short.log == long.log
    assert without_times(short.metrics) == without_times(long.metrics)
    assert long.short == 0
    if name in ("in order", "a quota", "changes", "metrics"):
        assert short.short > CALLS // 8, short.short
