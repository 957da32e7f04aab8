"""Every page and every change of the dashboard, as everybody and nobody: real servers, real HTTP."""

from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("starlette", reason="the extra `dashboard` is not installed")

from aerobee.dashboard.options import DashboardOptions
from aerobee.dashboard.registry import ACTIONS, PAGES
from aerobee.dashboard.security import Role
from aerobee.dashboard.usersfile import line_of
from aerobee.errors import InvalidArgumentError
from aerobee.runtime.entropy import SystemEntropy
from aerobee.sync import Producer
from aerobee.testing.cluster import LocalCluster
from aerobee.testing.dashboardkit import Reader, RunningDashboard
from aerobee.testing.secrets import secret_for

BODY = b"<script>alert(1)</script>"
PASSWORD = secret_for("people")
PLACES = {"topic": "orders", "group": "billing", "message_id": "none", "broker": "broker-0", "user": "anna"}


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(brokers=2) as running:
        running.create_topic("orders", 2)
        with Producer(running.namesrv) as producer:
            producer.send(
                "orders", b"<script>alert(1)</script>", tags="<script>", keys="evil", properties={"<b>": "<i>"}
            )
        yield running


@pytest.fixture(scope="module")
def address(cluster: LocalCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    people = tmp_path_factory.mktemp("dashboard") / "people"
    lines = [line_of(role.name, role, PASSWORD, SystemEntropy().token) for role in Role]
    people.write_text("\n".join(lines))
    options = DashboardOptions(namesrv=cluster.namesrv, port=0, users=str(people), step_s=1.0)
    with RunningDashboard(options) as running:
        yield running.address


def reader_as(address: str, role: Role | None) -> Reader:
    reader = Reader(address)
    if role is not None:
        assert reader.login(role.name, PASSWORD).status == 303
    return reader


def path_of(pattern: str, cluster: LocalCluster) -> str:
    return pattern.format(**{**PLACES, "broker": cluster.broker_name(0), "name": "anna", "replica": "1"})


def test_dashboard_roles(address: str, cluster: LocalCluster) -> None:
    """Nobody gets 401, too small a role 403, and the others come as far as the check of the fields."""
    readers = {role: reader_as(address, role) for role in (None, *Role)}
    for entry in ACTIONS:
        for role, reader in readers.items():
            path = path_of(entry.path, cluster)
            expected = 401 if role is None else 403 if role < entry.role else None
            # A name that does not fit, so that a destructive change stops at its last check.
            reply = reader.post(path, {"typed": "\0"}) if entry.named or expected is not None else reader.get(path)
            if expected is None:
                assert reply.status not in (401, 403), (path, role)
                if entry.named:
                    assert reply.status == 400, (path, role, reply.text)
            else:
                assert reply.status == expected, (path, role)


def test_pages_need_a_login_and_then_answer_as_html_and_json(address: str, cluster: LocalCluster) -> None:
    nobody, viewer = reader_as(address, None), reader_as(address, Role.viewer)
    for entry in PAGES:
        path = path_of(entry.path, cluster)
        assert nobody.get(path).status == 303
        assert nobody.get(f"/api{path}".rstrip("/")).status == 401
        page, told = viewer.get(path), viewer.get(f"/api{path}".rstrip("/"))
        assert page.status == told.status, path
        assert page.status in (200, 404), (path, page.text)
        assert "default-src 'none'" in page.headers["content-security-policy"]
        assert page.headers["content-type"] == "text/html; charset=utf-8"
        assert isinstance(told.json(), dict)


def test_get_never_changes(address: str, cluster: LocalCluster) -> None:
    admin = reader_as(address, Role.admin)
    reply = admin.get("/topics/create?plan=1&topic=made-by-get&queues=2")
    assert "made-by-get is made with 2 queues" in reply.text
    admin.get("/topics/orders/delete?typed=orders&plan=1")
    assert admin.get("/topics/made-by-get").status == 404
    assert admin.get("/topics/orders").status == 200


def test_dashboard_csrf_and_csp(address: str) -> None:
    admin = reader_as(address, Role.admin)
    fields = {"topic": "never", "queues": "1"}
    assert admin.post("/topics/create", fields, Origin="http://evil.example").status == 403
    assert admin.post("/topics/create", fields, Sec_Fetch_Site="cross-site").status == 403
    assert admin.post("/topics/create", {**fields, "token": ""}).status == 403
    old = admin.token
    admin.login("admin", PASSWORD)
    other = reader_as(address, Role.admin)
    assert other.post("/topics/create", {**fields, "token": old}).status == 403
    assert other.post("/topics/create", {**fields, "token": admin.token}).status == 403
    assert other.get("/topics/never").status == 404
    found = admin.get("/messages?topic=orders&by=key&value=evil").text
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in found
    assert "<script>alert" not in found


def test_a_viewer_sees_no_bodies(address: str) -> None:
    viewer = reader_as(address, Role.viewer)
    (row,) = viewer.get("/api/messages?topic=orders").json()["messages"]["rows"]
    assert "body" not in row
    assert viewer.get(f"/raw/messages/orders/{row['id']}").status == 403
    assert viewer.get("/raw/messages?topic=orders").status == 403
    assert viewer.get("/messages?topic=orders&text=alert").status == 400
    operator = reader_as(address, Role.operator)
    assert operator.get(f"/raw/messages/orders/{row['id']}").body == b"<script>alert(1)</script>"


def test_a_topic_is_made_changed_written_and_deleted(address: str) -> None:
    admin = reader_as(address, Role.admin)
    assert "is on" in admin.post("/topics/create", {"topic": "made", "queues": "2"}).text
    published = admin.post("/topics/made/publish", {"body": "hello", "tags": "T", "properties": "a=b"})
    assert published.status == 200
    (row,) = admin.get("/api/messages?topic=made&tag=T").json()["messages"]["rows"]
    assert row["body"] == "hello"
    assert "4 queues to read" in admin.post("/topics/made/update", {"read": "4", "write": "4"}).text
    assert "<h1>Delete a topic: made</h1>" in admin.get("/topics/made/delete").text
    assert admin.post("/topics/made/delete", {"typed": "mad"}).status == 400
    assert admin.post("/topics/made/delete", {"typed": "made"}).status == 200
    assert admin.get("/topics/made").status == 404
    assert [one["what"] for one in admin.get("/api/audit").json()["events"]["rows"][:2]] == ["Delete a topic"] * 2


def test_a_form_that_was_filled_wrongly_is_shown_again(address: str) -> None:
    """Before, it led to a page without the form, and everything had to be typed again."""
    admin = reader_as(address, Role.admin)
    for path, kept in (
        ("/topics/create?plan=1&topic=re%2Fturns&queues=3", 'name="queues" value="3"'),
        ("/groups/billing/reset?plan=1&topic=orders&to=time&value=yesterday", 'value="yesterday"'),
        ("/dead/billing/resend?plan=1", "choose letters"),
        ("/messages?topic=orders&sql92=amount+%3E&tag=PAID", 'name="tag" value="PAID"'),
        ("/messages?topic=orders&since=yesterday", 'name="since" value="yesterday"'),
        ("/dead/billing?since=yesterday", 'name="since" value="yesterday"'),
        ("/tail?topic=orders&sql92=amount+%3E", 'name="topic" value="orders"'),
    ):
        reply = admin.get(path)
        assert reply.status == 400, path
        assert "note bad" in reply.text, path
        assert kept in reply.text, path
        assert "error" in admin.get(f"/api{path}").json(), path


def test_a_session_that_ended_in_a_form_leads_back_to_it(address: str) -> None:
    operator = reader_as(address, Role.operator)
    operator.post("/logout")
    reply = operator.post("/topics/orders/publish", {"body": "lost"})
    assert reply.status == 401
    assert "Nothing was changed." in reply.text
    assert 'href="/login?next=%2Ftopics%2Forders%2Fpublish"' in reply.text
    operator.login("operator", PASSWORD)
    old = operator.post("/topics/orders/publish", {"body": "lost", "token": "old"})
    assert old.status == 403
    assert 'href="/topics/orders/publish"' in old.text
    assert operator.get("/login?next=%2Ftopics").headers["location"] == "/topics"


def test_find_shows_what_people_made_first(address: str) -> None:
    viewer = reader_as(address, Role.viewer)
    kinds = [row["kind"] for row in viewer.get("/api/find?q=o&topics.size=500").json()["topics"]["rows"]]
    assert kinds[0] == "normal"
    assert kinds == sorted(kinds)
    by_id = viewer.get("/api/find?q=" + "0" * 32).json()["message"]
    assert by_id["text"] == "No message has this offset id. If it is a unique id, name its topic:"


def test_logins_are_throttled_and_wrong_ones_refused(address: str) -> None:
    reader = Reader(address)
    statuses = [reader.login("nobody", "wrong password").status for _ in range(6)]
    assert statuses == [401, 401, 401, 401, 401, 429]


def test_large_bodies_and_wrong_hosts_are_refused(address: str) -> None:
    admin = reader_as(address, Role.admin)
    assert admin.post("/topics/create", {"topic": "x" * 70_000}).status == 413
    assert admin.get("/topics", Host="evil.example").status == 421
    chunked = {"Content-Type": "application/x-www-form-urlencoded", "Content-Length": "12x"}
    assert admin.ask("POST", "/topics/create", b"token=1", chunked).status in (400, 413)


def test_logins_without_tls_are_not_taken_from_other_machines(cluster: LocalCluster, tmp_path: Path) -> None:
    people = tmp_path / "people"
    people.write_text(line_of("anna", Role.admin, PASSWORD, SystemEntropy().token))
    options = DashboardOptions(namesrv=cluster.namesrv, host="0.0.0.0", port=0, users=str(people))
    with pytest.raises(InvalidArgumentError, match="in the clear"), RunningDashboard(options):
        pass


def test_without_users_other_machines_are_not_served(cluster: LocalCluster) -> None:
    with (
        pytest.raises(InvalidArgumentError, match="nobody would have to log in"),
        RunningDashboard(DashboardOptions(namesrv=cluster.namesrv, host="0.0.0.0", port=0)),
    ):
        pass


def test_everybody_is_admin_on_loopback_without_users_and_viewer_where_it_is_read_only(cluster: LocalCluster) -> None:
    for read_only, role in ((False, "admin"), (True, "viewer")):
        options = DashboardOptions(namesrv=cluster.namesrv, port=0, read_only=read_only)
        with RunningDashboard(options) as running:
            reader = Reader(running.address)
            assert reader.meet()["role"] == role
            expected = 403 if read_only else 400
            assert reader.post("/topics/create", {}).status == expected
