"""Instructions of a send and of a pull with metrics and without, as callgrind counts them (docs/decisions/0005).

    .venv/bin/python bench/metricscost.py [alone|pipelined|pull]

Frames go into a broker's connection in this process, so that the numbers hold no client, no kernel and no chance. Two
runs of different lengths are subtracted: what starts and ends the process falls out.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile

from aerobee.protocol.codes import RequestCode
from aerobee.protocol.command import Command, encode_command, request
from aerobee.protocol.headers.pull import PullMessageRequestHeader
from aerobee.testing.callgrind import instructions

SHORT, LONG = 400, 1600
KINDS = ("alone", "pipelined", "pull")
# The most that metrics may cost, as a share of a message's instructions. Beyond it the exit code is 1.
MOST = 0.01
# How many sends are read at once where they come pipelined.
TOGETHER = 16


def _pull(number: int) -> Command:
    header = PullMessageRequestHeader(
        consumer_group="G", topic="T", queue_id=0, queue_offset=number % 100, max_msg_nums=1, sys_flag=4,
        commit_offset=0, suspend_timeout_millis=0, subscription="*", sub_version=1, expression_type="TAG",
    )  # fmt: skip
    return request(RequestCode.PULL_MESSAGE, header, opaque=number)


def _work(kind: str, count: int, measured: bool) -> None:
    from aerobee.broker.config import BrokerConfig
    from aerobee.model.topic import TopicConfig
    from aerobee.runtime.clock import SystemClock
    from aerobee.runtime.disk import RealDisk
    from aerobee.store.config import StoreConfig
    from aerobee.telemetry.config import MetricsConfig, MetricsExporter
    from aerobee.testing.brokerkit import BrokerKit
    from aerobee.testing.sendkit import send

    async def main() -> None:
        with tempfile.TemporaryDirectory() as root:
            loop = asyncio.get_running_loop()
            disk = RealDisk(lambda done: void(loop.call_soon_threadsafe(done)))
            config = StoreConfig(mapped_file_size_commit_log=64 << 20, max_hash_slot_num=10_000, max_index_num=40_000)
            metrics = MetricsConfig(exporter_type=MetricsExporter.PROM) if measured else None
            # Nothing is ticked here, so the loop would seem to be late.
            never_busy = BrokerConfig(broker_name="broker-a", broker_fast_failure_enable=False)
            kit = BrokerKit(disk, SystemClock(), never_busy, config, root=root, metrics=metrics)
            kit.state.catalog.put_topic(TopicConfig("T", 1, 1))
            client = kit.connect()
            body = b"x" * 1024
            if kind == "pull":
                for number in range(100):
                    client.channel.data_received(encode_command(send(f"K{number}", body, opaque=number)))
                    await asyncio.sleep(0)
            together = TOGETHER if kind == "pipelined" else 1
            # Frames are encoded once: what a client does is not the broker's cost.
            made = [_pull(n) if kind == "pull" else send(f"K{n}", body, opaque=n) for n in range(together)]
            data = b"".join(map(encode_command, made))
            for _ in range(0, count, together):
                client.channel.data_received(data)
                # A turn of the loop, in which what was gathered is written and answered.
                await asyncio.sleep(0)
                await asyncio.sleep(0)
            stored = kit.state.store.log_end // len(body)
            assert stored >= (100 if kind == "pull" else count), f"{stored} of {count} were stored"

    asyncio.run(main())


def void(result: object) -> None:
    """Drop a result that nobody needs."""


def cost(kind: str, measured: bool) -> float:
    """Return the instructions of one message."""
    return (instructions(__file__, kind, LONG, int(measured)) - instructions(__file__, kind, SHORT, int(measured))) / (
        LONG - SHORT
    )


def main(arguments: list[str]) -> int:
    if len(arguments) == 3:
        _work(arguments[0], int(arguments[1]), arguments[2] == "1")
        return 0
    too_dear = False
    for kind in arguments or KINDS:
        without, measured = cost(kind, False), cost(kind, True)
        more = measured / without - 1
        too_dear = too_dear or more > MOST
        print(f"{kind}: {without:.0f} without, {measured:.0f} with metrics: {more:+.2%}", flush=True)
    return int(too_dear)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
