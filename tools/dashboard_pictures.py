#!/usr/bin/env python3
"""Takes pictures of the dashboard from a running shop: two groups of three replicas, users, live traffic, Spark.

    tools/dashboard_pictures.py docs/img           # the pictures of docs/dashboard.md and README.md
    tools/dashboard_pictures.py --all out/pages    # every page and form, light and dark, wide and narrow, to look at
    tools/dashboard_pictures.py --serve            # the shop alone, to click through: it prints the address and a user

It needs Chromium, and playwright, Pillow and PySpark from requirements-dev.txt. Without Java the Spark pages show no
query.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from PIL import Image
from playwright.sync_api import sync_playwright

from aerobee.dashboard.options import DashboardOptions, LocalPlaces
from aerobee.dashboard.registry import ACTIONS, PAGES
from aerobee.testing.cluster import LocalCluster
from aerobee.testing.dashboardkit import RunningDashboard
from aerobee.testing.dashboardshop import GROUP, TOPIC, fill_shop, traffic

CHROMIUM = os.environ.get("AEROBEE_CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
FLAGS = ["--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking", "--hide-scrollbars"]
SIZE_MAX = 200_000
# Name of the file, page, colour scheme, width, height. The height of None takes the whole page.
WANTED: list[tuple[str, str, str, int, int | None]] = [
    ("dashboard", "/", "light", 1280, 960),
    ("dashboard-dark", "/", "dark", 1280, 900),
    ("dashboard-message", "{message}", "light", 1280, 900),
    ("dashboard-group", f"/groups/{GROUP}", "light", 1280, 900),
    ("dashboard-dead", f"/dead/{GROUP}", "dark", 1280, 760),
    ("dashboard-replicas", "/replicas/broker-a", "light", 1280, 700),
    ("dashboard-spark", "/spark/checkpoints", "dark", 1280, 560),
    ("dashboard-reset", f"/groups/{GROUP}/reset?plan=1&topic={TOPIC}&to=first", "light", 1280, 800),
    ("dashboard-why", "/users/why?user=anna&resource=Topic:payments&action=Pub", "light", 1280, 620),
    ("dashboard-phone", "/", "light", 390, 844),
]
SPARK = """
import sys
from pyspark_rocketmq.session import session
namesrv, checkpoints, ca, key, secret = sys.argv[1:]
login = {"nameServer": namesrv, "tlsCa": ca, "accessKey": key, "secretKey": secret}
spark = session()
orders = {**login, "topic": "orders", "group": "spark-totals", "startingOffsets": "earliest"}
rows = spark.readStream.format("rocketmq").options(**orders).load().selectExpr("body", "keys")
target = {**login, "topic": "totals", "createTopics": "true", "deliveryGuarantee": "exactly-once"}
query = rows.writeStream.format("rocketmq").options(**target, checkpointLocation=checkpoints)
query.trigger(processingTime="4 seconds").start().awaitTermination()
"""


@contextmanager
def shop(spark: bool) -> Iterator[tuple[LocalCluster, str]]:
    """Run the cluster, its traffic, Spark and the dashboard. Yield the cluster and the address."""
    with tempfile.TemporaryDirectory(prefix="aerobee-pictures-") as directory:
        project = Path(directory) / "shop"
        (project / "state/start/checkpoints").mkdir(parents=True)
        audit = Path(directory) / "audit.log"
        with LocalCluster(brokers=2, replicas=3, secure=True, settings={"auditLogPath": str(audit)}) as cluster:
            security = cluster.security
            assert security is not None
            fill_shop(cluster)
            options = DashboardOptions(
                namesrv=cluster.namesrv,
                port=0,
                step_s=1.0,
                credentials=security.admin,
                tls=cluster.client_options["tls"],  # type: ignore[arg-type]
                places=LocalPlaces((str(audit),), (str(project),), ()),
            )
            with traffic(cluster), RunningDashboard(options) as running:
                child = None
                if spark and shutil.which("java"):
                    arguments = [cluster.namesrv, str(project / "state/start/checkpoints/totals"), security.ca]
                    arguments += [security.admin.access_key, security.admin.secret_key]
                    log = (Path(directory) / "spark.log").open("wb")
                    child = subprocess.Popen(
                        [sys.executable, "-c", SPARK, *arguments], stdout=log, stderr=log, cwd=directory
                    )
                try:
                    yield cluster, running.address
                finally:
                    if child is not None:
                        child.terminate()
                        child.wait()


class Photographer:
    """Somebody logged in who takes pictures."""

    def __init__(self, browser: Any, address: str, cluster: LocalCluster) -> None:
        self._browser, self._address = browser, address.rstrip("/")
        assert cluster.security is not None
        self._login = cluster.security.admin
        self._pages: dict[tuple[str, int, int], Any] = {}

    def page(self, scheme: str, width: int, height: int) -> Any:
        """Return a page of this form, logged in."""
        known = self._pages.get((scheme, width, height))
        if known is not None:
            return known
        context = self._browser.new_context(color_scheme=scheme, viewport={"width": width, "height": height})
        context.set_default_timeout(60_000)
        page = self._pages[scheme, width, height] = context.new_page()
        page.goto(f"{self._address}/login")
        page.fill("#name", self._login.access_key)
        page.fill("#secret", self._login.secret_key)
        page.press("#secret", "Enter")
        page.wait_for_selector("nav#menu", state="attached")
        return page

    def message(self) -> str:
        """Return the path of a message."""
        page = self.page("light", 1280, 900)
        page.goto(f"{self._address}/messages?topic={TOPIC}&by=key&value=o-7")
        return str(page.get_attribute("td.c-id a", "href"))

    def shoot(self, path: str, file: Path, scheme: str, width: int, height: int | None) -> None:
        page = self.page(scheme, width, height or 900)
        page.goto(self._address + path)
        page.wait_for_load_state("networkidle")
        if page.query_selector(".plot"):
            page.locator(".plot canvas").first.wait_for()
        page.mouse.move(0, 0)
        page.wait_for_timeout(400)
        page.screenshot(path=str(file), full_page=height is None)


def small(file: Path) -> None:
    """Write a picture again with 128 colours: screens of text lose nothing that one sees."""
    picture = Image.open(file).convert("RGB").quantize(128, dither=Image.Dither.NONE)
    picture.save(file, optimize=True)
    if file.stat().st_size > SIZE_MAX:
        raise SystemExit(f"{file} has {file.stat().st_size} bytes, and {SIZE_MAX} is the most")


def every_page(message: str) -> dict[str, str]:
    """Return the paths of all pages and forms, by a name for a file."""
    places = {"topic": TOPIC, "group": GROUP, "broker": "broker-a", "name": "anna"}
    queries = {"/messages": f"?topic={TOPIC}", "/tail": f"?topic={TOPIC}", "/find": "?q=o",
               "/users/why": f"?user=anna&resource=Topic:{TOPIC}&action=Pub"}  # fmt: skip
    plans = {
        "/topics/create": "?plan=1&topic=returns&queues=4",
        "/topics/{topic}/copy": "?plan=1&to=payments",
        "/groups/{group}/reset": f"?plan=1&topic={TOPIC}&to=first",
        "/groups/{group}/clone": f"?plan=1&target=packers&topic={TOPIC}",
    }
    paths = [one.path for one in PAGES if "{message_id}" not in one.path]
    found = {path: path.format(**places) + queries.get(path, "") for path in paths}
    found["/one-message"] = message
    found |= {f"/do{one.path}": one.path.format(**places) + plans.get(one.path, "") for one in ACTIONS}
    found["/missing"] = "/topics/no-such-topic"
    return {
        name.strip("/").replace("/", "-").replace("{", "").replace("}", "") or "overview": path
        for name, path in found.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", nargs="?", type=Path, default=Path("docs/img"))
    parser.add_argument("--all", action="store_true", help="take every page in both schemes and two widths")
    parser.add_argument("--serve", action="store_true", help="take nothing, and run until Ctrl-C")
    parser.add_argument("--only", default="", help="take those whose name this expression finds")
    parser.add_argument("--no-spark", action="store_true", help="do not start Spark")
    parser.add_argument("--seconds", type=float, default=90.0, help="how long the shop runs before the first picture")
    given = parser.parse_args()
    if CHROMIUM is None and not given.serve:
        raise SystemExit("Chromium is not installed: apt-get install chromium")
    with shop(not given.no_spark) as (cluster, address):
        if given.serve:
            assert cluster.security is not None
            admin = cluster.security.admin
            print(f"{address} user {admin.access_key} secret {admin.secret_key}", flush=True)
            with contextlib.suppress(KeyboardInterrupt):
                threading.Event().wait()
            return
        threading.Event().wait(given.seconds)
        given.directory.mkdir(parents=True, exist_ok=True)
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
            photographer = Photographer(browser, address, cluster)
            message = photographer.message()
            if given.all:
                for scheme in ("light", "dark"):
                    for width in (1280, 390):
                        for name, path in every_page(message).items():
                            if re.search(given.only, name):
                                photographer.shoot(
                                    path, given.directory / f"{name}-{scheme}-{width}.png", scheme, width, None
                                )
            else:
                for name, path, scheme, width, height in WANTED:
                    if not re.search(given.only, name):
                        continue
                    file = given.directory / f"{name}.png"
                    photographer.shoot(path.format(message=message), file, scheme, width, height)
                    small(file)
                    print(f"{file}: {file.stat().st_size:,} bytes", flush=True)
            browser.close()


if __name__ == "__main__":
    main()
