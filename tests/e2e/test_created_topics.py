"""A broker is killed right after it has answered: the topics and groups of the answers are there, just as they were."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from pathlib import Path
from typing import Any

import pytest

from aerobee.errors import TransportError
from aerobee.model.dialect import dumps, loads_object
from aerobee.model.group import SubscriptionGroupConfig
from aerobee.model.topic import GENERATION
from aerobee.protocol.codes import RequestCode, ResponseCode
from aerobee.protocol.command import Command
from aerobee.protocol.headers.group import GetSubscriptionGroupConfigRequestHeader
from aerobee.protocol.headers.topic import CreateTopicRequestHeader, GetTopicConfigRequestHeader
from aerobee.testing.processes import ProcessCluster
from aerobee.testing.workload import RawClient, send_header

# What is made has this many queues: more than get a message, and fewer than a broker gives by itself.
QUEUES = 4
# A loaded machine must not lead to busy answers.
PATIENT = {"brokerFastFailureEnable": "false"}


def makers(client: RawClient, turn: int) -> dict[str, Awaitable[Command]]:
    """Return requests that make topics and groups in every way, by the name of what they make."""
    made: dict[str, Awaitable[Command]] = {}
    for number in range(20):
        name = f"{turn}-{number}"
        made[f"sent-{name}"] = client.send(f"sent-{name}", 0, b"one")
        later = send_header(f"later-{name}", 1, "DELAY\x0118\x02UNIQ_KEY\x01later\x02")
        made[f"later-{name}"] = client.call(RequestCode.SEND_MESSAGE_V2, later, b"delayed")
        admin = CreateTopicRequestHeader(
            topic=f"admin-{name}", default_topic="", read_queue_nums=QUEUES, write_queue_nums=QUEUES, perm=6,
            topic_filter_type="SINGLE_TAG",
        )  # fmt: skip
        made[f"admin-{name}"] = client.call(RequestCode.UPDATE_AND_CREATE_TOPIC, admin)
        group = dumps(SubscriptionGroupConfig(f"group-{name}", retry_queue_nums=QUEUES).to_json())
        made[f"group-{name}"] = client.call(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, group)
    return made


async def acknowledged(cluster: ProcessCluster, broker: int, turn: int, answers: int) -> list[str]:
    """Kill a broker when it has given so many answers. Return what it has answered for."""
    client = RawClient(cluster.brokers[broker].address)
    done: list[str] = []

    async def ask(name: str, request: Awaitable[Command]) -> None:
        try:
            answer = await request
        except TransportError:
            return
        assert answer.code == ResponseCode.SUCCESS, answer
        done.append(name)
        if len(done) == answers:
            await cluster.kill(broker)

    await asyncio.gather(*(ask(name, request) for name, request in makers(client, turn).items()))
    await client.close()
    assert len(done) >= answers
    return done


async def config_of(client: RawClient, name: str) -> dict[Any, Any]:
    if name.startswith("group-"):
        group = GetSubscriptionGroupConfigRequestHeader(group=name)
        return loads_object((await client.ask(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, group)).body)
    topic = GetTopicConfigRequestHeader(topic=name)
    return loads_object((await client.ask(RequestCode.GET_TOPIC_CONFIG, topic)).body)


async def check(cluster: ProcessCluster, broker: int, names: list[str]) -> None:
    client = RawClient(cluster.brokers[broker].address)
    for name in names:
        config = await config_of(client, name)
        if name.startswith("group-"):
            assert config["retryQueueNums"] == QUEUES, config
        else:
            assert (config["readQueueNums"], config["writeQueueNums"], config["perm"]) == (QUEUES, QUEUES, 6), config
            assert GENERATION in config["attributes"], config
    await client.close()


# A kill follows so many answers.
@pytest.mark.parametrize(("flush", "kills"), [("ASYNC_FLUSH", (1, 5, 60)), ("SYNC_FLUSH", (20,))])
def test_what_was_answered_is_there_after_a_kill(tmp_path: Path, flush: str, kills: tuple[int, ...]) -> None:
    async def main() -> None:
        async with ProcessCluster(tmp_path, settings={**PATIENT, "flushDiskType": flush}) as cluster:
            for turn, answers in enumerate(kills):
                done = await acknowledged(cluster, 0, turn, answers)
                await cluster.restart(0)
                await check(cluster, 0, done)

    asyncio.run(main())


def test_another_replica_knows_what_its_master_has_answered_for(tmp_path: Path) -> None:
    async def main() -> None:
        settings = {**PATIENT, "brokerRole": "SYNC_MASTER", "totalReplicas": "3", "minInSyncReplicas": "2"}
        async with ProcessCluster(tmp_path, replicas=3, settings=settings) as cluster:
            for turn, answers in enumerate((1,)):
                old = await cluster.master()
                done = await acknowledged(cluster, old, turn, answers)
                while (new := await cluster.master()) == old:  # noqa: ASYNC110 - nobody tells
                    await asyncio.sleep(0.02)
                await check(cluster, new, done)
                await cluster.restart(old)
                await cluster._until_in_sync(0)

    asyncio.run(main())
