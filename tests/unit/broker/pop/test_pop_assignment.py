"""Server-side assignment for groups that pop, and groups that change their mode."""

from __future__ import annotations

import json

from aerobee.broker.config import BrokerConfig, RequestMode
from aerobee.model.numbers import parse_int
from aerobee.protocol.bodies.groups import QueryAssignmentRequestBody, SetMessageRequestModeRequestBody
from aerobee.protocol.bodies.heartbeat import ConsumerData, HeartbeatData
from aerobee.protocol.codes import RequestCode
from aerobee.protocol.command import Command, request
from aerobee.testing.brokerkit import BrokerKit, KitClient, run_broker
from aerobee.testing.popkit import with_topic


async def set_mode(kit: BrokerKit, mode: str, share: int = 0, topic: str = "T") -> Command:
    body = SetMessageRequestModeRequestBody(topic, "G", mode, share).encode()
    return await kit.connect().call(request(RequestCode.SET_MESSAGE_REQUEST_MODE, body=body, opaque=2))


async def assigned(client: KitClient, name: str) -> list[tuple[int, str]]:
    body = QueryAssignmentRequestBody("T", "G", name, "AVG", "CLUSTERING").encode()
    answer = await client.call(request(RequestCode.QUERY_ASSIGNMENT, body=body, opaque=3))
    found = json.loads(answer.body)["messageQueueAssignments"]
    return sorted((parse_int(str(one["messageQueue"]["queueId"])), one["mode"]) for one in found)


async def members(kit: BrokerKit, count: int) -> dict[str, KitClient]:
    found = {}
    for number in range(count):
        client = found[f"c{number}"] = kit.connect()
        group = ConsumerData("G", "CONSUME_PASSIVELY", "CLUSTERING", None, ())
        beat = HeartbeatData(f"c{number}", (), (group,)).encode()
        assert (await client.call(request(RequestCode.HEART_BEAT, body=beat, opaque=4))).code == 0
    return found


def test_assignment() -> None:
    """Mode POP: any queue; with popShareQueueNum 1, three members and four queues: the shares of two members."""

    async def main(kit: BrokerKit) -> None:
        with_topic(kit, 4)
        clients = await members(kit, 3)
        assert [await assigned(one, name) for name, one in clients.items()] == [
            [(0, "PULL"), (1, "PULL")], [(2, "PULL")], [(3, "PULL")],
        ]  # fmt: skip
        assert (await set_mode(kit, "POP")).code == 0
        assert [await assigned(one, name) for name, one in clients.items()] == [[(-1, "POP")]] * 3
        assert (await set_mode(kit, "POP", 1)).code == 0
        assert await assigned(clients["c0"], "c0") == [(0, "POP"), (1, "POP"), (2, "POP")]
        assert await assigned(clients["c2"], "c2") == [(0, "POP"), (1, "POP"), (3, "POP")]
        assert (await set_mode(kit, "PULL")).code == 0
        assert await assigned(clients["c1"], "c1") == [(2, "PULL")]

    run_broker(main)


def test_assignment_is_refused_as_by_apache() -> None:
    async def main(kit: BrokerKit) -> None:
        with_topic(kit)
        assert (await set_mode(kit, "POP", topic="%RETRY%G")).code == 16
        assert (await set_mode(kit, "POP", topic="unknown")).code == 17
        assert (await set_mode(kit, "PUSH")).code == 1

    run_broker(main)


def test_the_default_mode_is_a_setting() -> None:
    async def main(kit: BrokerKit) -> None:
        with_topic(kit, 2)
        clients = await members(kit, 1)
        assert await assigned(clients["c0"], "c0") == [(-1, "POP")]

    config = BrokerConfig(
        broker_name="broker-a", default_message_request_mode=RequestMode.POP, default_pop_share_queue_num=-1
    )
    run_broker(main, config=config)
