"""Spark on Kubernetes and on YARN, as far as one machine can try it.

Kubernetes: a server notes what Spark's driver asks of it in client mode, with the settings and the template of
deploy/kubernetes/spark. Kubernetes' schema must accept the executor that Spark asks for. YARN: Spark takes the options
of the page up to the point where it asks for a cluster.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml

DEPLOY = Path(__file__).parents[2] / "deploy" / "kubernetes" / "spark" / "pipeline.yaml"
PAGE = Path(__file__).parents[2] / "docs" / "spark" / "cluster.md"
PATIENCE_S = 280


class Api(ThreadingHTTPServer):
    """A Kubernetes API that accepts every object and starts nothing."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.created: list[dict[str, Any]] = []
        self.pod_came = threading.Event()


class _Handler(BaseHTTPRequestHandler):
    server: Api
    protocol_version = "HTTP/1.1"

    def answer(self, value: dict[str, Any], code: int = 200) -> None:
        body = json.dumps(value).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        if "watch=" in self.path:
            self.send_response(200)
            self.send_header("Connection", "close")
            self.end_headers()
            self.close_connection = True
        elif path.endswith("/pods/driver"):
            meta = {"name": "driver", "namespace": "data", "uid": "u-1", "resourceVersion": "1"}
            self.answer({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "status": {"phase": "Running"}})
        else:
            pods = [one for one in self.server.created if one["kind"] == "Pod"] if path.endswith("/pods") else []
            self.answer({"apiVersion": "v1", "kind": "PodList", "metadata": {"resourceVersion": "1"}, "items": pods})

    def do_POST(self) -> None:
        one = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        one["metadata"] |= {"uid": f"u-{len(self.server.created)}", "resourceVersion": "1"}
        self.server.created.append(one)
        self.answer(one, 201)
        if one["kind"] == "Pod":
            self.server.pod_came.set()

    def do_PUT(self) -> None:
        self.do_POST()

    def do_PATCH(self) -> None:
        self.do_POST()

    def do_DELETE(self) -> None:
        self.answer({"apiVersion": "v1", "kind": "Status", "status": "Success"})

    def log_message(self, *args: Any) -> None:
        """Say nothing."""


@pytest.fixture
def api() -> Iterator[Api]:
    server = Api()
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.slow
def test_kubernetes_is_asked_for_executors_as_the_template_says(api: Api, tmp_path: Path) -> None:
    validate = pytest.importorskip("kubernetes_validate")
    objects = list(yaml.safe_load_all(DEPLOY.read_text()))
    (template,) = (one["data"]["executor.yaml"] for one in objects if one["kind"] == "ConfigMap")
    (tmp_path / "executor.yaml").write_text(template)
    (driver,) = (one for one in objects if one["kind"] == "StatefulSet")
    args = driver["spec"]["template"]["spec"]["containers"][0]["args"]
    confs = dict(one.removeprefix("--conf=").split("=", 1) for one in args if one.startswith("--conf="))
    confs |= {
        "spark.kubernetes.executor.podTemplateFile": str(tmp_path / "executor.yaml"),
        "spark.kubernetes.namespace": "data", "spark.kubernetes.driver.pod.name": "driver",
        "spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1", "spark.driver.port": "0",
        "spark.driver.blockManager.port": "0", "spark.executor.instances": "1",
    }  # fmt: skip
    code = (
        "import sys, json; from pyspark_rocketmq.session import session;"
        "spark = session('shop', sys.argv[1], **json.loads(sys.argv[2])); sys.stdin.read()"
    )
    master = f"k8s://http://127.0.0.1:{api.server_address[1]}"
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-c", code, master, json.dumps(confs)], stdin=subprocess.PIPE, stdout=log, stderr=log,
            env={**os.environ, "TMPDIR": str(tmp_path)},
        )  # fmt: skip
        try:
            assert api.pod_came.wait(PATIENCE_S), (tmp_path / "log").read_text()[-3000:]
        finally:
            assert process.stdin is not None
            process.stdin.close()
            process.wait(60)
    pod = next(one for one in api.created if one["kind"] == "Pod")
    sent = {key: value for key, value in pod["metadata"].items() if key not in ("uid", "resourceVersion")}
    for one in api.created:
        validate.validate({**one, "metadata": sent} if one is pod else one, "1.33", strict=False)
    assert pod["metadata"]["labels"]["app"] == "shop"
    (container,) = pod["spec"]["containers"]
    assert container["image"] == "spark-aerobee:1" and pod["spec"]["securityContext"]["runAsNonRoot"]
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    environ = {one["name"]: one.get("value", "") for one in container["env"]}
    assert "@127.0.0.1:" in environ["SPARK_DRIVER_URL"]


@pytest.mark.slow
def test_yarn_is_refused_in_one_line_without_its_configuration(tmp_path: Path) -> None:
    """Spark takes the options of the page up to the point where it needs the cluster's configuration."""
    section = PAGE.read_text().partition("## YARN")[2].partition("\n## ")[0]
    confs = dict(found.split("=", 1) for found in re.findall(r"--conf (\S+)", section))
    assert set(confs) == {"spark.yarn.dist.archives", "spark.executorEnv.PYSPARK_PYTHON"}
    code = (
        "import sys, json; from pyspark_rocketmq.session import session;"
        "session('shop', 'yarn', **json.loads(sys.argv[1]))"
    )
    bare = {name: value for name, value in os.environ.items() if name not in ("HADOOP_CONF_DIR", "YARN_CONF_DIR")}
    done = subprocess.run(
        [sys.executable, "-c", code, json.dumps(confs)],
        env={**bare, "TMPDIR": str(tmp_path), "SPARK_LOCAL_IP": "127.0.0.1"},
        capture_output=True, text=True, timeout=PATIENCE_S, check=False,
    )  # fmt: skip
    assert done.returncode, done.stdout
    last = done.stderr.strip().splitlines()[-1]
    assert "SparkStartError: Spark did not start: " in last and "HADOOP_CONF_DIR or YARN_CONF_DIR must be set" in last
