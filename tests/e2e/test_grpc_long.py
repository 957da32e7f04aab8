"""A handler of 200 seconds in real time, and a broker that is started again meanwhile. `make long-handler`."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest

from aerobee import sync
from aerobee.protocol.v2 import calls
from aerobee.protocol.v2.enums import Code
from aerobee.proxy.status import OK
from aerobee.testing.apache import free_ports
from aerobee.testing.commands import proxy_of, up
from aerobee.testing.grpckit import GrpcPeer, Telemetry, consumer_settings, message, topic_named
from aerobee.testing.waiting import wait_until

pytestmark = pytest.mark.slow

HANDLER_S = 200.0
STOP_AT_S = 100.0


class _Consumer:
    """A push consumer that handles one message."""

    def __init__(self, address: str, topic: str) -> None:
        self.topic = topic
        self.peer = GrpcPeer(address, f"consumer-of-{topic}")
        self.stream = self.settled()
        answers = self.peer.receive(topic, "G", batch=1, auto_renew=True)
        (system,) = [one.message.system_properties for one in answers if one.message is not None]
        assert system is not None and system.receipt_handle is not None
        self.handle: str = system.receipt_handle

    def settled(self) -> Telemetry:
        stream = self.peer.telemetry()
        stream.settle(consumer_settings("G", [self.topic]))
        return stream

    def beat(self) -> None:
        """Send a heartbeat. A server that was started again does not know the client: it tells its settings anew."""
        request = calls.PbHeartbeatRequest(topic_named("G"))
        status = self.peer.call(request, calls.PbHeartbeatResponse).status
        if status is not None and status.code == Code.UNRECOGNIZED_CLIENT_TYPE:
            self.stream = self.settled()

    def ack(self) -> int:
        status = self.peer.ack(self.topic, "G", self.handle).status
        assert status is not None
        return status.code


def test_a_handler_of_200_s_and_a_restart(tmp_path: Path) -> None:
    """By the front in the broker's process, which goes with it, and by a proxy, which goes on. Nobody else gets the
    message, and the handle that the client has is good to the end."""
    ports = free_ports(1, 2, 3, 4, 5, 6)
    place = (
        "--data", str(tmp_path / "data"), "--namesrv-port", str(ports), "--broker-port", str(ports + 4),
        "--set", f"grpcServerPort={ports + 1}",
    )  # fmt: skip
    own, namesrv = f"127.0.0.1:{ports + 1}", f"127.0.0.1:{ports}"
    with proxy_of("-n", namesrv) as proxy:
        with up(*place) as first:
            with sync.Admin(first.namesrv) as admin:
                for topic in ("by-broker", "by-proxy"):
                    admin.topics.create(topic, queues=1)
            with GrpcPeer(own, "producer") as producer:
                for topic in ("by-broker", "by-proxy"):
                    # A busy machine may be too slow for a moment.
                    wait_until(lambda: producer.send(message(topic, b"takes long", f"id-{topic}")).status == OK)  # noqa: B023
            consumers = [_Consumer(own, "by-broker"), _Consumer(proxy, "by-proxy")]
            began_s = time.monotonic()
            handle_until(consumers, own, began_s + STOP_AT_S)
            assert first.stop(signal.SIGTERM)[0] == 0
        with up(*place):
            handle_until(consumers, own, began_s + HANDLER_S)
            assert [one.ack() for one in consumers] == [Code.OK, Code.OK]
            assert [one.ack() for one in consumers] == [Code.INVALID_RECEIPT_HANDLE] * 2
            # The last renewal was for three minutes.
            handle_until(consumers, own, began_s + HANDLER_S + 80.0)
        for one in consumers:
            one.peer.channel.close()


def handle_until(consumers: list[_Consumer], address: str, until_s: float) -> None:
    """Go on handling. Each receive of another member of the group waits for five seconds, and brings nothing."""
    with GrpcPeer(address, "other member") as other:
        while time.monotonic() < until_s:
            for one in consumers:
                one.beat()
                assert other.messages(one.topic, "G") == []
