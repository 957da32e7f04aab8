"""`aerobee quota` on a real broker: who sends ten times its quota is held to it, and others do not notice."""

from __future__ import annotations

import json
import threading
import time
from dataclasses import dataclass, field

from aerobee.errors import AerobeeError
from aerobee.protocol.codes import ResponseCode
from aerobee.protocol.command import encode_command
from aerobee.sync import Producer
from aerobee.testing.cluster import LocalCluster
from aerobee.testing.commands import aerobee
from aerobee.testing.rawsocket import RawSocket
from aerobee.testing.sendkit import send

QUOTA = 200
SECONDS = 4.0


@dataclass
class Sender:
    """A thread that sends at most so many messages a second."""

    namesrv: str
    topic: str
    rate: int
    sent: int = 0
    errors: list[AerobeeError] = field(default_factory=list)

    def run(self) -> None:
        with Producer(self.namesrv) as producer:
            producer.send(self.topic, b"the route is known now")
            began_s = time.monotonic()
            while (passed_s := time.monotonic() - began_s) < SECONDS:
                time.sleep(max(0.0, self.sent / self.rate - passed_s))
                try:
                    producer.send(self.topic, b"x")
                    self.sent += 1
                except AerobeeError as error:
                    self.errors.append(error)


def run(*senders: Sender) -> None:
    threads = [threading.Thread(target=one.run) for one in senders]
    for one in threads:
        one.start()
    for one in threads:
        one.join()


def quota(cluster: LocalCluster, *words: str) -> str:
    done = aerobee("quota", *words, "-n", cluster.namesrv)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_quota_pauses_then_refuses() -> None:
    with LocalCluster() as cluster:
        for topic in ("loud", "calm"):
            cluster.create_topic(topic, 2)
        assert quota(cluster, "list") == "there are no quotas\n"
        assert "topic:loud messages=200: changed on broker-a" in quota(
            cluster, "set", "topic:loud", "--messages", str(QUOTA), "--yes"
        )
        assert json.loads(quota(cluster, "list", "--json")) == {
            "broker-a": [{"kind": "topic", "name": "loud", "bytes": None, "messages": QUOTA}]
        }
        # A client that waits for each answer is slowed down, and never refused.
        loud, calm = Sender(cluster.namesrv, "loud", 10 * QUOTA), Sender(cluster.namesrv, "calm", 100)
        run(loud, calm)
        assert loud.errors == calm.errors == []
        assert calm.sent >= 0.95 * 100 * SECONDS
        # What may be sent at once at the start is a second's worth.
        assert 0.9 * QUOTA * SECONDS <= loud.sent <= 1.1 * QUOTA * (SECONDS + 1)

        # One that does not wait is refused what it would have to wait for longer than a second.
        with RawSocket(cluster.broker_address(0)) as raw:
            count = 3 * QUOTA
            raw.socket.sendall(b"".join(encode_command(send(f"K{n}", topic="loud", opaque=n)) for n in range(count)))
            codes = [raw.answer(n).code for n in range(count)]
        assert set(codes) == {0, ResponseCode.FLOW_CONTROL}
        assert 0.9 * QUOTA <= codes.count(0) <= 2.2 * QUOTA

        assert "removed from broker-a" in quota(cluster, "remove", "topic:loud", "--yes")
        for more in ("--yes", "--dry-run"):
            assert aerobee("quota", "remove", "topic:loud", more, "-n", cluster.namesrv).returncode == 1
        free = Sender(cluster.namesrv, "loud", 10 * QUOTA)
        run(free)
        assert free.errors == []
        assert free.sent > 1.5 * QUOTA * SECONDS


def test_quotas_that_make_no_sense_are_refused_in_words() -> None:
    with LocalCluster() as cluster:
        for words, code in (
            (("set", "alice", "--bytes", "1"), 2),
            (("set", "user:a"), 2),
            (("set", "user:a b", "--bytes", "1"), 2),
            (("set", "topic:ord*", "--messages", "1"), 2),
            (("remove", "topc:orders", "--yes"), 2),
        ):
            done = aerobee("quota", *words, "-n", cluster.namesrv)
            assert done.returncode == code, done.stderr
        done = aerobee("cluster", "config", "-n", cluster.namesrv, "--yes", "quotas=user:x bytes=much")
        assert done.returncode == 1
        assert "quotas: user:x: bytes" in done.stderr
