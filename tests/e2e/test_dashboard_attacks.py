"""Clients of the dashboard that mean no good: slow ones, greedy ones, and machines behind a proxy without logins."""

from __future__ import annotations

import html
import http.client
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlencode, urlsplit

import pytest

pytest.importorskip("starlette", reason="the extra `dashboard` is not installed")

from aerobee.dashboard import doorway, listening
from aerobee.dashboard.options import DashboardOptions
from aerobee.dashboard.pages import tail
from aerobee.dashboard.pages.tail import TAILS_MAX, TAILS_OF_A_PERSON
from aerobee.dashboard.registry import ACTIONS
from aerobee.dashboard.security import Role
from aerobee.dashboard.usersfile import line_of
from aerobee.errors import InvalidArgumentError
from aerobee.runtime.entropy import SystemEntropy
from aerobee.sync import Producer
from aerobee.testing.cluster import LocalCluster
from aerobee.testing.dashboardkit import Reader, RunningDashboard
from aerobee.testing.secrets import secret_for
from aerobee.testing.waiting import wait_until

PASSWORD = secret_for("people")
PLACES = {"topic": "orders", "group": "billing", "name": "anna"}


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster() as running:
        running.create_topic("orders", 2)
        yield running


@pytest.fixture(scope="module")
def people(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("people") / "people"
    path.write_text(people_with(*Role))
    return path


def people_with(*roles: Role) -> str:
    return "\n".join(line_of(role.name, role, PASSWORD, SystemEntropy().token) for role in roles)


@pytest.fixture(scope="module")
def address(cluster: LocalCluster, people: Path) -> Iterator[str]:
    with RunningDashboard(DashboardOptions(namesrv=cluster.namesrv, port=0, users=str(people))) as running:
        yield running.address


def reader_as(address: str, role: Role) -> Reader:
    reader = Reader(address)
    assert reader.login(role.name, PASSWORD).status == 303
    return reader


def connected(address: str) -> socket.socket:
    parts = urlsplit(address)
    return socket.create_connection((parts.hostname or "", parts.port or 80), timeout=60)


# -- slow ones


@pytest.mark.parametrize("sent", [b"", b"GET / HT", b"GET /login HTTP/1.1\r\nHost: localhost\r\n\r\nGET / HT"])
def test_a_request_that_does_not_come_ends_its_connection(
    address: str, monkeypatch: pytest.MonkeyPatch, sent: bytes
) -> None:
    """Five hundred of them would keep everybody else out."""
    monkeypatch.setattr(listening, "HEAD_S", 0.3)
    with connected(address) as sock:
        sock.sendall(sent)
        while True:
            try:
                if not sock.recv(65_536):
                    break
            except ConnectionResetError:
                break


def test_a_body_that_does_not_come_is_refused(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doorway, "BODY_S", 0.3)
    with connected(address) as sock:
        sock.sendall(b"POST /login HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\nname=")
        assert sock.recv(65_536).startswith(b"HTTP/1.1 408 ")


def test_a_tail_that_nobody_reads_ends(cluster: LocalCluster, address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doorway, "SEND_S", 0.5)
    reader = reader_as(address, Role.admin)
    cookie = "; ".join(f"{name}={value}" for name, value in reader.cookies.items())
    with connected(address) as sock, Producer(cluster.namesrv) as producer:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sock.sendall(f"GET /raw/tail?topic=orders HTTP/1.1\r\nHost: localhost\r\nCookie: {cookie}\r\n\r\n".encode())
        wait_until(lambda: len(tail._running) == 1, "it follows")

        def ended() -> bool:
            # What is on its way to the reader is some megabytes.
            producer.send("orders", b"x", keys="k" * 20_000)
            return not tail._running

        wait_until(ended, "the tail is ended")


# -- greedy ones


def test_tails_of_one_person_leave_room_for_others(address: str) -> None:
    greedy, other = reader_as(address, Role.viewer), reader_as(address, Role.operator)
    began = [threading.Event() for _ in range(3 * TAILS_MAX)]
    bodies: list[str] = []
    threads = [
        threading.Thread(target=greedy.stream, args=("/raw/tail?topic=orders", bodies, 1, one), daemon=True)
        for one in began
    ]
    for one in threads:
        one.start()
    wait_until(lambda: sum(one.is_set() for one in began) >= TAILS_OF_A_PERSON, "as many as are allowed follow")
    wait_until(lambda: sum(one.is_alive() for one in threads) == TAILS_OF_A_PERSON, "the others are refused")
    assert greedy.get("/raw/tail?topic=orders").status == 409
    follows = threading.Event()
    following = threading.Thread(target=other.stream, args=("/raw/tail?topic=orders", bodies, 1, follows), daemon=True)
    following.start()
    assert follows.wait(60)
    greedy.post("/logout")
    for one in threads:
        one.join(60)
        assert not one.is_alive()
    assert following.is_alive()
    other.post("/logout")
    following.join(60)
    assert not following.is_alive()


# -- those who want somebody else's session, or to lead somebody elsewhere


def test_a_cookie_that_somebody_else_chose_is_never_logged_in(address: str) -> None:
    victim, thief = Reader(address), Reader(address)
    victim.meet()
    planted = dict(victim.cookies)
    assert victim.login("admin", PASSWORD).status == 303
    assert victim.cookies != planted
    thief.cookies = planted
    assert thief.get("/api/topics").status == 401
    victim.post("/logout")
    assert victim.get("/api/topics").status == 401


@pytest.mark.parametrize(
    ("wanted", "location"),
    [
        ("/topics?sort=in_s", "/topics?sort=in_s"), ("/topics/%25DLQ%25ab", "/topics/%25DLQ%25ab"),
        ("//evil.example", "/"), ("/\\evil.example", "/"), ("https://evil.example", "/"), ("/\t/evil.example", "/"),
        ("/\r\nSet-Cookie: a=b", "/"), ("javascript:alert(1)", "/"), ("", "/"),
    ],
)  # fmt: skip
def test_a_login_leads_to_pages_of_the_dashboard_only(address: str, wanted: str, location: str) -> None:
    reader = Reader(address)
    reader.meet()
    reply = reader.post("/login", {"name": "viewer", "secret": PASSWORD, "next": wanted})
    assert (reply.status, reply.headers["location"]) == (303, location)
    again = reader.get(f"/login?{urlencode({'next': wanted})}")
    assert (again.status, again.headers["location"]) == (303, location)


def test_a_login_leads_back_to_a_name_with_percent_signs(address: str) -> None:
    """Before, %ab was read as a letter."""
    reader = Reader(address)
    asked = reader.get("/groups/%25RETRY%25ab?x=%25").headers["location"]
    page = reader.get(asked).text
    back = html.unescape(page.partition('name="next" value="')[2].partition('"')[0])
    assert back == "/groups/%25RETRY%25ab?x=%25"


def test_under_a_sub_path_no_file_beyond_the_static_ones_is_served(cluster: LocalCluster, people: Path) -> None:
    options = DashboardOptions(namesrv=cluster.namesrv, port=0, users=str(people), root_path="/mq")
    with RunningDashboard(options) as running:
        reader = Reader(running.address)
        assert reader.get("/static/dashboard.css").status == 200
        for path in ("/static/../web.py", "/static/..%2fweb.py", "/static/%2e%2e/web.py", "/static/..%5cweb.py",
                     "/static//etc/passwd", "/..%2f..%2fetc/passwd", "/static/%00", "/static/"):  # fmt: skip
            reply = reader.get(path)
            assert reply.status in (303, 404), path
            assert "starlette" not in reply.text
            assert "root:" not in reply.text


def test_a_huge_query_is_answered_or_refused(address: str) -> None:
    reader = reader_as(address, Role.viewer)
    for query in ("q=" + "x" * 50_000, "&".join(f"a{number}=1" for number in range(5_000)), "page=" + "9" * 5_000):
        assert reader.get(f"/topics?{query}").status in (200, 400, 414, 431), query[:20]
    assert reader.get("/topics").status == 200


# -- those who may not


def test_a_viewer_changes_nothing_by_any_way(address: str, cluster: LocalCluster) -> None:
    viewer = reader_as(address, Role.viewer)
    for entry in ACTIONS:
        path = entry.path.format(**PLACES, broker=cluster.broker_name(0))
        for each in (path, f"/api{path}", f"{path}?typed=orders", f"/api{path}?plan=1"):
            assert viewer.post(each, {"typed": "orders"}).status == 403, each
            assert viewer.get(each).status == 403, each
            as_json = b'{"token": "%s", "typed": "orders"}' % viewer.token.encode()
            assert viewer.ask("POST", each, as_json, {"Content-Type": "application/json"}).status == 403, each
        for method in ("PUT", "DELETE", "PATCH"):
            assert viewer.ask(method, path, b"", {"X-CSRF-Token": viewer.token}).status == 405, (method, path)


def test_who_was_taken_from_the_file_follows_no_longer(cluster: LocalCluster, tmp_path: Path) -> None:
    people = tmp_path / "people"
    people.write_text(people_with(Role.viewer, Role.admin))
    with RunningDashboard(DashboardOptions(namesrv=cluster.namesrv, port=0, users=str(people))) as running:
        reader = reader_as(running.address, Role.viewer)
        follows = threading.Event()
        following = threading.Thread(target=reader.stream, args=("/raw/tail?topic=orders", [], 1, follows))
        following.start()
        assert follows.wait(60)
        people.write_text(people_with(Role.admin))
        following.join(60)
        assert not following.is_alive()


# -- other machines, where nobody logs in


def test_without_logins_a_proxy_is_not_served(cluster: LocalCluster) -> None:
    with RunningDashboard(DashboardOptions(namesrv=cluster.namesrv, port=0)) as running:
        reader = Reader(running.address)
        for name, value, status in (
            ("X_Forwarded_For", "203.0.113.9", 403), ("X_Forwarded_For", "127.0.0.1, 203.0.113.9", 403),
            ("X_Real_IP", "203.0.113.9", 403), ("X_Forwarded_For", "127.0.0.1", 200), ("X_Real_IP", "::1", 200),
        ):  # fmt: skip
            assert reader.get("/", **{name: value}).status == status, value
    named = DashboardOptions(namesrv=cluster.namesrv, port=0, public_url="https://ops.example.org/mq")
    with pytest.raises(InvalidArgumentError, match="nobody would have to log in"), RunningDashboard(named):
        pass


def test_odd_requests_are_answered(address: str) -> None:
    odd = ("/%ff%fe", "/topics/%00", "/topics?q=%ff&page=%00", "/" + "a/" * 500, "//evil", "/topics/..%2f..",
           "/static/..%2fweb.py")  # fmt: skip
    for target in odd:
        parts = urlsplit(address)
        connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=60)
        connection.putrequest("GET", target, skip_host=True)
        connection.putheader("Host", "localhost")
        connection.endheaders()
        assert connection.getresponse().status in (303, 404), target
        connection.close()
