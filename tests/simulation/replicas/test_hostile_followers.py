"""Connections to the HA port that are no follower: none of them changes what is confirmed, and each is closed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest

from aerobee.replication.frames import (
    Ack,
    Begin,
    Data,
    FrameReader,
    Hello,
    Refuse,
    Welcome,
    Words,
    WordsKind,
    encode_ack,
    encode_data,
    encode_words,
)
from aerobee.replication.transfer import proof_of
from aerobee.testing.loop import VirtualLoop, run_virtual
from aerobee.testing.simulation.replicas.coordination import CoordinationServer
from aerobee.testing.simulation.replicas.judge import ReplicaJudge
from aerobee.testing.simulation.replicas.nodes import CLUSTER, GROUP, HA_PORT, SEGMENT_BYTES, Node
from aerobee.testing.simulation.world import World
from aerobee.testing.workload import eventually


class Caller(asyncio.Protocol):
    """A connection of the attacker."""

    def __init__(self) -> None:
        self.frames: list[Any] = []
        self.is_lost = False
        self._reader = FrameReader()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.frames += self._reader.feed(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_lost = True

    def words(self, kind: WordsKind) -> Words:
        return next(one for one in self.frames if isinstance(one, Words) and one.kind is kind)


class Stage:
    """A group of two replicas with a master, and a third machine that attacks."""

    def __init__(self, world: World, judge: ReplicaJudge, nodes: list[Node]) -> None:
        self.world, self.judge, self.nodes = world, judge, nodes
        self._net = world.net.host("10.0.1.66")

    @property
    def master(self) -> Node:
        return next(node for node in self.nodes if node.leading_epoch)

    async def call(self) -> Caller:
        _, caller = await self._net.connect(self.master.machine.address, HA_PORT, Caller)
        return caller

    def hello(self, **change: object) -> Hello:
        other = next(node for node in self.nodes if node is not self.master)
        assert other.replica is not None and other.store is not None
        known = Hello(
            cluster=CLUSTER,
            group=GROUP,
            id=other.replica_id,
            incarnation=other.replica.machine.incarnation,
            epoch=other.replica.machine.epoch,
            epochs=[(1, 0)],
            start=0,
            end=0,
            segment_size=SEGMENT_BYTES,
            nonce="00",
        )
        return msgspec.structs.replace(known, **change)


def attacked(attack: Callable[[Stage], Awaitable[None]]) -> None:
    """Run an attack against a group that is written to, and look whether the group keeps its promises."""

    async def main(loop: VirtualLoop) -> None:
        world = World(loop, 1)
        judge = ReplicaJudge(world.trace)
        server = CoordinationServer(world, CLUSTER, GROUP)
        server.on_change = judge.changed
        nodes = [Node(world, n, judge, server, sync_flush=True, min_in_sync=2, learner=False) for n in (1, 2)]
        judge.nodes = nodes
        for node in nodes:
            node.start()
        await eventually(lambda: len(judge.acks) > 5, timeout_s=20)
        await attack(Stage(world, judge, nodes))
        acks = len(judge.acks)
        await eventually(lambda: len(judge.acks) > acks + 5, timeout_s=20)
        assert judge.problems == []
        assert world.problems == []

    run_virtual(main)


async def _is_closed(caller: Caller, within_s: float = 1.0) -> None:
    await eventually(lambda: caller.is_lost, timeout_s=within_s)


@pytest.mark.parametrize(
    "junk",
    [
        b"\x7f" + b"\xff" * 7,
        b"AEHB" + bytes(40),
        b"AEHA",
        b"AEHA" + b"\xff" * 200,
        bytes(4096),
        encode_ack(Ack(1, 1 << 60, 1 << 60, 1)),
        b"".join(encode_data(Data(0, 1, 0, 0, b"records"))),
        encode_words(WordsKind.BEGIN, Begin(epoch=1, written=0, stored=0)),
        encode_words(WordsKind.WELCOME, Welcome(id=1, epoch=99, epochs=[], start=0, end=0, confirmed=0)),
        encode_words(WordsKind.BYE, Refuse(reason="leaving")),
    ],
)
def test_junk_changes_nothing(junk: bytes) -> None:
    async def attack(stage: Stage) -> None:
        caller = await stage.call()
        caller.transport.write(junk)
        await _is_closed(caller, within_s=12)

    attacked(attack)


@pytest.mark.parametrize(
    "change",
    [
        {"group": "other"},
        {"id": 77},
        {"incarnation": "f" * 32},
        {"epoch": 1 << 31},
        {"segment_size": 1 << 30},
        {"learner": True},
        {"start": 10, "end": 5},
    ],
)
def test_a_stranger_is_refused_in_words(change: dict[str, object]) -> None:
    async def attack(stage: Stage) -> None:
        caller = await stage.call()
        caller.transport.write(encode_words(WordsKind.HELLO, stage.hello(**change)))
        await _is_closed(caller)
        assert caller.words(WordsKind.REFUSE).read(Refuse).words

    attacked(attack)


def test_who_knows_the_id_but_not_the_secret_acknowledges_nothing() -> None:
    async def attack(stage: Stage) -> None:
        caller = await stage.call()
        hello = stage.hello()
        caller.transport.write(encode_words(WordsKind.HELLO, hello))
        await eventually(lambda: bool(caller.frames), timeout_s=1)
        welcome = caller.words(WordsKind.WELCOME).read(Welcome)
        proof = proof_of(b"guessed", "begin", hello.nonce, welcome.nonce, hello.id, hello.incarnation, welcome.epoch, 0)
        caller.transport.write(
            encode_words(WordsKind.BEGIN, Begin(epoch=welcome.epoch, written=0, stored=0, proof=proof))
            + encode_ack(Ack(welcome.epoch, 1 << 40, 1 << 40, 0))
        )
        await _is_closed(caller)
        assert not [one for one in caller.frames if isinstance(one, Data)]

    attacked(attack)


@pytest.mark.parametrize("written", [0, 1, 1 << 40])
def test_a_member_that_lies_about_its_log_is_closed(written: int) -> None:
    """It knows everything. It takes the place of the real follower for a moment, and is not believed."""

    async def attack(stage: Stage) -> None:
        caller = await stage.call()
        hello = stage.hello()
        caller.transport.write(encode_words(WordsKind.HELLO, hello))
        await eventually(lambda: bool(caller.frames), timeout_s=1)
        welcome = caller.words(WordsKind.WELCOME).read(Welcome)
        told = (hello.nonce, welcome.nonce, hello.id, hello.incarnation, welcome.epoch, written)
        begin = Begin(epoch=welcome.epoch, written=written, stored=written, proof=proof_of(b"secret", "begin", *told))
        caller.transport.write(encode_words(WordsKind.BEGIN, begin))
        caller.transport.write(encode_ack(Ack(welcome.epoch, 1 << 40, 1 << 40, 0)))
        await _is_closed(caller)

    attacked(attack)


def test_many_silent_connections_do_not_keep_a_follower_away() -> None:
    async def attack(stage: Stage) -> None:
        callers = [await stage.call() for _ in range(300)]
        await eventually(lambda: all(caller.is_lost for caller in callers), timeout_s=15)

    attacked(attack)
