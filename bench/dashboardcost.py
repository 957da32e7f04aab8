"""Instructions that an open dashboard costs a broker, as a share of those of its messages, by callgrind.

    .venv/bin/python bench/dashboardcost.py [lists|tail]

A dashboard adds nothing to the path of a message: it asks. So the cost of its questions in a time is counted, and the
cost of the sends of that time. `lists` is what the collector asks in a step, for 20 topics and 20 groups, beside 5,000
sends a second that come together. `tail` is what a live tail of four queues asks in a second, beside the 1,000 sends
that it follows, each alone.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile

from aerobee.dashboard.collector import STEP_S
from aerobee.dashboard.pages.tail import PULL, TURN_S
from aerobee.protocol.codes import RequestCode, ResponseCode
from aerobee.protocol.command import Command, encode_command
from aerobee.protocol.command import request as numbered
from aerobee.protocol.headers.base import Header
from aerobee.protocol.headers.group import GetConsumerConnectionListRequestHeader, GetConsumeStatsRequestHeader
from aerobee.protocol.headers.offset import GetMaxOffsetRequestHeader, UpdateConsumerOffsetRequestHeader
from aerobee.protocol.headers.pull import PullMessageRequestHeader
from aerobee.protocol.headers.topic import GetTopicStatsInfoRequestHeader
from aerobee.testing.callgrind import instructions

TOPICS = GROUPS = 20
QUEUES = 4
TOGETHER = 16
RATE, TAILED_RATE = 5_000, 1_000
# The most that a dashboard may cost: of the lists, and of a tail.
MOST = {"lists": 0.01, "tail": 0.02}
KINDS = tuple(MOST)
# A long and a short run of each kind: what starts and ends the process falls out of the difference.
_COUNTS = {"alone": (1600, 400), "together": (1600, 400), "lists": (12, 4), "tail": (40, 10)}


def request(code: int, header: Header | None = None) -> Command:
    return numbered(code, header, opaque=7)


def _lists() -> list[Command]:
    """Return what a step of the collector asks (`Collector.step`)."""
    asked = [
        request(RequestCode.GET_BROKER_RUNTIME_INFO),
        request(RequestCode.GET_ALL_TOPIC_CONFIG),
        request(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG),
    ]
    for number in range(TOPICS):
        asked.append(request(RequestCode.GET_TOPIC_STATS_INFO, GetTopicStatsInfoRequestHeader(topic=f"T{number}")))
    for number in range(GROUPS):
        stats = GetConsumeStatsRequestHeader(consumer_group=f"G{number}", topic=None)
        asked.append(request(RequestCode.GET_CONSUME_STATS, stats))
        members = GetConsumerConnectionListRequestHeader(consumer_group=f"G{number}")
        asked.append(request(RequestCode.GET_CONSUMER_CONNECTION_LIST, members))
    return asked


def _tail() -> list[Command]:
    """Return what a tail asks in a second, where all come faster than they are shown (`_Follower._follow`)."""
    turns = round(1 / TURN_S)
    asked = []
    for queue in range(QUEUES):
        for _ in range(turns):
            asked.append(request(RequestCode.GET_MAX_OFFSET, GetMaxOffsetRequestHeader(topic="T0", queue_id=queue)))
            pull = PullMessageRequestHeader(
                consumer_group="tail", topic="T0", queue_id=queue, queue_offset=0,
                max_msg_nums=PULL, sys_flag=4, commit_offset=0,
                suspend_timeout_millis=0, subscription="*", sub_version=1, expression_type="TAG",
            )  # fmt: skip
            asked.append(request(RequestCode.PULL_MESSAGE, pull))
    return asked


def _work(kind: str, count: int) -> None:
    from aerobee.broker.config import BrokerConfig
    from aerobee.model.group import SubscriptionGroupConfig
    from aerobee.model.topic import TopicConfig
    from aerobee.runtime.clock import SystemClock
    from aerobee.runtime.disk import RealDisk
    from aerobee.store.config import StoreConfig
    from aerobee.testing.brokerkit import BrokerKit, settle
    from aerobee.testing.sendkit import send

    async def main() -> None:
        with tempfile.TemporaryDirectory() as root:
            loop = asyncio.get_running_loop()
            disk = RealDisk(lambda done: void(loop.call_soon_threadsafe(done)))
            config = StoreConfig(mapped_file_size_commit_log=64 << 20, max_hash_slot_num=10_000, max_index_num=40_000)
            never_busy = BrokerConfig(broker_name="broker-a", broker_fast_failure_enable=False)
            kit = BrokerKit(disk, SystemClock(), never_busy, config, root=root)
            client = kit.connect()
            for number in range(TOPICS):
                kit.state.catalog.put_topic(TopicConfig(f"T{number}", QUEUES, QUEUES))
                kit.state.catalog.put_group(SubscriptionGroupConfig(f"G{number}"))
                for queue in range(QUEUES):
                    for _ in range(PULL if number == 0 else 1):
                        client.send(send(f"K{number}", b"x" * 1024, topic=f"T{number}", queue_id=queue))
                        await asyncio.sleep(0)
                    offset = UpdateConsumerOffsetRequestHeader(
                        consumer_group=f"G{number}", topic=f"T{number}", queue_id=queue, commit_offset=1
                    )
                    client.send(request(RequestCode.UPDATE_CONSUMER_OFFSET, offset))
            await settle()
            if kind in ("lists", "tail"):
                asked = _lists() if kind == "lists" else _tail()
                for one in asked:
                    answer = await client.call(one)
                    assert answer.code in (0, ResponseCode.CONSUMER_NOT_ONLINE), (one.code, answer)
                frames = list(map(encode_command, asked))
                for _ in range(count):
                    for frame in frames:
                        client.channel.data_received(frame)
                        await asyncio.sleep(0)
                        await asyncio.sleep(0)
                    # Tables are answered in slices, each in a turn of its own.
                    await settle()
                return
            together = TOGETHER if kind == "together" else 1
            data = b"".join(
                encode_command(send(f"K{n}", b"x" * 1024, topic="T0", queue_id=n % QUEUES, opaque=n))
                for n in range(together)
            )
            for _ in range(0, count, together):
                client.channel.data_received(data)
                await asyncio.sleep(0)
                await asyncio.sleep(0)

    asyncio.run(main())


def void(result: object) -> None:
    """Drop a result that nobody needs."""


def cost(kind: str) -> float:
    """Return the instructions of one send, of one step of the collector, or of one second of a tail."""
    long, short = _COUNTS[kind]
    return (instructions(__file__, kind, long) - instructions(__file__, kind, short)) / (long - short)


def main(arguments: list[str]) -> int:
    if len(arguments) == 2:
        _work(arguments[0], int(arguments[1]))
        return 0
    too_dear = False
    for kind in arguments or KINDS:
        asked = cost(kind)
        send = cost("together" if kind == "lists" else "alone")
        sends = RATE * STEP_S if kind == "lists" else TAILED_RATE
        share = asked / (send * sends)
        too_dear = too_dear or share > MOST[kind]
        print(f"{kind}: {asked:,.0f} beside {sends:,.0f} sends of {send:,.0f}: {share:+.2%}", flush=True)
    return int(too_dear)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
