"""Renewed messages: what is due, how many at a time, and what is left of clients that have gone."""

from __future__ import annotations

import itertools

import pytest

from aerobee.proxy import renewal
from aerobee.proxy.clients import GrpcClient
from aerobee.proxy.delivered import Receipt
from aerobee.proxy.renewal import Renewals

_HERE = "127.0.0.1:10911"
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


def _receipt(offset: int, clock: _Clock, hidden_ms: int = 60_000) -> Receipt:
    return Receipt(offset, clock.ms, hidden_ms, 0, "0", "broker-a", 0, offset)


def test_what_is_due_comes_some_at_a_time_and_each_broker_by_itself() -> None:
    clock = _Clock()
    renewals, client = Renewals(clock), _client()
    for offset in range(1_000):
        renewals.add(client, "T", "G", _HERE, _receipt(offset, clock))
    renewals.add(client, "T", "G", "127.0.0.1:2", _receipt(5_000, clock))
    clock.ms += 39_999
    assert renewals.brokers_due() == []
    clock.ms += 1
    assert renewals.brokers_due() == [_HERE, "127.0.0.1:2"]
    seen: set[int] = set()
    while found := renewals.due(_HERE, 64):
        assert len(found) <= 64
        for one, hidden_ms in found:
            assert hidden_ms == 60_000
            seen.add(one.handle.offset)
            renewals.renewed(one, one.handle.renewed(clock.ms, hidden_ms, 0))
    assert seen == set(range(1_000)), "each once: what was renewed is not due again yet"
    assert renewals.brokers_due() == ["127.0.0.1:2"]
    clock.ms += 40_000
    again, _ = renewals.due(_HERE, 1), renewals.due("127.0.0.1:2", 1)
    assert again[0][1] == 180_000, "it gets longer each time"


def test_the_handle_of_the_client_finds_what_it_has_become() -> None:
    clock = _Clock()
    renewals, client = Renewals(clock), _client()
    given = _receipt(7, clock)
    renewals.add(client, "T", "G", _HERE, given)
    clock.ms += 40_000
    ((one, hidden_ms),) = renewals.due(_HERE, 64)
    renewals.renewed(one, given.renewed(clock.ms, hidden_ms, 3))
    assert renewals.take("T", "G", given) == given.renewed(clock.ms, 60_000, 3)
    assert len(renewals) == 0
    assert renewals.take("T", "G", given) is given
    clock.ms += 40_000
    assert renewals.due(_HERE, 64) == [], "what was acknowledged is not renewed any more"
    assert renewals.brokers_due() == []


def test_a_renewal_that_fails_is_tried_three_times() -> None:
    clock = _Clock()
    renewals, client = Renewals(clock), _client()
    renewals.add(client, "T", "G", _HERE, _receipt(7, clock))
    clock.ms += 40_000
    for _ in range(3):
        ((one, _),) = renewals.due(_HERE, 64)
        renewals.renewed(one, None)
        assert renewals.due(_HERE, 64) == [], "not at once"
        clock.ms += 2_000
    assert renewals.due(_HERE, 64) == []
    assert len(renewals) == 0


def test_a_client_that_has_gone_leaves_only_its_own() -> None:
    clock = _Clock()
    renewals, stays, goes = Renewals(clock), _client(), _client()
    for offset in range(10):
        renewals.add(stays if offset % 2 else goes, "T", "G", _HERE, _receipt(offset, clock))
    assert sorted(one.handle.offset for one in renewals.of(goes)) == [0, 2, 4, 6, 8]
    assert renewals.of(goes) == []
    assert len(renewals) == 5
    clock.ms += 40_000
    assert sorted(one.handle.offset for one, _ in renewals.due(_HERE, 64)) == [1, 3, 5, 7, 9]


def test_there_is_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = _Clock()
    monkeypatch.setattr(renewal, "_KEPT_MAX", 3)
    renewals, client = Renewals(clock), _client()
    for offset in range(5):
        renewals.add(client, "T", "G", _HERE, _receipt(offset, clock))
    assert len(renewals) == 3
