"""The dashboard behind nginx under a sub-path: log in, publish and follow, by name and by address."""

import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("starlette", reason="the extra `dashboard` is not installed")


from aerobee.dashboard.options import DashboardOptions
from aerobee.dashboard.security import Role
from aerobee.dashboard.usersfile import line_of
from aerobee.runtime.entropy import SystemEntropy
from aerobee.sync import Producer
from aerobee.testing.cluster import LocalCluster
from aerobee.testing.dashboardkit import Reader, RunningDashboard
from aerobee.testing.secrets import secret_for

NGINX = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")
PASSWORD = secret_for("people")
PATIENCE_S = 30.0
pytestmark = pytest.mark.skipif(NGINX is None, reason="nginx is not installed")

CONF = """
daemon off; master_process off; pid {dir}/nginx.pid; error_log {dir}/error.log;
events {{ worker_connections 64; }}
http {{
  access_log off; client_body_temp_path {dir}/b; proxy_temp_path {dir}/p; fastcgi_temp_path {dir}/f;
  uwsgi_temp_path {dir}/u; scgi_temp_path {dir}/s;
  server {{
    listen 127.0.0.1:{port};
    location /mq/ {{
      proxy_pass {target};
      {host}
      proxy_set_header X-Forwarded-Host $http_host;
      proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;
      proxy_buffering off;
    }}
  }}
}}
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster() as running:
        running.create_topic("orders", 1)
        yield running


@pytest.mark.parametrize("keeps_path", [True, False])
@pytest.mark.parametrize("host", ["", "proxy_set_header Host $http_host;"])
@pytest.mark.parametrize("name", ["127.0.0.1", "localhost"])
def test_dashboard_behind_nginx_subpath(
    cluster: LocalCluster, tmp_path: Path, name: str, host: str, keeps_path: bool
) -> None:
    people = tmp_path / "people"
    people.write_text(line_of("anna", Role.admin, PASSWORD, SystemEntropy().token))
    port = free_port()
    options = DashboardOptions(namesrv=cluster.namesrv, port=0, users=str(people), root_path="/mq", step_s=1.0)
    with RunningDashboard(options) as running:
        # With a path, nginx puts it in place of /mq/.
        target = running.address.removesuffix("/mq/") + ("" if keeps_path else "/")
        conf = tmp_path / "nginx.conf"
        conf.write_text(CONF.format(dir=tmp_path, port=port, target=target, host=host))
        assert NGINX is not None
        with subprocess.Popen(
            [NGINX, "-e", str(tmp_path / "error.log"), "-c", str(conf), "-p", str(tmp_path)]
        ) as nginx:
            try:
                wait_for_port(port)
                walk(cluster, Reader(f"http://{name}:{port}/mq/"), f"http://{name}:{port}")
            finally:
                nginx.terminate()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        return int(found.getsockname()[1])


def wait_for_port(port: int) -> None:
    until_s = time.monotonic() + PATIENCE_S
    while True:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
            return
        except OSError:
            assert time.monotonic() < until_s


def walk(cluster: LocalCluster, reader: Reader, origin: str) -> None:
    reader.meet()
    assert reader.get("/").headers["location"].startswith("/mq/login")
    fields = {"name": "anna", "secret": PASSWORD, "next": "/topics"}
    logged_in = reader.post("/login", fields, Origin=origin)
    assert (logged_in.status, logged_in.headers["location"]) == (303, "/mq/topics")
    reader.meet()
    page = reader.get("/topics").text
    assert 'href="/mq/topics/orders"' in page
    assert 'href="/topics' not in page
    assert reader.get("/static/dashboard.css").status == 200
    assert reader.post("/topics/orders/publish", {"body": "hi"}, Origin=origin).status == 200
    assert reader.post("/topics/orders/publish", {"body": "hi"}, Origin="http://evil.example").status == 403
    bodies: list[str] = []
    began = threading.Event()
    reading = threading.Thread(target=lambda: reader.stream("/raw/tail?topic=orders", bodies, 1, began))
    reading.start()
    assert began.wait(60)
    with Producer(cluster.namesrv) as producer:
        producer.send("orders", b"tailed")
    reading.join(60)
    assert bodies == ["tailed"]
