"""Instructions of a gRPC send, receive and acknowledgement, as callgrind counts them (docs/decisions/0005).

    .venv/bin/python bench/grpccost.py [send|receive|ack]
    .venv/bin/python bench/grpccost.py ack 20000        the CPU of one run, in microseconds a message, without valgrind

Frames of HTTP/2 go into a front and its broker in this process, as `bench/proxy.py` makes them, so that the numbers
hold no client, no kernel and no chance. Two runs of different lengths are subtracted: what starts and ends the process
falls out.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from collections.abc import Iterable
from typing import Any

from bench.proxy import BODY, CLIENT, GROUP, QUEUES, TOPIC, headers, receives, sends

from aerobee.hot.h2 import frames
from aerobee.hot.h2.frames import frame
from aerobee.protocol.grpc import prefixed
from aerobee.protocol.v2 import calls
from aerobee.protocol.v2.fields import encode
from aerobee.testing.callgrind import instructions
from aerobee.testing.grpckit import consumer_settings, topic_named

SHORT, LONG = 320, 1600
KINDS = {"send": ("SendMessage", 32), "receive": ("ReceiveMessage", 2), "ack": ("AckMessage", 32)}
BATCH = 32


def _work(kind: str, count: int) -> None:
    """Make calls of one kind. What they need is stored and received before, always as much."""
    from aerobee.broker.config import BrokerConfig
    from aerobee.model.topic import TopicConfig
    from aerobee.runtime.disk import RealDisk
    from aerobee.store.config import StoreConfig
    from aerobee.testing.brokerkit import BrokerKit
    from aerobee.testing.clock import VirtualClock
    from aerobee.testing.frontkit import FrontCall, FrontKit, FrontPeer

    class Load:
        """Calls of one method on a connection of its own, some at a time."""

        def __init__(self, front: FrontKit, method: str, together: int) -> None:
            self.peer = FrontPeer(front, CLIENT, 50_000)
            self.first, self.other = headers(method)
            self.together = together
            self.number = -1
            self.cpu_s = 0.0

        async def make(self, messages: Iterable[bytes]) -> list[FrontCall]:
            """Make calls; return them answered. What brings them in is made before."""
            found, waiting, began_s = [], list(messages), time.process_time()
            for at in range(0, len(waiting), self.together):
                data, made = b"", []
                for message in waiting[at : at + self.together]:
                    self.number += 2
                    block = self.first if self.number == 1 else self.other
                    data += frame(frames.HEADERS, frames.END_HEADERS, self.number, block)
                    data += frame(frames.DATA, frames.END_STREAM, self.number, prefixed(message))
                    made.append(FrontCall(self.number))
                    self.peer.expect(made[-1])
                self.peer.write(data)
                while not made[-1].has_ended:
                    await self.peer.came()
                found += made
            self.cpu_s = time.process_time() - began_s
            return found

    async def main() -> None:
        with tempfile.TemporaryDirectory() as root:
            loop = asyncio.get_running_loop()
            disk = RealDisk(lambda done: void(loop.call_soon_threadsafe(done)))
            config = StoreConfig(mapped_file_size_commit_log=64 << 20, max_hash_slot_num=10_000, max_index_num=40_000)
            # Nothing is ticked here, so the loop would seem to be late.
            never_busy = BrokerConfig(
                broker_name="bench-broker", broker_fast_failure_enable=False, auto_create_subscription_group=True
            )
            # The time stands still: under callgrind routes would be asked for again and again.
            kit = BrokerKit(disk, VirtualClock(lambda: 1.0), never_busy, config, root=root)
            kit.state.catalog.put_topic(TopicConfig(TOPIC, QUEUES, QUEUES))
            front = FrontKit(kit)
            peer = front.connect(CLIENT)
            stream = peer.begin(
                calls.PbTelemetryCommand(settings=consumer_settings(GROUP, [TOPIC])), name="Telemetry", ends=False
            )
            while not stream.data:
                await peer.came()
            stored = list(map(encode, sends()))
            messages = [stored[number % len(stored)] for number in range(max(LONG, count) if kind != "send" else count)]
            load = Load(front, *KINDS["send"])
            await load.make(messages)
            if kind != "send":
                receive = encode(next(iter(receives())))
                pops = (max(LONG, count) if kind == "ack" else count) // BATCH
                load = Load(front, *KINDS["receive"])
                calls_made = await load.make([receive] * pops)
                if kind == "ack":
                    acks = [ack(one) for call in calls_made for one in call.messages(calls.PbReceiveMessageResponse)]
                    made = [encode(one) for one in acks if one is not None][:count]
                    assert len(made) == count, f"{len(made)} of {count} messages came"
                    load = Load(front, *KINDS["ack"])
                    await load.make(made)
                    assert kit.broker.pop.acked == count
                else:
                    assert kit.broker.pop.popped == count
            assert kit.state.store.log_end > LONG * len(BODY) // 8
            print(f"{kind}: {load.cpu_s / count * 1e6:.1f} us a message, the client's part too")

    asyncio.run(main())


def ack(one: Any) -> calls.PbAckMessageRequest | None:
    """Return the acknowledgement of a message that was received."""
    if one.message is None:
        return None
    system = one.message.system_properties
    entry = calls.PbAckMessageEntry(system.message_id, system.receipt_handle)
    return calls.PbAckMessageRequest(topic_named(GROUP), topic_named(TOPIC), [entry])


def void(result: object) -> None:
    """Drop a result that nobody needs."""


def main(arguments: list[str]) -> int:
    if len(arguments) == 2:
        _work(arguments[0], int(arguments[1]))
        return 0
    total = 0.0
    for kind in arguments or KINDS:
        each = (instructions(__file__, kind, LONG) - instructions(__file__, kind, SHORT)) / (LONG - SHORT)
        total += each
        print(f"{kind}: {each:.0f} a message", flush=True)
    print(f"together: {total:.0f}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
