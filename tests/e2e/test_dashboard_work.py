"""What people do with the dashboard: groups, dead letters, tails, what waits, users. Real servers, real HTTP."""

import json
import logging
import threading
from collections.abc import Iterator

import pytest

pytest.importorskip("starlette", reason="the extra `dashboard` is not installed")


from aerobee.dashboard.options import DashboardOptions
from aerobee.dashboard.registry import ACTIONS, PAGES
from aerobee.sync import Admin, Producer
from aerobee.testing.cluster import LocalCluster
from aerobee.testing.dashboardkit import Reader, RunningDashboard
from aerobee.testing.dashboardshop import DEAD, GROUP, TOPIC, fill_shop
from aerobee.testing.secrets import secret_for
from aerobee.testing.waiting import wait_until

_SECRET = secret_for("anna")


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(secure=True) as running:
        fill_shop(running)
        yield running


@pytest.fixture(scope="module")
def address(cluster: LocalCluster) -> Iterator[str]:
    options = DashboardOptions(
        namesrv=cluster.namesrv,
        port=0,
        step_s=1.0,
        tls=cluster.client_options["tls"],  # type: ignore[arg-type]
    )
    with RunningDashboard(options) as running:
        yield running.address


@pytest.fixture(scope="module")
def admin(cluster: LocalCluster, address: str) -> Reader:
    assert cluster.security is not None
    reader = Reader(address)
    reply = reader.login(cluster.security.admin.access_key, cluster.security.admin.secret_key)
    assert reply.status == 303, reply.text
    return reader


def test_the_server_signs_as_the_user_who_logged_in(cluster: LocalCluster, address: str) -> None:
    options = cluster.add_user("bert", {"Topic:payments": "Sub,Get", "Group:TOOLS_CONSUMER": "Sub"})
    reader = Reader(address)
    assert reader.login("bert", "wrong").status == 401
    assert reader.login("bert", str(options["secret_key"])).status == 303
    assert reader.meet()["role"] == "operator"
    assert reader.get("/api/messages?topic=payments").json()["messages"]["total"] == 1
    refused = reader.get(f"/messages?topic={TOPIC}")
    assert refused.status == 403
    assert "Not allowed" in refused.text
    assert reader.post("/topics/payments/publish", {"body": "x"}).status == 403
    assert [one["topic"] for one in reader.get("/api/topics").json()["topics"]["rows"]] in (["payments"], [])
    assert str(options["secret_key"]) not in reader.get("/").text


def test_a_group_is_reset_with_a_plan(admin: Reader) -> None:
    plan = admin.get(f"/api/groups/{GROUP}/reset?plan=1&topic={TOPIC}&to=first").json()
    assert plan["problem"] == ""
    assert sum(row["replayed"] for row in plan["queues"]["rows"]) > 0
    before = admin.get(f"/api/groups/{GROUP}").json()["group"]["Unconsumed"]
    done = admin.post(f"/groups/{GROUP}/reset", {"topic": TOPIC, "to": "first"})
    assert done.status == 200, done.text
    assert admin.get(f"/api/groups/{GROUP}").json()["group"]["Unconsumed"] > before
    wrong = admin.post(f"/groups/{GROUP}/reset", {"topic": TOPIC, "to": "time", "value": "yesterday"})
    assert wrong.status == 400
    assert "is no moment" in wrong.text
    assert admin.post(f"/groups/{GROUP}/reset", {"topic": TOPIC, "to": "last"}).status == 200


def test_a_group_is_made_cloned_changed_and_deleted(admin: Reader) -> None:
    assert admin.post("/groups/create", {"group": "copy", "retries": "3"}).status == 200
    cloned = admin.post(f"/groups/{GROUP}/clone", {"target": "copy", "topic": TOPIC})
    assert cloned.status == 200, cloned.text
    assert admin.get("/api/groups/copy").json()["queues"]["total"] > 0
    assert admin.post("/groups/copy/update", {"consume": "no"}).status == 200
    assert admin.get("/api/groups/copy").json()["settings"]["rows"][0]["consume"] is False
    assert admin.post("/groups/copy/delete", {"typed": "copy"}).status == 200
    assert admin.get("/groups/copy").status == 404


def test_dashboard_dlq_partial(cluster: LocalCluster, admin: Reader) -> None:
    """Of ten letters three cannot be sent: seven are, three are named with their reasons, and it is no success."""
    rows = admin.get(f"/api/dead/{GROUP}").json()["letters"]["rows"]
    assert len(rows) == DEAD
    ids = [row["id"] for row in rows[:7]] + ["0" * 32, "1" * 32, "no id at all".replace(" ", "-")]
    plan = admin.get(f"/dead/{GROUP}/resend?plan=1&" + "&".join(f"ids={one}" for one in ids))
    assert "7 letters are sent to orders again" in plan.text
    assert "These letters are not there" in plan.text
    done = admin.post(f"/api/dead/{GROUP}/resend", {"ids": ids})
    assert done.status == 409
    told = done.json()
    assert told["ok"] is False
    results = {row["letter"]: (row["result"], row["words"]) for row in told["results"]["rows"]}
    assert [results[one][0] for one in ids] == ["sent"] * 7 + ["failed"] * 3
    assert results[ids[-1]][1] == "the group has no such letter"
    whole = admin.post(f"/api/dead/{GROUP}/resend", {"ids": ids[:1]})
    assert whole.json()["ok"] is True


def test_dead_letters_of_a_topic_that_is_gone_fail_by_name(cluster: LocalCluster, admin: Reader) -> None:
    with Admin(cluster.namesrv, **cluster.client_options) as own:
        own.topics.create("gone", queues=1)
    assert admin.post("/topics/gone/delete", {"typed": "gone"}).status == 200
    export = admin.get(f"/raw/dead/{GROUP}?format=jsonl")
    letters = [json.loads(line) for line in export.body.splitlines()]
    assert len(letters) == DEAD
    assert {one["origin_topic"] for one in letters} == {TOPIC}
    assert admin.get(f"/raw/dead/{GROUP}?format=csv").text.count("\n") >= DEAD


def test_found_messages_are_exported_whole(admin: Reader) -> None:
    query = f"topic={TOPIC}&tag=PAID&limit=5&sql92="
    shown = [row["id"] for row in admin.get(f"/api/messages?{query}").json()["messages"]["rows"]]
    lines = [json.loads(one) for one in admin.get(f"/raw/messages?{query}").body.splitlines()]
    assert [one["message_id"] for one in lines] == shown
    assert json.loads(lines[0]["body"])["lines"][0]["count"] == 2
    assert {one["tags"] for one in lines} == {"PAID"}
    (evil,) = admin.get(f"/raw/messages?topic={TOPIC}&by=key&value=evil&format=csv").text.splitlines()[1:]
    assert "<script>alert(1)</script>" in evil
    assert f"/raw/messages?topic={TOPIC}" in admin.get(f"/messages?{query}").text
    assert admin.get("/raw/messages").status == 400


def test_what_waits_is_listed(admin: Reader) -> None:
    told = admin.get("/api/waiting").json()
    assert told["waiting"]["With a time of delivery"] == 5
    assert {row["group"] for row in told["held"]["rows"]} == {"packers"}
    assert told["heldmessages"]["rows"]


def test_users_rights_and_why(cluster: LocalCluster, admin: Reader) -> None:
    made = admin.post("/users/create", {"name": "dora", "secret": _SECRET})
    assert made.status == 200, made.text
    assert _SECRET not in made.text
    asked = f"/api/users/why?user=dora&resource=Topic:{TOPIC}&action=Pub"
    assert admin.get(asked).json()["verdicts"]["rows"][0]["allowed"] == "no"
    granted = admin.post("/users/rights/grant", {"user": "dora", "resource": f"Topic:{TOPIC}", "actions": "Pub"})
    assert granted.status == 200, granted.text
    assert admin.get(asked).json()["verdicts"]["rows"][0]["allowed"] == "yes"
    wrong = admin.post("/users/rights/grant", {"user": "dora", "resource": "Topic:T*x*", "actions": "Pub"})
    assert wrong.status == 400
    slash = admin.post("/users/create", {"name": "a/b", "secret": _SECRET})
    assert slash.status == 400
    assert "every server refused it" in slash.text
    assert admin.post("/users/rights/revoke", {"user": "dora", "resource": f"Topic:{TOPIC}"}).status == 200
    assert admin.get(asked).json()["verdicts"]["rows"][0]["allowed"] == "no"
    assert admin.post("/users/dora/delete", {"typed": "dora"}).status == 200
    shown = [row["user"] for row in admin.get("/api/users").json()["users"]["rows"]]
    assert "dora" not in shown
    assert "admin" in shown
    assert _SECRET not in admin.get("/audit").text


def test_a_secret_that_is_made_is_shown_once(admin: Reader) -> None:
    made = admin.post("/api/users/create", {"name": "emil"}).json()
    assert len(made["secret"]) == 48
    assert made["secret"] not in admin.get("/audit").text + admin.get("/users").text
    admin.post("/users/emil/delete", {"typed": "emil"})


def test_the_tail_streams_what_matches(cluster: LocalCluster, admin: Reader) -> None:
    reply: list[str] = []
    began = threading.Event()
    reading = threading.Thread(target=lambda: admin.stream(f"/raw/tail?topic={TOPIC}&tag=TAILED", reply, 3, began))
    reading.start()
    assert began.wait(60)
    with Producer(cluster.namesrv, **cluster.client_options) as producer:
        for number in range(3):
            producer.send(TOPIC, b"no", tags="OTHER")
            producer.send(TOPIC, b"tailed %d" % number, tags="TAILED")
    reading.join(60)
    assert sorted(reply) == ["tailed 0", "tailed 1", "tailed 2"]


def test_a_scan_says_how_far_it_came_and_goes_on(admin: Reader) -> None:
    seen: list[str] = []
    path = f"/messages?topic={TOPIC}&limit=20"
    for _ in range(20):
        told = admin.get(f"/api{path}").json()
        seen += [row["id"] for row in told["messages"]["rows"]]
        if "There are no more" in told["looked"]["text"]:
            break
        page = admin.get(path).text
        path = page.partition('id="b-looked"')[2].partition('href="')[2].partition('"')[0].replace("&amp;", "&")
    assert len(seen) == len(set(seen))
    assert len(seen) >= 61


def test_sql92_tag_text_and_place_find(admin: Reader) -> None:
    def found(query: str) -> list[str]:
        return [
            row["keys"]
            for row in admin.get(f"/api/messages?topic={TOPIC}&limit=200&{query}").json()["messages"]["rows"]
        ]

    assert set(found("sql92=amount+%3E+170")) == {"o-57", "o-58", "o-59"}
    assert "evil" in found("tag=%3Cscript%3E")
    assert found("by=key&value=o-7")[0] == "o-7"
    assert "o-33" in found("text=A-33")
    assert admin.get(f"/messages?topic={TOPIC}&sql92=amount+%3E").status == 400
    assert admin.get(f"/messages?topic={TOPIC}&by=place&value=0:99999").status == 404
    assert admin.get("/messages?topic=nix").status == 404


def test_settings_hide_secrets_and_tell_sources(admin: Reader, cluster: LocalCluster) -> None:
    assert cluster.security is not None
    page = admin.get(f"/brokers/{cluster.broker_name(0)}/settings")
    assert cluster.security.admin.secret_key not in page.text
    path = f"/brokers/{cluster.broker_name(0)}/settings"
    assert admin.post(f"{path}/change", {"key": "fileReservedTime", "value": "71"}).status == 200
    rows = {row["key"]: row for row in admin.get(f"/api{path}").json()["settings"]["rows"]}
    assert (rows["fileReservedTime"]["value"], rows["fileReservedTime"]["source"]) == ("71", "wire")
    assert admin.post(f"{path}/change", {"key": "fileReservedTime", "unset": "1"}).status == 200
    assert admin.get(f"/api{path}?source=wire").json()["settings"]["rows"] == []
    assert admin.get(f"/api{path}/change?plan=1&key=nix").json()["problem"].endswith("has no setting nix.")


def test_who_is_no_super_user_any_more_is_logged_out(cluster: LocalCluster, address: str) -> None:
    """What a Super user sees may be read by the dashboard's own user, so the cluster alone would not refuse it."""
    readers = {}
    for name in ("carl", "dora", "emil"):
        options = cluster.add_user(name, {"Topic:payments": "Sub,Get"})
        if name != "emil":
            with Admin(cluster.namesrv, **cluster.client_options) as admin:
                admin.users.update(name, is_super=True)
        readers[name] = reader = Reader(address)
        assert reader.login(name, str(options["secret_key"])).status == 303
        assert reader.meet()["role"] == ("operator" if name == "emil" else "admin")
    with Admin(cluster.namesrv, **cluster.client_options) as admin:
        admin.users.update("carl", is_super=False)
        admin.users.delete("dora")
        admin.rights.revoke("emil", "Topic:payments")
    for name in ("carl", "dora"):
        wait_until(lambda reader=readers[name]: reader.get("/api/audit").status == 401, f"{name} is logged out")
    assert readers["emil"].get("/api/audit").status == 200


def test_the_dashboard_shows_and_logs_no_secret(
    cluster: LocalCluster, address: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Test 15 for the dashboard: each page and each form, as HTML and as JSON, read by a Super user."""
    assert cluster.security is not None
    caplog.set_level(logging.DEBUG)
    logging.getLogger("aerobee").propagate = True
    admin = cluster.security.admin
    secrets = [admin.secret_key, str(cluster.add_user("gina", {})["secret_key"])]
    reader, seen = Reader(address), []
    assert reader.login(admin.access_key, "wrong" + secrets[0]).status == 401
    assert reader.login(admin.access_key, secrets[0]).status == 303
    places = {"topic": TOPIC, "group": GROUP, "message_id": "none", "broker": cluster.broker_name(0), "replica": "1"}
    for entry in (*PAGES, *ACTIONS):
        path = entry.path.format(**places, user="gina", name="gina")
        for each in (path, f"/api{path}".rstrip("/")):
            reply = reader.get(each)
            assert reply.status < 500, (each, reply.text)
            seen.append(reply.text)
    assert sum("gina" in text for text in seen) > 3
    assert not any(secret in text for secret in secrets for text in (*seen, caplog.text))


def test_a_tail_ends_when_the_dashboard_stops(cluster: LocalCluster, caplog: pytest.LogCaptureFixture) -> None:
    """The stream is ended and not cut off: that took two seconds and wrote a stack trace."""
    assert cluster.security is not None
    who, began = cluster.security.admin, threading.Event()
    tls = cluster.client_options["tls"]
    options = DashboardOptions(namesrv=cluster.namesrv, port=0, credentials=who, tls=tls)  # type: ignore[arg-type]
    with RunningDashboard(options) as running:
        reader = Reader(running.address)
        reader.login(who.access_key, who.secret_key)
        following = threading.Thread(target=lambda: reader.stream(f"/raw/tail?topic={TOPIC}", [], 1 << 30, began))
        following.start()
        assert began.wait(60)
    following.join(60)
    assert not following.is_alive()
    assert [one for one in caplog.records if one.levelno >= logging.ERROR] == []
