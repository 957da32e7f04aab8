"""How many gRPC clients are remembered, and who gives way when there are too many."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from aerobee.protocol.v2 import enums
from aerobee.protocol.v2.enums import Code
from aerobee.protocol.v2.values import PbPublishing, PbSettings
from aerobee.proxy import clients as proxied
from aerobee.proxy.backend import ClusterBackend
from aerobee.proxy.clients import CLIENTS_MAX, CONNECTION_CLIENTS_MAX, USER_CLIENTS_MAX, GrpcClient, GrpcClients
from aerobee.proxy.status import RefusedCallError
from aerobee.runtime.net import RealNet

_SETTINGS = PbSettings(client_type=enums.PRODUCER, publishing=PbPublishing([], 1, True))


def with_clients(check: Callable[[GrpcClients], None]) -> None:
    async def main() -> None:
        clients = GrpcClients(ClusterBackend(list, lambda: 0.0, lambda peer: RealNet()), lambda: 0.0)
        check(clients)

    asyncio.run(main())


def fill(clients: GrpcClients, count: int, *, user: str = "", port: int = 0) -> list[GrpcClient]:
    """Come as so many clients. Without a port, each has a connection of its own."""
    start = len(clients)
    return [clients.of(f"made-up-{n}", ("10.0.0.1", port or n), "JAVA", user) for n in range(start, start + count)]


def refused(clients: GrpcClients, *, user: str = "", port: int = 0) -> str:
    with pytest.raises(RefusedCallError) as raised:
        clients.of("one too many", ("10.0.0.1", port), "JAVA", user)
    assert raised.value.status == Code.TOO_MANY_REQUESTS
    return raised.value.message


def settle(client: GrpcClient, *, stream: bool) -> None:
    client.settings = _SETTINGS
    client.tell = (lambda command: None) if stream else None


@pytest.fixture(autouse=True)
def fewer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bound them at fewer, so that the test is quick."""
    for name, value in (("CLIENTS_MAX", 200), ("CONNECTION_CLIENTS_MAX", 50), ("USER_CLIENTS_MAX", 100)):
        monkeypatch.setattr(proxied, name, value)


def test_the_oldest_client_without_settings_gives_way_to_a_new_one() -> None:
    def check(clients: GrpcClients) -> None:
        gone: list[GrpcClient] = []
        clients.on_gone = gone.append
        honest = clients.of("honest", ("10.0.0.2", 1), "JAVA")
        settle(honest, stream=True)
        made_up = fill(clients, 199)
        newcomers = [clients.of(f"new-{n}", ("10.0.0.3", n), "JAVA") for n in range(3)]
        assert gone == made_up[:3] and len(clients) == 200
        assert all(clients.known(one.client_id) is one for one in (honest, *newcomers))

    with_clients(check)


def test_clients_without_a_stream_give_way_next_and_those_with_one_never() -> None:
    def check(clients: GrpcClients) -> None:
        found = fill(clients, 200)
        for one in found:
            settle(one, stream=True)
        assert "this server has" in refused(clients)
        # Two streams end, and one of the two clients opens another one.
        clients.stream_ended(found[7])
        clients.stream_ended(found[9])
        found[7].tell = lambda command: None
        newcomer = clients.of("new", ("10.0.0.3", 1), "JAVA")
        assert found[9].is_gone and not found[7].is_gone and len(clients) == 200
        settle(newcomer, stream=True)
        refused(clients)

    with_clients(check)


def test_one_connection_has_no_more_than_its_share() -> None:
    def check(clients: GrpcClients) -> None:
        found = fill(clients, 50, port=77)
        assert "this connection has" in refused(clients, port=77)
        clients.of("elsewhere", ("10.0.0.1", 78), "JAVA")
        clients.forget(found[0])
        assert clients.of("one too many", ("10.0.0.1", 77), "JAVA").came_by == ("10.0.0.1", 77)

    with_clients(check)


def test_one_user_leaves_room_for_the_others() -> None:
    def check(clients: GrpcClients) -> None:
        found = fill(clients, 100, user="greedy")
        assert "user greedy has" in refused(clients, user="greedy")
        clients.of("app", ("10.0.0.2", 1), "JAVA", "modest")
        clients.forget(found[0])
        clients.of("one too many", ("10.0.0.1", 0), "JAVA", "greedy")

    with_clients(check)


def test_the_bounds_leave_room_for_others() -> None:
    assert CONNECTION_CLIENTS_MAX * 2 <= CLIENTS_MAX and USER_CLIENTS_MAX < CLIENTS_MAX
