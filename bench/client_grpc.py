"""Sends of the official gRPC client (PyPI rocketmq-python-client), for bench/client.py, in an environment of its own.

python client_grpc.py ENDPOINT TOPIC COUNT THREADS BODY_BYTES: one line of JSON for each line of standard input.
"""

import json
import resource
import sys
import threading
import time

from rocketmq import ClientConfiguration, Credentials, Message, Producer


def cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def main() -> None:
    endpoint, topic = sys.argv[1:3]
    count, threads, size = map(int, sys.argv[3:6])
    producer = Producer(ClientConfiguration(endpoint, Credentials(), "", 10), (topic,))
    producer.startup()
    body = b"x" * size

    def send(times: int) -> None:
        for _ in range(times):
            message = Message()
            message.topic = topic
            message.body = body
            message.tag = "TagA"
            message.keys = "key-1"
            producer.send(message)

    send(200)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    for _ in sys.stdin:
        workers = [threading.Thread(target=send, args=(count // threads,)) for _ in range(threads)]
        began_s, cpu = time.perf_counter(), cpu_s()
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        seconds = time.perf_counter() - began_s
        sys.stdout.write(json.dumps({"seconds": seconds, "cpu_s": cpu_s() - cpu}) + "\n")
        sys.stdout.flush()
    producer.shutdown()


main()
