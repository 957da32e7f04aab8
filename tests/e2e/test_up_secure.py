"""`aerobee up --secure`: TLS and users in one go, found again at the next start, and nothing secret on show."""

from __future__ import annotations

import json
import os
import re
import socket
import stat
import subprocess
from pathlib import Path
from typing import Any

import pytest

from aerobee.testing.commands import UP, Up, aerobee, command, environment, up
from aerobee.testing.waiting import wait_for_words


def profile_of(running: Up) -> dict[str, str]:
    """Return the environment that `up` tells to export."""
    secured = running.ready["secured"]
    return {"AEROBEE_CREDENTIALS": secured["credentials"], "AEROBEE_PROFILE": secured["profile"]}


def secrets_in(directory: Path) -> list[str]:
    """Return every secret that `up --secure` has made."""
    text = (directory / "credentials.toml").read_text() + (directory / "server.conf").read_text()
    found = set(re.findall(r'(?:secret_key = |password[\\":]+ *|secretKey[\\":]+ *)"?([A-Za-z0-9]{24})', text))
    assert len(found) == 2, text
    return sorted(found)


@pytest.mark.parametrize("words", [(), ("--brokers", "2"), ("--replicas", "3")], ids=["one", "groups", "replicas"])
def test_everything_is_made_once_and_found_again(tmp_path: Path, words: tuple[str, ...]) -> None:
    data = tmp_path / "data"
    with up("--secure", "--data", str(data), *words) as running:
        environ = profile_of(running)
        nobody = aerobee("topic", "list", "-n", running.namesrv)
        assert nobody.returncode == 3 and "--tls-ca" in nobody.stderr, nobody.stderr
        assert aerobee("topic", "create", "-t", "orders", **environ).returncode == 0
        sent = aerobee("produce", "-t", "orders", "--count", "20", **environ)
        assert sent.returncode == 0, sent.stderr
        listed = json.loads(aerobee("user", "list", "--json", **environ).stdout)
        assert listed["problems"] == [] and [one["name"] for one in listed["users"]] == ["admin", "inner"]
        authority = (data / "secure" / "ca.pem").read_bytes()
        assert running.ready["secured"]["is_new"] is True
    secrets = secrets_in(data / "secure")
    for path in (data / "secure").iterdir():
        is_public = path.name in ("ca.pem", "server.pem")
        assert is_public or stat.S_IMODE(path.stat().st_mode) == 0o600, path
    with up("--secure", "--data", str(data), *words) as running:
        assert running.ready["secured"]["is_new"] is False
        assert (data / "secure" / "ca.pem").read_bytes() == authority
        assert secrets_in(data / "secure") == secrets
        read = aerobee("tail", "-t", "orders", "--until-end", "--last", "20", **profile_of(running))
        assert read.returncode == 0 and len(read.stdout.splitlines()) == 20, read.stderr
        # The processes of brokers have their secrets from a file: other users of the machine see command lines.
        for pid in [running.process.pid, *(one["pid"] for one in running.ready.get("brokers", []))]:
            line = Path(f"/proc/{pid}/cmdline").read_bytes().decode()
            assert not any(secret in line for secret in secrets)
        assert not any(secret in json.dumps(running.ready) for secret in secrets)


def test_the_words_tell_what_to_copy_and_the_secret_once(tmp_path: Path) -> None:
    data = str(tmp_path / "data")
    shown = []
    for _ in range(2):
        with open(tmp_path / "said", "wb") as sink:
            process = _started(["--secure", "--data", data], sink)
            try:
                wait_for_words(tmp_path / "said", "Press Ctrl-C")
            finally:
                process.terminate()
                process.wait(60)
        shown.append((tmp_path / "said").read_text())
    (admin,) = [one for one in secrets_in(Path(data) / "secure") if one in shown[0]]
    assert admin not in shown[1] and "made now" in shown[0] and "found" in shown[1]
    for said in shown:
        assert f"export AEROBEE_CREDENTIALS={data}/secure/credentials.toml" in said
        assert "-Dtls.client.trustCertPath=" in said and "aerobee acl grant" in said


def _started(words: list[str], sink: Any) -> subprocess.Popen[bytes]:
    own = ["up", "--namesrv-port", "0", "--broker-port", "0", *words]
    return subprocess.Popen(command(*own), stdout=sink, stderr=subprocess.STDOUT, env=environment())


def test_a_plain_socket_is_closed(tmp_path: Path) -> None:
    with up("--secure", "--data", str(tmp_path / "data")) as running:
        for address in (running.namesrv, running.ready["broker"]):
            host, _, port = address.rpartition(":")
            with socket.create_connection((host, int(port)), timeout=20) as plain:
                plain.sendall(b"\x00\x00\x00\x08\x00\x00\x00\x04{}\x00\x00")
                try:
                    assert plain.recv(1) == b""
                except ConnectionResetError:
                    pass


def test_a_changed_admin_and_a_lost_profile(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with up("--secure", "--data", str(data)) as running:
        environ = profile_of(running)
        changed = json.loads(aerobee("user", "update", "admin", "--generate", "--json", **environ).stdout)
        assert aerobee("topic", "list", **environ).returncode == 1, "the old secret holds no more"
        file = data / "secure" / "credentials.toml"
        old = secrets_in(data / "secure")
        text = file.read_text()
        file.write_text(re.sub(r'secret_key = "\w+"', f'secret_key = "{changed["password"]}"', text))
        assert aerobee("topic", "list", **environ).returncode == 0
    with up("--secure", "--data", str(data)) as running:
        assert aerobee("topic", "list", **profile_of(running)).returncode == 0
        assert changed["password"] in secrets_in(data / "secure") and secrets_in(data / "secure") != old
    (data / "secure" / "credentials.toml").unlink()
    with up("--secure", "--data", str(data)) as running:
        assert aerobee("topic", "list", **profile_of(running)).returncode == 0, "the profile is made again"


@pytest.mark.parametrize("name", ["credentials.toml", "server.conf"])
def test_secrets_that_others_can_read_stop_the_start(tmp_path: Path, name: str) -> None:
    data = tmp_path / "data"
    with up("--secure", "--data", str(data)):
        pass
    (data / "secure" / name).chmod(0o644)
    done = aerobee(*UP, "--secure", "--data", str(data))
    assert done.returncode == 2 and "chmod 600" in done.stderr, done.stderr


@pytest.mark.skipif(os.name == "nt", reason="addresses of Linux")
def test_beyond_loopback_only_with_secure_or_in_words(tmp_path: Path) -> None:
    refused = aerobee(*UP, "--host", "0.0.0.0", "--data", str(tmp_path / "open"))
    assert refused.returncode == 1 and "does not authenticate" in refused.stderr
    assert not (tmp_path / "open").exists()
    for server in (("broker",), ("namesrv",), ("proxy", "-n", "127.0.0.1:9876")):
        done = aerobee(
            *server, "--host", "0.0.0.0", "--set", "listenPort=0" if server[0] != "proxy" else "grpcServerPort=0"
        )
        assert done.returncode == 1 and "does not authenticate" in done.stderr, done.stderr
    with up("--secure", "--host", "0.0.0.0", "--data", str(tmp_path / "data")) as running:
        environ = profile_of(running)
        assert aerobee("topic", "list", **environ).returncode == 0
    classic = aerobee(*UP, "--secure", "--host", "0.0.0.0", "--set", "haListenPort=0", "--data", str(tmp_path / "ha"))
    assert classic.returncode == 1 and "haListenPort" in classic.stderr, classic.stderr
