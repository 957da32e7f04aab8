"""What Apache's slave is told about timed messages."""

from __future__ import annotations

import struct

import pytest

from aerobee.broker.delay import TimerCheckpoint
from aerobee.errors import RemoteProtocolError
from aerobee.model.dialect import loads_object
from aerobee.protocol.codes import RequestCode
from aerobee.protocol.command import request
from aerobee.testing.brokerkit import BrokerKit, run_broker


def test_a_slave_is_told_up_to_where_timed_messages_were_delivered() -> None:
    async def main(kit: BrokerKit) -> None:
        client = kit.connect()
        await kit.pass_time(3)
        answer = await client.call(request(RequestCode.GET_TIMER_CHECK_POINT, opaque=1))
        assert (answer.code, len(answer.body)) == (0, 56)
        read_ms, _, taken, master_taken = struct.unpack_from(">4q", answer.body)
        now_ms = kit.clock.now_ms()
        assert now_ms - 2000 <= read_ms <= now_ms
        assert read_ms % 1000 == 0
        assert taken == master_taken == 0
        assert TimerCheckpoint.decode(answer.body) == TimerCheckpoint(read_ms, 0)
        metrics = await client.call(request(RequestCode.GET_TIMER_METRICS, opaque=2))
        assert loads_object(metrics.body)["timingCount"] == {}

    run_broker(main)


def test_bytes_that_are_no_checkpoint_are_refused() -> None:
    with pytest.raises(RemoteProtocolError):
        TimerCheckpoint.decode(bytes(31))
