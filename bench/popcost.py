"""Instructions of a message popped, and of one acknowledged with its pop (docs/decisions/0005).

    .venv/bin/python bench/popcost.py [pop|batch]

Frames go into a broker's connections in this process, so that the numbers hold no client, no kernel and no chance. Two
runs of different lengths are subtracted: what starts and ends the process falls out, and what stores the messages and
makes the frames, because both runs do that alike.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile

from aerobee.protocol.bodies.pop import BatchAck, BatchAckMessageRequestBody, bits_of
from aerobee.protocol.codes import RequestCode
from aerobee.protocol.command import Command, encode_command, request
from aerobee.protocol.headers.pop import PopMessageRequestHeader
from aerobee.testing.callgrind import instructions

KINDS = ("pop", "batch")
QUEUES, BATCH = 4, 32
# Pops that are made, or acknowledged.
SHORT, LONG = 40, 240
# Requests that are read in one turn of the loop.
TOGETHER = 4


def _pop(queue_id: int) -> bytes:
    header = PopMessageRequestHeader(
        consumer_group="G", topic="T", queue_id=queue_id, max_msg_nums=BATCH, invisible_time=600_000, poll_time=0,
        born_time=1_763_200_000_000, init_mode=0, exp_type="TAG", exp="*",
    )  # fmt: skip
    return encode_command(request(RequestCode.POP_MESSAGE, header, opaque=1))


def _batch(head: dict[str, str], queue_id: int, start: int) -> bytes:
    one = BatchAck(
        "G", "T", "0", start, queue_id, int(head["reviveQid"]), int(head["popTime"]), int(head["invisibleTime"]),
        bits_of(start, range(start, start + BATCH)),
    )  # fmt: skip
    body = BatchAckMessageRequestBody("broker-a", (one,)).encode()
    return encode_command(request(RequestCode.BATCH_ACK_MESSAGE, body=body, opaque=1))


def _work(kind: str, pops: int) -> None:
    from aerobee.broker.config import BrokerConfig
    from aerobee.model.group import SubscriptionGroupConfig
    from aerobee.model.topic import TopicConfig
    from aerobee.runtime.clock import SystemClock
    from aerobee.runtime.disk import RealDisk
    from aerobee.store.config import StoreConfig
    from aerobee.testing.brokerkit import BrokerKit
    from aerobee.testing.storekit import draft

    async def main() -> None:
        with tempfile.TemporaryDirectory() as root:
            loop = asyncio.get_running_loop()
            disk = RealDisk(lambda done: void(loop.call_soon_threadsafe(done)))
            config = StoreConfig(mapped_file_size_commit_log=64 << 20, max_hash_slot_num=10_000, max_index_num=40_000)
            # Nothing is ticked here, so the loop would seem to be late.
            never_busy = BrokerConfig(broker_name="broker-a", broker_fast_failure_enable=False)
            kit = BrokerKit(disk, SystemClock(), never_busy, config, root=root)
            kit.state.catalog.put_topic(TopicConfig("T", QUEUES, QUEUES))
            kit.state.catalog.put_group(SubscriptionGroupConfig("G"))
            for queue_id in range(QUEUES):
                for _ in range(LONG // QUEUES):
                    kit.store.append([draft(b"x" * 128, b"T", queue_id) for _ in range(BATCH)])
            client = kit.connect()
            heads: list[Command] = []
            frames = [_pop(queue_id) for queue_id in range(QUEUES)]
            for number in range(pops if kind == "pop" else LONG):
                client.channel.data_received(frames[number % QUEUES])
                if number % TOGETHER == TOGETHER - 1:
                    await asyncio.sleep(0)
                    await asyncio.sleep(0)
                    heads += await client.answers() if kind != "pop" else []
            if kind != "pop":
                made = [
                    _batch(head.ext, number % QUEUES, number // QUEUES * BATCH) for number, head in enumerate(heads)
                ]
                for number in range(pops):
                    client.channel.data_received(made[number])
                    if number % TOGETHER == TOGETHER - 1:
                        await asyncio.sleep(0)
                        await asyncio.sleep(0)
            held = pops * BATCH if kind == "pop" else (LONG - pops) * BATCH
            assert kit.broker.pop.table.in_flight == held, f"{kit.broker.pop.table.in_flight} are held, not {held}"

    asyncio.run(main())


def void(result: object) -> None:
    """Drop a result that nobody needs."""


def cost(kind: str) -> float:
    """Return the instructions of one message."""
    return (instructions(__file__, kind, LONG) - instructions(__file__, kind, SHORT)) / (LONG - SHORT) / BATCH


def main(arguments: list[str]) -> int:
    if len(arguments) == 2:
        _work(arguments[0], int(arguments[1]))
        return 0
    for kind in arguments or KINDS:
        print(f"{kind}: {cost(kind):.0f} instructions a message", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
