"""The dashboard in Chromium: every page and every change, both colour schemes, two widths, axe-core, the keyboard.

`make dashboard-test` runs all of it. `make test` runs the tests that are not marked slow, where Chromium is installed.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("starlette", reason="the extra `dashboard` is not installed")
playwright_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")

# ruff: noqa: E402 - what the tests need is asked for first
from aerobee.dashboard.options import DashboardOptions
from aerobee.dashboard.registry import ACTIONS, PAGES
from aerobee.testing.cluster import LocalCluster
from aerobee.testing.dashboardkit import RunningDashboard
from aerobee.testing.dashboardshop import GROUP, TOPIC, fill_shop
from aerobee.testing.secrets import secret_for

CHROMIUM = os.environ.get("AEROBEE_CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
AXE = Path(__file__).parents[2] / ".build" / "axe" / "axe.min.js"
FLAGS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
]  # fmt: skip

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed (apt-get install chromium)")


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(replicas=3, secure=True) as running:
        fill_shop(running)
        yield running


@pytest.fixture(scope="module")
def address(cluster: LocalCluster) -> Iterator[str]:
    assert cluster.security is not None
    tls = cluster.client_options["tls"]
    options = DashboardOptions(
        namesrv=cluster.namesrv,
        port=0,
        step_s=1.0,
        credentials=cluster.security.admin,
        tls=tls,  # type: ignore[arg-type]
    )
    with RunningDashboard(options) as running:
        yield running.address


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with playwright_api.sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield running
        running.close()


class Desk:
    """A page of a browser whose errors are collected. Leaving it checks that there were none."""

    def __init__(
        self, browser: Any, address: str, *, scheme: str = "light", width: int = 1280, zone: str | None = None
    ) -> None:
        self.address = address.rstrip("/")
        size = {"width": width, "height": 900}
        self.context = browser.new_context(color_scheme=scheme, viewport=size, timezone_id=zone)
        self.context.set_default_timeout(60_000)
        self.page = self.context.new_page()
        self.errors: list[str] = []
        self.page.on("console", lambda one: self._heard(one))
        self.page.on("pageerror", lambda error: self.errors.append(f"error: {error}"))

    def _heard(self, message: Any) -> None:
        # An answer of 4xx that a test asks for is told here, too.
        if message.type in ("error", "warning") and "status of 4" not in message.text:
            self.errors.append(f"{message.type}: {message.text} at {self.page.url}")

    def __enter__(self) -> Desk:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self.context.close()
        if error is None:
            assert self.errors == []

    def go(self, path: str) -> Any:
        return self.page.goto(self.address + path)

    def login(self, name: str, secret: str) -> None:
        self.go("/login")
        self.page.fill("#name", name)
        self.page.fill("#secret", secret)
        self.page.press("#secret", "Enter")
        self.page.wait_for_selector("nav#menu", state="attached")

    def words(self) -> str:
        return str(self.page.inner_text("main"))

    def require_accessible(self) -> None:
        """Run axe-core, where it was fetched, and raise for what is serious."""
        if not AXE.exists():
            return
        self.page.evaluate(AXE.read_text() + ";undefined")
        found = self.page.evaluate("() => axe.run({resultTypes: ['violations']})")
        bad = [one for one in found["violations"] if one["impact"] in ("serious", "critical")]
        told = [(one["id"], [node["html"][:200] for node in one["nodes"]][:3]) for one in bad]
        assert not told, f"{self.page.url}: {json.dumps(told, indent=1)}"


@pytest.fixture(scope="module")
def admin(cluster: LocalCluster) -> tuple[str, str]:
    assert cluster.security is not None
    return cluster.security.admin.access_key, cluster.security.admin.secret_key


def places_of(cluster: LocalCluster) -> dict[str, str]:
    return {"topic": TOPIC, "group": GROUP, "broker": cluster.broker_name(0), "name": "anna"}


def paths(cluster: LocalCluster) -> list[str]:
    """Return every page without a message, with a query where the page needs one to show something."""
    queries = {"/messages": f"?topic={TOPIC}", "/tail": f"?topic={TOPIC}", "/find": "?q=o",
               "/users/why": f"?user=anna&resource=Topic:{TOPIC}&action=Pub"}  # fmt: skip
    found = [one.path for one in PAGES if "{message_id}" not in one.path]
    return [path.format(**places_of(cluster)) + queries.get(path, "") for path in found]


def test_a_person_logs_in_looks_around_and_logs_out(browser: Any, address: str, admin: tuple[str, str]) -> None:
    with Desk(browser, address) as desk:
        desk.go("/topics?sort=in_s")
        assert "/login?next=" in desk.page.url
        desk.require_accessible()
        desk.page.fill("#name", admin[0])
        desk.page.fill("#secret", "wrong")
        desk.page.click("main button")
        assert "wrong" in desk.words()
        desk.page.fill("#name", admin[0])
        desk.page.fill("#secret", admin[1])
        desk.page.click("main button")
        desk.page.wait_for_url("**/topics?sort=in_s")
        assert TOPIC in desk.words()
        desk.require_accessible()
        desk.page.click("nav#menu >> text=Overview")
        desk.page.wait_for_selector(".plot canvas")
        desk.page.locator(".plot-words .key").first.wait_for()
        desk.page.click("#b-traffic summary")
        desk.page.locator("#b-traffic td").nth(2).wait_for()
        assert desk.page.inner_text("#b-traffic tr >> nth=0").split("\t") == ["Time (UTC)", "in", "out"]
        desk.require_accessible()
        desk.page.keyboard.press("/")
        desk.page.keyboard.type(TOPIC)
        desk.page.keyboard.press("Enter")
        desk.page.wait_for_selector(f"main a:text-is('{TOPIC}')")
        desk.page.click("text=Log out")
        desk.page.wait_for_url("**/login")
        desk.go("/topics")
        assert "/login" in desk.page.url


def test_messages_are_text_and_nothing_runs(browser: Any, address: str, admin: tuple[str, str]) -> None:
    with Desk(browser, address) as desk:
        desk.login(*admin)
        dialogs: list[str] = []
        desk.page.on("dialog", lambda one: (dialogs.append(one.message), one.dismiss()))
        desk.go(f"/messages?topic={TOPIC}&by=key&value=evil")
        assert "<script>alert(1)</script>" in desk.words()
        desk.page.click("td.c-id a")
        desk.page.wait_for_selector("#b-body pre")
        assert "<script>alert(1)</script>" in desk.page.inner_text("#b-body pre")
        assert "<img src=x onerror=alert(3)>" in desk.words()
        assert dialogs == []
        desk.require_accessible()


def test_the_theme_and_the_zone_are_kept(browser: Any, address: str, admin: tuple[str, str]) -> None:
    with Desk(browser, address) as desk:
        desk.login(*admin)
        desk.page.click("button.theme")
        desk.page.click("button.theme")
        assert desk.page.evaluate("document.documentElement.dataset.theme") == "dark"
        desk.page.click("button.zone")
        desk.go("/topics")
        assert desk.page.evaluate("document.documentElement.dataset.theme") == "dark"
        assert desk.page.evaluate("document.documentElement.dataset.zone") == "local"


def test_a_page_that_is_no_longer_renewed_says_so(browser: Any, address: str, admin: tuple[str, str]) -> None:
    """The session ends while the page is open. Before, it went on showing what was true then."""
    with Desk(browser, address) as desk:
        desk.login(*admin)
        desk.go("/brokers")
        assert desk.page.is_hidden("#stale")
        began = desk.page.inner_text("#b-asof")
        renew = "() => htmx.trigger(document.querySelector('.renew'), 'renew')"
        desk.page.evaluate("() => document.querySelector('.renew').setAttribute('hx-trigger', 'renew')")
        desk.page.evaluate("() => htmx.process(document.querySelector('.renew'))")
        desk.page.evaluate(renew)
        desk.page.wait_for_function("before => document.getElementById('b-asof').innerText !== before", arg=began)
        desk.context.clear_cookies()
        desk.page.evaluate(renew)
        desk.page.wait_for_selector("#stale:has-text('The session has ended')")
        desk.require_accessible()


# The tables of which one must scroll to the side.
_CUT = """() => [...document.querySelectorAll('main .scroll')]
  .filter(one => one.scrollWidth > one.clientWidth + 1).map(one => one.parentElement.id)"""


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_dashboard_a11y(
    browser: Any, address: str, cluster: LocalCluster, admin: tuple[str, str], scheme: str, width: int
) -> None:
    """On every page and form, axe finds nothing serious, and none is wider than the screen."""
    assert AXE.exists(), "`make axe` fetches it"
    with Desk(browser, address, scheme=scheme, width=width) as desk:
        desk.login(*admin)
        forms = [one.path.format(**places_of(cluster)) for one in ACTIONS]
        for path in [*paths(cluster), *forms]:
            answer = desk.go(path)
            assert answer.status in (200, 400), (path, answer.status, desk.words())
            desk.page.wait_for_load_state("load")
            desk.require_accessible()
            wide = desk.page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
            assert wide <= 1, f"{path} is {wide} px wider than the screen of {width}"
            if width == 390:
                desk.page.set_viewport_size({"width": 320, "height": 900})
                wide = desk.page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
                cut = desk.page.evaluate(_CUT)
                assert (wide <= 1, cut) == (True, []), f"{path} does not fit 320 px: {wide} px too wide, {cut} are cut"
                desk.page.set_viewport_size({"width": width, "height": 900})


# Keeps what can be used by a click, and returns how many there are.
_MARK = """() => {
  const all = document.querySelectorAll('main a, main button, main input, main select, main textarea');
  window.wanted = [...all].filter(one => one.type !== 'hidden' && one.offsetParent !== null);
  return window.wanted.length;
}"""


@pytest.mark.slow
def test_the_keyboard_reaches_every_action(
    browser: Any, address: str, cluster: LocalCluster, admin: tuple[str, str]
) -> None:
    with Desk(browser, address) as desk:
        desk.login(*admin)
        for path in (f"/topics/{TOPIC}", f"/groups/{GROUP}", f"/dead/{GROUP}", f"/topics/{TOPIC}/delete"):
            desk.go(path)
            count = desk.page.evaluate(_MARK)
            reached = set()
            for _ in range(count + 60):
                desk.page.keyboard.press("Tab")
                reached.add(desk.page.evaluate("() => window.wanted.indexOf(document.activeElement)"))
            assert set(range(count)) <= reached, f"{path}: {count} and {sorted(reached)}"


def fill_and_plan(desk: Desk, path: str, fields: dict[str, str]) -> None:
    desk.go(path)
    for name, value in fields.items():
        field = desk.page.locator(f"form.search [name={name}]")
        kind = field.evaluate("one => one.tagName === 'SELECT' ? 'select' : one.type")
        if kind == "select":
            field.select_option(value)
        elif kind == "checkbox":
            field.set_checked(bool(value))
        else:
            field.fill(value)
    if fields:
        desk.page.click("text=Show what it would do")


def do_it(desk: Desk, late: dict[str, str] | None = None, typed: str = "") -> str:
    """Fill what comes after the plan, confirm, and return the words of the result."""
    for name, value in (late or {}).items():
        desk.page.fill(f"form.go [name={name}]", value)
    if typed:
        desk.page.fill("#typed", typed)
    desk.page.click("form.go button")
    desk.page.wait_for_selector("#b-outcome")
    desk.require_accessible()
    return desk.words()


@pytest.mark.slow
def test_every_change_says_before_and_after(
    browser: Any, address: str, cluster: LocalCluster, admin: tuple[str, str]
) -> None:
    """Each change of the registry is done once by clicks."""
    done: set[str] = set()
    broker = cluster.broker_name(0)
    with Desk(browser, address) as desk:
        desk.login(*admin)

        def change(pattern: str, path: str, fields: dict[str, str], expected: str, **how: Any) -> None:
            fill_and_plan(desk, path, fields)
            desk.page.wait_for_selector("#b-plan")
            assert re.search(expected, do_it(desk, **how)), (path, desk.words())
            assert desk.page.inner_text("#b-outcome h2") == "Done", desk.words()
            done.add(pattern)

        change("/topics/create", "/topics/create", {"topic": "made", "queues": "2"}, "Topic made is on")
        change("/topics/{topic}/publish", "/topics/made/publish", {}, "is stored", late={"body": "hello", "tags": "T"})
        change("/topics/{topic}/update", "/topics/made/update", {"read": "4", "write": "4"}, "4 queues to read")
        change("/topics/{topic}/copy", f"/topics/{TOPIC}/copy", {"to": "made"}, "messages were copied to made")
        change("/groups/create", "/groups/create", {"group": "readers"}, "Group readers is on")
        change("/groups/{group}/update", "/groups/readers/update", {"retries": "3"}, "is changed on")
        change("/groups/{group}/reset", "/groups/readers/reset", {"topic": TOPIC, "to": "first"}, "are reset")
        change(
            "/groups/{group}/clone", f"/groups/{GROUP}/clone", {"target": "readers", "topic": TOPIC}, "goes on where"
        )
        desk.go(f"/dead/{GROUP}")
        desk.page.locator("td.pick input").first.check()
        desk.page.click("form.picks button")
        desk.page.wait_for_selector("#b-plan")
        assert "1 letter was sent again" in do_it(desk)
        done.add("/dead/{group}/resend")
        settings = f"/brokers/{broker}/settings/change"
        change("/brokers/{broker}/settings/change", settings, {"key": "fileReservedTime", "value": "71"}, "is 71 now")
        change("/brokers/{broker}/drain", f"/brokers/{broker}/drain", {}, "takes no messages any more")
        change("/brokers/{broker}/undrain", f"/brokers/{broker}/undrain", {}, "takes messages again")
        change(
            "/users/create", "/users/create", {"name": "carl"}, "carl can log in", late={"secret": secret_for("carl")}
        )
        change("/users/{name}/update", "/users/carl/update", {"status": "disable"}, "carl is changed")
        right = {"user": "carl", "resource": "Topic:made", "actions": "Pub,Sub"}
        change("/users/rights/grant", "/users/rights/grant", right, "is in force")
        right = {"user": "carl", "resource": "Topic:made"}
        change("/users/rights/revoke", "/users/rights/revoke", right, "is gone")
        change("/users/{name}/delete", "/users/carl/delete", {}, "carl is deleted", typed="carl")
        change("/groups/{group}/delete", "/groups/readers/delete", {}, "is deleted", typed="readers")
        change("/topics/{topic}/delete", "/topics/made/delete", {}, "is deleted", typed="made")
        quota = {"kind": "user", "name": "anna", "messages": "1000"}
        change("/quotas/set", "/quotas/set", quota, "user:anna messages=1000: the quota is set")
        change("/quotas/remove", "/quotas/remove", {"kind": "user", "name": "anna"}, "has no quota on")
        other = next(number for number in (1, 2, 3) if number != cluster.master(0))
        switch = f"/replicas/{broker}/switch"
        change("/replicas/{broker}/switch", switch, {"replica": str(other)}, f"Replica {other} leads", typed=broker)
        assert cluster.master(0) == other
    assert done == {one.path for one in ACTIONS}


def test_a_second_click_changes_nothing(
    browser: Any, address: str, cluster: LocalCluster, admin: tuple[str, str]
) -> None:
    """Two clicks published two messages."""
    with Desk(browser, address) as desk:
        desk.login(*admin)
        before = len(cluster.messages("payments"))
        desk.go("/topics/payments/publish")
        desk.page.fill("form.go [name=body]", "once")
        desk.page.evaluate("() => { const go = document.querySelector('form.go button'); go.click(); go.click(); }")
        desk.page.wait_for_selector("#b-outcome")
        assert len(cluster.messages("payments")) == before + 1
        # Neither a reload nor the way back and forth repeats it.
        desk.page.reload()
        assert desk.page.url.endswith("/topics/payments")
        desk.page.go_back()
        assert desk.page.inner_text("form.go button") == "Publish it"
        desk.page.go_forward()
        assert len(cluster.messages("payments")) == before + 1


def test_one_box_chooses_all_letters(browser: Any, address: str, admin: tuple[str, str]) -> None:
    with Desk(browser, address) as desk:
        desk.login(*admin)
        desk.go(f"/dead/{GROUP}")
        count = desk.page.locator("td.pick input").count()
        desk.page.check("th.pick input")
        assert desk.page.locator("td.pick input:checked").count() == count
        assert desk.page.inner_text("form.picks p button") == f"Send the chosen again ({count})"
        desk.page.locator("td.pick input").first.uncheck()
        assert desk.page.evaluate("document.querySelector('th.pick input').indeterminate")
        desk.require_accessible()
        desk.page.click("form.picks p button")
        assert f"{count - 1} letters are sent to {TOPIC} again" in desk.words()


def test_times_change_their_zone_everywhere(browser: Any, address: str, admin: tuple[str, str]) -> None:
    with Desk(browser, address, zone="Asia/Kolkata") as desk:
        desk.login(*admin)
        desk.go(f"/messages?topic={TOPIC}&by=key&value=o-7")
        shown = "td.c-stored .at >> nth=0"
        utc = datetime.fromisoformat(desk.page.inner_text(shown))
        desk.page.click("button.zone")
        local = datetime.fromisoformat(desk.page.inner_text(shown))
        assert local - utc == timedelta(hours=5, minutes=30)
        assert "Times are local (Asia/" in desk.words()


@pytest.mark.slow
def test_the_tail_shows_what_arrives(browser: Any, address: str, cluster: LocalCluster, admin: tuple[str, str]) -> None:
    from aerobee.sync import Producer

    with Desk(browser, address) as desk:
        desk.login(*admin)
        desk.go(f"/tail?topic={TOPIC}&tag=TAILED")
        desk.page.locator(".tail-state", has_text="following").wait_for()
        with Producer(cluster.namesrv, **cluster.client_options) as producer:
            for number in range(5):
                producer.send(TOPIC, b"seen %d" % number, tags="TAILED")
                producer.send(TOPIC, b"not seen", tags="OTHER")
        desk.page.locator(".tail tbody tr").nth(4).wait_for()
        rows = desk.page.inner_text(".tail tbody")
        assert "seen 4" in rows
        assert "not seen" not in rows
        assert desk.page.locator(".tail tbody tr").count() == 5
        desk.page.click(".tail-stop")
        assert "stopped" in desk.page.inner_text(".tail-state")
