"""Sends of our own client, for bench/client.py: the same arguments and answers as bench/client_grpc.py."""

import asyncio
import json
import resource
import sys
import time

import aerobee


def cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


async def main() -> None:
    namesrv, topic = sys.argv[1:3]
    count, tasks, size = map(int, sys.argv[3:6])
    body = b"x" * size
    async with aerobee.Producer(namesrv) as producer:

        async def send(times: int) -> None:
            for _ in range(times):
                await producer.send(topic, body, tags="TagA", keys="key-1")

        await send(200)
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        while await asyncio.to_thread(sys.stdin.readline):
            began_s, cpu = time.perf_counter(), cpu_s()
            await asyncio.gather(*(send(count // tasks) for _ in range(tasks)))
            seconds = time.perf_counter() - began_s
            sys.stdout.write(json.dumps({"seconds": seconds, "cpu_s": cpu_s() - cpu}) + "\n")
            sys.stdout.flush()


asyncio.run(main())
