"""`aerobee tls`: the files that it makes, what it says of certificates, and certificates that change under load."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import ssl
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from aerobee import Producer
from aerobee.app.authority import init_authority
from aerobee.runtime.clock import SystemClock
from aerobee.testing.cluster import LocalCluster
from aerobee.testing.commands import aerobee

HOSTS = ("localhost", "127.0.0.1", "::1", "mq.example.org")
# `make tls-renewals` does 1,000.
RENEWALS = int(os.environ.get("RENEWALS", "40"))


def init(directory: Path, *words: str) -> subprocess.CompletedProcess[str]:
    named = [word for host in HOSTS for word in ("--name", host)]
    return aerobee("tls", "init", str(directory), *named, "--client", "ops", *words)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("tls") / "new" / "ca"
    done = init(directory)
    assert done.returncode == 0, done.stderr
    assert "tls.server.certPath=" in done.stdout and "-Dtls.client.trustCertPath=" in done.stdout
    return directory


def openssl(*words: str) -> str:
    done = subprocess.run(["openssl", *words], capture_output=True, text=True, timeout=60, check=False)
    return done.stdout + done.stderr


@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl on the PATH")
def test_tls_init_files(made: Path) -> None:
    trusted = ("verify", "-x509_strict", "-CAfile", str(made / "ca.pem"))
    server, client = str(made / "server.pem"), str(made / "ops.pem")
    for host in HOSTS:
        which = "-verify_ip" if host[0] in "1:" else "-verify_hostname"
        assert openssl(*trusted, "-purpose", "sslserver", which, host, server).endswith(": OK\n"), host
    assert "mismatch" in openssl(*trusted, "-verify_hostname", "other.example.org", server)
    assert openssl(*trusted, "-purpose", "sslclient", client).endswith(": OK\n")
    assert "purpose" in openssl(*trusted, "-purpose", "sslserver", client), "a client cannot be a server"
    for name in ("ca", "server", "ops"):
        assert stat.S_IMODE((made / f"{name}.key").stat().st_mode) == 0o600, name
        of_key = openssl("pkey", "-in", str(made / f"{name}.key"), "-pubout")
        assert of_key == openssl("x509", "-in", str(made / f"{name}.pem"), "-noout", "-pubkey")


def test_a_second_run_refuses_and_a_renewal_keeps_the_authority(tmp_path: Path) -> None:
    assert init(tmp_path / "ca").returncode == 0
    before = {path.name: path.read_bytes() for path in (tmp_path / "ca").iterdir()}
    again = init(tmp_path / "ca")
    assert again.returncode == 1 and "nothing is overwritten" in again.stderr, again.stderr
    assert {path.name: path.read_bytes() for path in (tmp_path / "ca").iterdir()} == before
    assert aerobee("tls", "init", str(tmp_path / "ca"), "--renew", "--client", "more").returncode == 0
    after = {path.name: path.read_bytes() for path in (tmp_path / "ca").iterdir()}
    assert {name for name in before if before[name] != after[name]} == {"server.pem", "server.key"}
    assert after.keys() - before.keys() == {"more.pem", "more.key"}
    shown = json.loads(aerobee("tls", "show", str(tmp_path / "ca" / "server.pem"), "--json").stdout)
    assert sorted(shown["certificates"][0]["names"]) == sorted(HOSTS), "names are kept"
    context = ssl.create_default_context(cafile=str(tmp_path / "ca" / "ca.pem"))
    assert context.get_ca_certs()


@pytest.mark.parametrize(
    ("words", "code", "reason"),
    [
        ((), 1, "--name HOST"),
        (("--name", "a b"), 1, "neither the name nor the address"),
        (("--name", "host:9876"), 1, "neither the name nor the address"),
        (("--name", "a" * 64 + ".org"), 1, "neither the name nor the address"),
        (("--name", "a", "--client", "../x"), 1, "cannot be the name"),
        (("--name", "a", "--client", "ca"), 1, "cannot be the name"),
        (("--renew",), 1, "is missing"),
    ],
)
def test_what_no_certificate_can_name_is_refused(
    tmp_path: Path, words: tuple[str, ...], code: int, reason: str
) -> None:
    done = aerobee("tls", "init", str(tmp_path / "ca"), *words)
    assert done.returncode == code and reason in done.stderr, done.stderr
    assert not (tmp_path / "ca").exists() and not (tmp_path / "x.key").exists()


def test_a_key_that_others_can_read_issues_nothing(tmp_path: Path) -> None:
    assert init(tmp_path / "ca").returncode == 0
    (tmp_path / "ca" / "ca.key").chmod(0o644)
    done = aerobee("tls", "init", str(tmp_path / "ca"), "--renew")
    assert done.returncode == 1 and "chmod 600" in done.stderr, done.stderr


@pytest.fixture
def enforcing(made: Path, tmp_path: Path) -> Iterator[tuple[LocalCluster, Path]]:
    """A cluster that takes nothing but TLS, and the directory of the authority that its files lie in."""
    live = tmp_path / "live"
    shutil.copytree(made, live)
    settings = {
        "tls.server.mode": "enforcing", "tls.enable": "true", "tls.client.authServer": "true",
        "tls.server.certPath": str(live / "server.pem"), "tls.server.keyPath": str(live / "server.key"),
        "tls.client.trustCertPath": str(live / "ca.pem"),
    }  # fmt: skip
    with LocalCluster(settings=settings) as cluster:
        cluster.create_topic("orders", 1)
        yield cluster, live


def test_check_tells_what_a_client_would_say(enforcing: tuple[LocalCluster, Path], tmp_path: Path) -> None:
    cluster, live = enforcing
    trust = ["--tls-ca", str(live / "ca.pem")]
    good = aerobee("tls", "check", cluster.namesrv, *trust)
    assert good.returncode == 0 and "TLSv1" in good.stdout and "mq.example.org" in good.stdout, good.stderr
    soon = aerobee("tls", "check", cluster.namesrv, "--days", "400", *trust, "--json")
    assert soon.returncode == 1 and "expires in" in json.loads(soon.stdout)["problems"][0]
    stranger = aerobee("tls", "check", cluster.namesrv)
    assert stranger.returncode == 1 and "not trusted" in stranger.stderr and "mq.example.org" in stranger.stdout
    port = cluster.namesrv.rpartition(":")[2]
    other = aerobee("tls", "check", f"127.0.0.2:{port}", *trust)
    assert other.returncode == 3, "nothing listens there"
    with LocalCluster() as plain:
        done = aerobee("tls", "check", plain.namesrv, *trust)
        assert done.returncode == 3 and "TLS" in done.stderr, done.stderr


def test_our_client_refuses_a_certificate_of_another_host(tmp_path: Path) -> None:
    init_authority(str(tmp_path / "ca"), ["mq.example.org"], [], SystemClock().now_ms())
    settings = {"tls.server.mode": "enforcing", "tls.enable": "true"}
    files = {f"tls.server.{side}Path": str(tmp_path / "ca" / name) for side, name in
             (("cert", "server.pem"), ("key", "server.key"))}  # fmt: skip
    with LocalCluster(settings={**settings, **files}) as cluster:
        words = ["cluster", "-n", cluster.namesrv, "--tls-ca", str(tmp_path / "ca" / "ca.pem")]
        done = aerobee(*words)
        assert done.returncode == 3 and "not valid for '127.0.0.1'" in done.stderr, done.stderr
        assert aerobee(*words, "--tls-any-host").returncode == 0
        checked = aerobee("tls", "check", cluster.namesrv, *words[3:])
        assert checked.returncode == 1 and "not valid for" in checked.stderr, checked.stderr


def resident_kib() -> int:
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") // 1024


@pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="needs /proc")
def test_tls_reload_1000(enforcing: tuple[LocalCluster, Path]) -> None:
    """Renew the certificates of both servers again and again while one producer sends and others come and go."""
    cluster, live = enforcing
    clock = SystemClock()
    node = cluster._nodes[0]
    names = cluster._names[0][0]

    async def renewed() -> None:
        for server in (node.server, names.server):
            assert server.on_sweep is not None
            before = server.tls
            for _ in range(3):
                server.on_sweep()
            assert server.tls is not before, "the new files were read"

    async def main() -> tuple[int, list[int]]:
        context = ssl.create_default_context(cafile=str(live / "ca.pem"))
        sent, sizes, stop = 0, [], asyncio.Event()

        async def steadily() -> None:
            nonlocal sent
            async with Producer(cluster.namesrv, tls=context, retries=0) as producer:
                while not stop.is_set():
                    await producer.send("orders", b"steady")
                    sent += 1

        load = asyncio.ensure_future(steadily())
        for number in range(RENEWALS):
            init_authority(str(live), [], [], clock.now_ms(), renew=True)
            await asyncio.to_thread(cluster._run, renewed())
            async with Producer(cluster.namesrv, tls=context, instance_name=f"new-{number}") as producer:
                await producer.send("orders", b"new")
            if number % 10 == 9:
                sizes.append(resident_kib())
        stop.set()
        await load
        return sent, sizes

    sent, sizes = asyncio.run(main())
    stored = len(cluster.messages("orders"))
    assert stored == sent + RENEWALS
    # Contexts that were kept would be 50 KiB each, and there are four in a round.
    assert sizes[-1] - sizes[len(sizes) // 2] < max(8 * 1024, RENEWALS * 20), sizes
