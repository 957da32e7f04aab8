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
SECONDS = 4


@dataclass
class Sender:
    """A thread that sends so many messages, each when the one before is answered."""

    namesrv: str
    topic: str
    count: int
    took_s: float = 0.0
    errors: list[AerobeeError] = field(default_factory=list)

    def run(self) -> None:
        with Producer(self.namesrv) as producer:
            producer.send(self.topic, b"the route is known now")
            began_s = time.monotonic()
            for _ in range(self.count):
                try:
                    producer.send(self.topic, b"x")
                except AerobeeError as error:
                    self.errors.append(error)
            self.took_s = time.monotonic() - began_s


def run(*senders: Sender) -> None:
    threads = [threading.Thread(target=one.run) for one in senders]
    for one in threads:
        one.start()
    for one in threads:
        one.join()


def sent_at_once(raw: RawSocket, count: int) -> list[int]:
    """Send to the loud topic without waiting for answers; return the codes of the answers."""
    raw.socket.sendall(b"".join(encode_command(send(f"K{n}", topic="loud", opaque=n)) for n in range(count)))
    return [raw.answer(n).code for n in range(count)]


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
        loud, calm = Sender(cluster.namesrv, "loud", SECONDS * QUOTA), Sender(cluster.namesrv, "calm", SECONDS * QUOTA)
        run(loud, calm)
        assert loud.errors == calm.errors == []
        # What may be sent at once at the start is a second's worth.
        assert loud.took_s > 0.9 * (SECONDS - 1)
        assert calm.took_s < loud.took_s

        # One that does not wait is refused what it would have to wait for longer than a second.
        with RawSocket(cluster.broker_address(0)) as raw:
            codes = sent_at_once(raw, 3 * QUOTA)
        assert set(codes) == {0, ResponseCode.FLOW_CONTROL}
        assert 0.9 * QUOTA <= codes.count(0) <= 2.2 * QUOTA

        assert "removed from broker-a" in quota(cluster, "remove", "topic:loud", "--yes")
        for more in ("--yes", "--dry-run"):
            assert aerobee("quota", "remove", "topic:loud", more, "-n", cluster.namesrv).returncode == 1
        with RawSocket(cluster.broker_address(0)) as raw:
            assert set(sent_at_once(raw, 3 * QUOTA)) == {0}


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
