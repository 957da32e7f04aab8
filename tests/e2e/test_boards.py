"""Our board and our alerts: Debian's Prometheus scrapes a running cluster, and every expression finds something."""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import pytest

from aerobee import DeadLetter, Message
from aerobee.sync import Producer, PushConsumer
from aerobee.testing.commands import up

if TYPE_CHECKING:
    from aerobee.testing.certificates import Certificate

ROOT = Path(__file__).parents[2]
RULES = ROOT / "deploy" / "prometheus" / "rules.yml"
PATIENCE_S = 60

needs_prometheus = pytest.mark.skipif(
    shutil.which("prometheus") is None or shutil.which("promtool") is None,
    reason="needs prometheus and promtool on the PATH (Debian: apt-get install prometheus)",
)


def tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("grafana_board", ROOT / "tools" / "grafana_board.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["grafana_board"] = module
    spec.loader.exec_module(module)
    return module


def test_the_board_is_what_its_table_says() -> None:
    assert tool().main(["--check"]) == 0, "run: python tools/grafana_board.py"


@needs_prometheus
def test_promtool_accepts_the_rules() -> None:
    done = subprocess.run(["promtool", "check", "rules", RULES], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    config = ROOT / "deploy" / "prometheus" / "prometheus.yml"
    done = subprocess.run(["promtool", "check", "config", config], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_every_alert_is_explained() -> None:
    page = (ROOT / "docs" / "operations" / "monitoring.md").read_text()
    alerts = re.findall(r"- alert: (\w+)", RULES.read_text())
    assert len(alerts) >= 15
    missing = [name for name in alerts if f"### {name}\n" not in page]
    assert not missing
    assert not set(re.findall(r"^### (Aerobee\w+)$", page, re.MULTILINE)) - set(alerts)


def board_expressions() -> list[str]:
    """Return the expressions of the board, with its variables filled in."""
    found = []
    for panel in tool().board()["panels"]:
        for target in panel.get("targets", ()):
            text = target["expr"].replace("$__rate_interval", "15s")
            found.append(text.replace("$cluster", ".*").replace("$node", ".*"))
    return found


def rule_expressions() -> list[str]:
    """Return what the rules look at: of an alert, what it compares."""
    found = []
    for text in re.findall(r"^ +expr: (.*)$", RULES.read_text(), re.MULTILINE):
        for part in re.split(r" and (?:on \(node_id\) )?", text):
            found.append(re.sub(r" (?:[<>]|==) -?[0-9.]+$", "", part))
    return found


def test_expressions_are_taken_apart() -> None:
    assert "aerobee_ready" in rule_expressions()
    assert 'rocketmq_consumer_lag_latency_milliseconds{is_system="false"}' in rule_expressions()
    assert not [one for one in rule_expressions() if one.endswith(("> 0", "== 0"))]


@contextmanager
def prometheus(work: Path, target: str) -> Iterator[str]:
    """Run Prometheus, which scrapes the target every second; yield its address."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    shutil.copy(RULES, work / "rules.yml")
    config = (ROOT / "deploy" / "prometheus" / "prometheus.yml").read_text()
    config = config.replace("15s", "1s").replace("127.0.0.1:5557", target)
    (work / "prometheus.yml").write_text(config)
    words = [
        f"--config.file={work}/prometheus.yml", f"--storage.tsdb.path={work}/data", f"--web.listen-address={address}",
    ]  # fmt: skip
    with (work / "prometheus.log").open("wb") as log:
        process = subprocess.Popen(["prometheus", *words], stdout=log, stderr=log)
    try:
        yield address
    finally:
        process.terminate()
        process.wait(20)


def has_series(address: str, expression: str) -> bool:
    query = urllib.parse.urlencode({"query": expression})
    try:
        with urllib.request.urlopen(f"http://{address}/api/v1/query?{query}", timeout=10) as answer:
            told = json.load(answer)
    except ConnectionError:
        return False
    except urllib.error.HTTPError as error:
        if error.code == 503:  # it is still starting
            return False
        raise AssertionError(f"{expression}: {error.read().decode()}") from error
    except urllib.error.URLError:
        return False
    return bool(told["data"]["result"])


@needs_prometheus
def test_boards_have_data(tmp_path: Path, certificate: Certificate) -> None:
    # A broker without replicas says nothing of them; see test_monitoring.
    expressions = [one for one in board_expressions() + rule_expressions() if "aerobee_replica_" not in one]
    settings = {
        "metricsExporterType": "PROM",
        "metricsPromExporterPort": "0",
        "tls.server.certPath": str(certificate.cert),
        "tls.server.keyPath": str(certificate.key),
        "archivePath": str(tmp_path / "archive"),
        "cleanResourceInterval": "1000",
    }
    words = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
    with up(*words) as running:
        target = running.ready["metrics"][0].removeprefix("http://").removesuffix("/metrics")
        running.json("topic", "create", "-t", "orders")
        consumer = PushConsumer(running.namesrv, group="billing", consume_from="first")

        @consumer.listener("orders")
        def handle(message: Message) -> None:
            if message.tags == "bad":
                raise DeadLetter("it is bad")

        with (
            Producer(running.namesrv, on_check=lambda message: True) as producer,
            consumer,
            prometheus(tmp_path, target) as address,
        ):
            deadline_s = time.monotonic() + PATIENCE_S
            missing = expressions
            number = 0
            while missing and time.monotonic() < deadline_s:
                number += 1
                producer.send("orders", b"good", keys=f"k{number}")
                producer.send("orders", b"bad", tags="bad")
                for commits in (True, False):
                    with producer.transaction("orders", b"transaction") as transaction:
                        if not commits:
                            transaction.rollback()
                missing = [one for one in missing if not has_series(address, one)]
    assert not missing, (tmp_path / "prometheus.log").read_text()[-2000:]
