"""Renewed messages: what is due, how many at a time, and what is left of clients that have gone."""

from __future__ import annotations

import asyncio
import itertools

import pytest

from aerobee.app.grpcfront import route_of
from aerobee.model.topic import TopicConfig
from aerobee.protocol.codes import RequestCode
from aerobee.protocol.command import decode_frame, encode_command, response
from aerobee.proxy import renewal
from aerobee.proxy.backend import ClusterBackend
from aerobee.proxy.clients import GrpcClient
from aerobee.proxy.delivered import Receipt
from aerobee.proxy.renewal import Renewals
from aerobee.proxy.renewing import renew_at
from aerobee.runtime.net import RealNet

_HERE = "broker-a"
_numbers = itertools.count()


class _Clock:
    """A wall clock that stands until a test moves it."""

    def __init__(self) -> None:
        self.ms = 1_000_000

    def __call__(self) -> int:
        return self.ms


def _client() -> GrpcClient:
    # Only which client it is counts here.
    return object.__new__(GrpcClient)


def _receipt(offset: int, clock: _Clock, hidden_ms: int = 60_000, broker: str = _HERE) -> Receipt:
    return Receipt(offset, clock.ms, hidden_ms, 0, "0", broker, 0, offset)


def _held(handle: Receipt, clock: _Clock, hidden_ms: int) -> Receipt:
    """Return what a broker of Aerobee answers for a message that is held: its handle stays the same."""
    return handle.renewed(handle.pop_time, clock.ms - handle.pop_time + hidden_ms, 0)


def test_what_is_due_comes_some_at_a_time_and_each_broker_by_itself() -> None:
    clock = _Clock()
    renewals, client = Renewals(clock), _client()
    for offset in range(1_000):
        renewals.add(client, "T", "G", _receipt(offset, clock))
    renewals.add(client, "T", "G", _receipt(5_000, clock, broker="broker-b"))
    clock.ms += 39_999
    assert renewals.brokers_due() == []
    clock.ms += 1
    assert renewals.brokers_due() == [_HERE, "broker-b"]
    seen: set[int] = set()
    while found := renewals.due(_HERE, 64):
        assert len(found) <= 64
        for one in found:
            assert one.hidden_ms == 60_000
            seen.add(one.handle.offset)
            renewals.renewed(one, one.handle.renewed(clock.ms, 60_000, 0))
    assert seen == set(range(1_000)), "each once: what was renewed is not due again yet"
    assert renewals.brokers_due() == ["broker-b"]
    clock.ms += 40_000
    again, _ = renewals.due(_HERE, 1), renewals.due("broker-b", 1)
    assert again[0].hidden_ms == 180_000, "it gets longer each time"


def test_the_handle_of_the_client_finds_what_it_has_become() -> None:
    clock = _Clock()
    renewals, client = Renewals(clock), _client()
    given = _receipt(7, clock)
    renewals.add(client, "T", "G", given)
    clock.ms += 40_000
    (one,) = renewals.due(_HERE, 64)
    renewals.renewed(one, given.renewed(clock.ms, 60_000, 3))
    assert renewals.take("T", "G", given) == given.renewed(clock.ms, 60_000, 3)
    assert len(renewals) == 0
    assert renewals.take("T", "G", given) is given
    clock.ms += 40_000
    assert renewals.due(_HERE, 64) == [], "what was acknowledged is not renewed any more"
    assert renewals.brokers_due() == []


def test_a_renewal_that_fails_is_tried_again_until_the_message_is_visible() -> None:
    clock = _Clock()
    renewals, client = Renewals(clock), _client()
    renewals.add(client, "T", "G", _receipt(7, clock))
    clock.ms += 40_000
    for _ in range(10):
        (one,) = renewals.due(_HERE, 64)
        renewals.renewed(one, None)
        assert renewals.due(_HERE, 64) == [], "not at once"
        clock.ms += 2_000
    assert renewals.due(_HERE, 64) == []
    assert len(renewals) == 0


def test_a_broker_that_was_away_for_a_while_goes_on() -> None:
    clock = _Clock()
    renewals, client = Renewals(clock), _client()
    renewals.add(client, "T", "G", _receipt(7, clock))
    clock.ms += 40_000
    for _ in range(8):
        (one,) = renewals.due(_HERE, 64)
        renewals.renewed(one, None)
        clock.ms += 2_000
    (one,) = renewals.due(_HERE, 64)
    renewals.renewed(one, _held(one.handle, clock, 60_000))
    clock.ms += 39_999
    assert renewals.due(_HERE, 64) == []
    clock.ms += 1
    assert renewals.due(_HERE, 64) == [one]


def test_what_another_front_has_acknowledged_is_not_renewed_for_hours() -> None:
    """The broker answers as if it had hidden the message, which nobody holds any more."""
    clock = _Clock()
    renewals, client = Renewals(clock), _client()
    renewals.add(client, "T", "G", _receipt(7, clock))
    asked = 0
    for _ in range(24 * 3600):
        clock.ms += 1_000
        for one in renewals.due(_HERE, 64):
            asked += 1
            renewals.renewed(one, one.handle.renewed(one.handle.pop_time, one.hidden_ms, 0))
    assert asked == 1 and len(renewals) == 0


def test_a_handler_of_three_hours_is_renewed_some_times_and_then_given_up() -> None:
    clock = _Clock()
    renewals, client = Renewals(clock), _client()
    renewals.add(client, "T", "G", _receipt(7, clock))
    visible_ms, asked = clock.ms + 60_000, 0
    while len(renewals):
        clock.ms += 1_000
        assert clock.ms < visible_ms or clock.ms > 1_000_000 + 3 * 3_600_000, "it was visible while it was handled"
        for one in renewals.due(_HERE, 64):
            asked += 1
            visible_ms = clock.ms + one.hidden_ms
            renewals.renewed(one, _held(one.handle, clock, one.hidden_ms))
    assert asked < 12 and clock.ms < 1_000_000 + 5 * 3_600_000


@pytest.mark.parametrize("ahead_ms", [-3_600_000, 3_600_000])
def test_the_clock_of_a_broker_does_not_matter(ahead_ms: int) -> None:
    clock = _Clock()
    renewals, client = Renewals(clock), _client()
    theirs = _Clock()
    theirs.ms = clock.ms + ahead_ms
    renewals.add(client, "T", "G", _receipt(7, theirs))
    for move_ms, step_ms in ((40_000, 60_000), (40_000, 180_000), (160_000, 300_000)):
        clock.ms += move_ms - 1
        assert renewals.due(_HERE, 64) == []
        clock.ms += 1
        theirs.ms = clock.ms + ahead_ms
        (one,) = renewals.due(_HERE, 64)
        assert one.hidden_ms == step_ms
        renewals.renewed(one, _held(one.handle, theirs, step_ms))


def test_a_handle_is_found_until_it_ends_where_the_acknowledgement_failed() -> None:
    """The client asks again with the handle that it has, which alone would be over by then."""
    clock = _Clock()
    renewals, client = Renewals(clock), _client()
    given = _receipt(7, clock)
    renewals.add(client, "T", "G", given)
    clock.ms += 40_000
    (one,) = renewals.due(_HERE, 64)
    now = given.renewed(clock.ms, 60_000, 3)
    renewals.renewed(one, now)
    clock.ms += 30_000
    assert renewals.pause("T", "G", given) == now
    assert renewals.pause("T", "G", given) == now
    clock.ms += 20_000
    assert renewals.due(_HERE, 64) == [], "its client is done with it"
    assert renewals.pause("T", "G", given) == now
    clock.ms += 10_000
    assert renewals.due(_HERE, 64) == []
    assert len(renewals) == 0 and renewals.pause("T", "G", given) is given


def test_a_client_that_has_gone_leaves_only_its_own() -> None:
    clock = _Clock()
    renewals, stays, goes = Renewals(clock), _client(), _client()
    for offset in range(10):
        renewals.add(stays if offset % 2 else goes, "T", "G", _receipt(offset, clock))
    assert sorted(one.handle.offset for one in renewals.of(goes)) == [0, 2, 4, 6, 8]
    assert renewals.of(goes) == []
    assert len(renewals) == 5
    clock.ms += 40_000
    assert sorted(one.handle.offset for one in renewals.due(_HERE, 64)) == [1, 3, 5, 7, 9]


def test_there_is_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = _Clock()
    monkeypatch.setattr(renewal, "_KEPT_MAX", 3)
    renewals, client = Renewals(clock), _client()
    for offset in range(5):
        renewals.add(client, "T", "G", _receipt(offset, clock))
    assert len(renewals) == 3


def test_a_message_is_renewed_at_the_new_master_of_its_broker() -> None:
    """The first one is gone. The name of the broker leads to the one that serves now."""

    async def main() -> None:
        renewed = asyncio.Event()

        async def broker(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                while True:
                    size = await reader.readexactly(4)
                    asked = decode_frame(size + await reader.readexactly(int.from_bytes(size, "big")))
                    assert asked.code == RequestCode.CHANGE_MESSAGE_INVISIBLETIME
                    ext = {"popTime": "1000000", "invisibleTime": "100000", "reviveQid": "0"}
                    writer.write(encode_command(response(asked, ext=ext)))
                    renewed.set()
            except asyncio.IncompleteReadError:
                writer.close()

        clock, now_s = _Clock(), 0.0
        gone = await asyncio.start_server(broker, "127.0.0.1", 0)
        master = await asyncio.start_server(broker, "127.0.0.1", 0)
        address, next_one = (f"127.0.0.1:{one.sockets[0].getsockname()[1]}" for one in (gone, master))
        gone.close()
        await gone.wait_closed()
        backend = ClusterBackend(
            list, lambda: now_s, lambda peer: RealNet(),
            own_route=lambda topic: route_of(TopicConfig(topic), "c", _HERE, address),
        )  # fmt: skip
        client = GrpcClient("c@1", ("127.0.0.1", 1), backend, "JAVA", 0.0)
        renewals = Renewals(clock)
        renewals.add(client, "T", "G", _receipt(7, clock))
        clock.ms += 40_000
        await renew_at(backend, renewals, _HERE)
        assert not renewed.is_set() and len(renewals) == 1
        address, now_s = next_one, 3.0
        clock.ms += 3_000
        await renew_at(backend, renewals, _HERE)
        assert renewed.is_set() and renewals.take("T", "G", _receipt(7, _Clock())).invisible_ms == 100_000
        await client.remoting.close()
        await backend.close()
        master.close()
        await master.wait_closed()

    asyncio.run(asyncio.wait_for(main(), 20))
