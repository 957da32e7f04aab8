"""`aerobee up` and the commands of an administrator, as a user runs them."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from aerobee.testing.commands import PATIENCE_S, Up, aerobee, environment, up

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="signals as Unix has them")


@pytest.fixture(scope="module")
def shared() -> Iterator[Up]:
    """One cluster for the commands that only look or clean up after themselves."""
    with up() as running:
        yield running


# -- up


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
def test_up_is_ready_soon_stops_cleanly_and_leaves_nothing(how: signal.Signals) -> None:
    with up() as running:
        data = Path(running.ready["data"])
        assert running.ready["temporary"] is True
        assert running.ready["fast_port"] == int(running.ready["broker"].rpartition(":")[2]) - 2
        assert running.ready["ready_ms"] < 2000
        assert (data / "commitlog").is_dir()
        code, elapsed_s, err = running.stop(how)
        assert (code, err) == (0, "")
        assert elapsed_s < 5
        assert not data.exists()


def test_a_data_directory_is_kept_and_taken_up_again(tmp_path: Path) -> None:
    data = str(tmp_path / "data")
    with up("--data", data) as running:
        assert running.ready["data"] == data
        assert running.run("topic", "create", "-t", "orders", "-q", "3").returncode == 0
        assert running.run("group", "create", "-g", "billing").returncode == 0
        second = aerobee("up", "--namesrv-port", "0", "--broker-port", "0", "--data", data)
        assert second.returncode == 1
        assert "is held by another process" in second.stderr
        running.stop()
    assert not (tmp_path / "data" / "abort").exists()
    with up("--data", data) as running:
        (topic,) = running.json("topic", "list")["topics"]
        assert (topic["topic"], topic["read_queues"]) == ("orders", 3)
        assert [one["group"] for one in running.json("group", "list")["groups"]] == ["billing"]


def test_a_topic_survives_kill_9(tmp_path: Path) -> None:
    data = str(tmp_path / "data")
    with up("--data", data) as running:
        assert running.run("topic", "create", "-t", "orders").returncode == 0
        running.process.kill()
        running.process.communicate()
    with up("--data", data) as running:
        assert [one["topic"] for one in running.json("topic", "list")["topics"]] == ["orders"]


@pytest.mark.parametrize("brokers", [1, 2])
def test_up_tells_people_what_to_try_next(brokers: int) -> None:
    command = [sys.executable, "-m", "aerobee", "up", "--namesrv-port", "0", "--broker-port", "0"]
    command += ["--brokers", str(brokers)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment())
    try:
        assert process.stdout is not None
        fronts = 1 if brokers == 1 else 0  # with one broker there is a line for gRPC
        shown = [process.stdout.readline().strip() for _ in range(9 + brokers + fronts)]
        assert shown[0].startswith("aerobee is up (")
        assert shown[1].startswith("name server  127.0.0.1:")
        assert sum(line.startswith("broker ") for line in shown) == brokers
        assert sum(line.startswith("gRPC ") for line in shown) == fronts
        assert shown[2 + brokers + fronts].endswith("(temporary: deleted when this command ends)")
        assert "aerobee topic create -t orders" in shown
        assert shown[-1].startswith("Press Ctrl-C to stop and delete the data.")
    finally:
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=PATIENCE_S)
    assert err == "stopped\n"


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["--host", "0.0.0.0"], 1, "add --insecure to let every client in"),
        (["--set", "fileReservedTim=1"], 2, "did you mean 'fileReservedTime'?"),
        (["--set", "nonsense"], 2, "not of the form key=value"),
        (["--namesrv-port", "70000"], 2, "not in the range"),
    ],
)
def test_up_refuses_in_words(words: list[str], code: int, said: str) -> None:
    done = aerobee("up", "--namesrv-port", "0", "--broker-port", "0", *words)
    assert done.returncode == code
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_a_port_in_use_is_named(shared: Up) -> None:
    port = shared.ready["namesrv"].rpartition(":")[2]
    done = aerobee("up", "--namesrv-port", port)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(f"error: port {port} of 127.0.0.1 is in use (name server)")


def test_settings_of_the_command_line_hold() -> None:
    with up("--set", "brokerName=mine", "--set", "fileReservedTime=5") as running:
        assert running.ready["broker_name"] == "mine"
        shown = running.json("cluster", "config", "--key", "fileReservedTime")
        assert shown == {"mine": {"fileReservedTime": "5"}}


# -- commands


def test_ping_and_cluster(shared: Up) -> None:
    done = shared.run("ping")
    assert done.returncode == 0
    assert f"broker-a at {shared.ready['broker']}" in done.stdout
    (broker,) = shared.json("cluster")["brokers"]
    assert (broker["broker"], broker["version"], broker["is_active"]) == ("broker-a", "V5_5_0", True)
    done = shared.run("cluster")
    assert done.stdout.splitlines()[1].split()[:4] == ["DefaultCluster", "broker-a", "0", shared.ready["broker"]]
    assert "\x1b" not in done.stdout
    assert shared.run("cluster", "runtime").stdout.startswith("EndTransactionQueueSize")


def test_a_topics_life(shared: Up) -> None:
    made = shared.run("topic", "create", "-t", "life", "-q", "2", "-a", "message.type=FIFO")
    assert (made.returncode, made.stderr) == (0, "")
    assert made.stdout.splitlines()[0] == "topic life created on broker-a"
    again = shared.run("topic", "create", "-t", "life")
    assert again.returncode == 1
    assert again.stderr.splitlines()[0] == "error: topic life exists already on broker-a"
    changed = shared.json("topic", "update", "-t", "life", "-p", "R", "-a", "message.type-", "--yes")
    assert changed["settings"][0]["perm"] == 4
    assert changed["settings"][0]["attributes"] == {}
    assert shared.run("topic", "update", "-t", "life").returncode == 2
    shown = shared.run("topic", "show", "-t", "life")
    assert "messages  0" in shown.stdout
    route = shared.json("topic", "route", "-t", "life")["route"]
    assert route[0]["addresses"] == {"0": shared.ready["broker"]}
    dry = shared.json("topic", "delete", "-t", "life", "--dry-run")
    assert dry == {"dry_run": True, "topic": "life", "brokers": ["broker-a"], "messages": 0}
    kept = shared.run("topic", "delete", "-t", "life", feed="n\n")
    assert kept.returncode == 1
    assert kept.stderr.endswith("nothing was changed\n")
    gone = shared.run("topic", "delete", "-t", "life", feed="y\n")
    assert (gone.returncode, gone.stdout) == (0, "topic life deleted on broker-a\n")
    lost = shared.run("topic", "show", "-t", "life", "--json")
    assert lost.returncode == 1
    assert json.loads(lost.stderr)["error"] == "topic life does not exist"


def test_a_groups_life(shared: Up) -> None:
    assert shared.run("group", "create", "-g", "life", "--retry-max", "3").returncode == 0
    assert shared.run("group", "create", "-g", "life").returncode == 1
    changed = shared.json("group", "update", "-g", "life", "--no-consume", "--yes")
    assert changed["settings"][0]["consume_enabled"] is False
    assert changed["settings"][0]["retry_max_times"] == 3
    assert "no member is connected" in shared.run("group", "show", "-g", "life").stdout
    assert "the lag of group life is unknown" in shared.run("group", "lag", "-g", "life").stdout
    assert shared.run("group", "lag", "-g", "nobody").returncode == 1
    assert shared.json("group", "delete", "-g", "life", "--yes") == {"group": "life", "deleted_on": ["broker-a"]}
    assert shared.run("group", "delete", "-g", "life", "--yes").returncode == 1


def test_settings_change_while_it_runs(shared: Up) -> None:
    assert shared.run("cluster", "config", "maxMsgsNumBatch=50", "--yes").returncode == 0
    assert shared.json("cluster", "config", "--key", "maxMsgsNumBatch")["broker-a"] == {"maxMsgsNumBatch": "50"}
    refused = shared.run("cluster", "config", "storePathRootDir=/elsewhere", "--yes")
    assert refused.returncode == 1
    assert "storePathRootDir: cannot change while running" in refused.stderr


@pytest.mark.parametrize("words", [["topic", "list"], ["group", "list"], ["cluster"], ["ping", "--wait", "0.5"]])
def test_an_unreachable_name_server_is_told_in_a_line(words: list[str]) -> None:
    done = aerobee(*words, "-n", "127.0.0.1:1")
    assert (done.returncode, done.stdout) == (3, "")
    first = done.stderr.splitlines()[0]
    assert first == "error: no name server answers (127.0.0.1:1: could not connect: connection refused)"


def test_ping_waits_until_a_cluster_is_there(shared: Up) -> None:
    port = "0"
    with up() as running:
        port = running.ready["namesrv"].rpartition(":")[2]
        running.stop()
    waiting = subprocess.Popen(
        [sys.executable, "-m", "aerobee", "ping", "--wait", "50", "-n", f"127.0.0.1:{port}"],
        stdout=subprocess.PIPE, text=True, env=environment(),
    )  # fmt: skip
    try:
        with up("--namesrv-port", port):
            out, _ = waiting.communicate(timeout=PATIENCE_S)
    finally:
        waiting.kill()
        waiting.communicate()
    assert waiting.returncode == 0
    assert "answers" in out


def test_a_closed_pipe_is_silent(shared: Up) -> None:
    command = f"{sys.executable} -m aerobee topic list --all | true"
    done = subprocess.run(
        command, shell=True, capture_output=True, text=True, check=False, timeout=PATIENCE_S,
        env=environment(NAMESRV_ADDR=shared.ready["namesrv"]),
    )  # fmt: skip
    assert done.stderr == ""


# -- one server in a process


def test_a_name_server_and_a_broker_of_their_own(tmp_path: Path) -> None:
    def start(*words: str) -> tuple[subprocess.Popen[str], dict[str, Any]]:
        command = [sys.executable, "-m", "aerobee", *words, "--json"]
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment()
        )
        assert process.stdout is not None
        return process, json.loads(process.stdout.readline())

    conf = tmp_path / "broker.conf"
    conf.write_text(f"brokerName=from-file\nlistenPort=0\nstorePathRootDir={tmp_path}/store\nfileReservedTime=9\n")
    namesrv, named = start("namesrv", "--set", "listenPort=0")
    broker = None
    try:
        broker, _ = start("broker", "-c", str(conf), "-n", named["namesrv"], "--set", "fileReservedTime=8")
        shown = aerobee("cluster", "config", "--key", "fileReservedTime", "-n", named["namesrv"], "--json")
        assert json.loads(shown.stdout) == {"from-file": {"fileReservedTime": "8"}}
        broker.send_signal(signal.SIGTERM)
        _, log = broker.communicate(timeout=PATIENCE_S)
        assert broker.returncode == 0
        assert " INFO broker broker started name=from-file " in log
        left = aerobee("cluster", "-n", named["namesrv"])
        assert left.returncode == 3 and "from-file cannot be asked: it left the name server" in left.stderr
        assert aerobee("cluster", "forget", "from-file", "-n", named["namesrv"], "--yes").returncode == 0
        left = aerobee("cluster", "-n", named["namesrv"])
        assert left.returncode == 0
        assert left.stdout == "the name server answers, but no broker has registered\n"
    finally:
        for process in (broker, namesrv):
            if process is not None:
                process.kill()
                process.communicate()


def test_settings_are_printed(tmp_path: Path) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_text("brokerName=b\nsendMessageThreadPoolNums=4\n")
    done = aerobee("broker", "-c", str(conf), "-p")
    assert done.returncode == 0
    assert "brokerName=b" in done.stdout.splitlines()
    assert "sendMessageThreadPoolNums has no effect" in done.stderr
    important = aerobee("broker", "-c", str(conf), "-m").stdout.splitlines()
    assert "flushDiskType=ASYNC_FLUSH" in important
    assert len(important) < len(done.stdout.splitlines())
    assert json.loads(aerobee("namesrv", "-p", "--json").stdout)["listenPort"] == "9876"


def test_a_store_that_nobody_named_is_refused(tmp_path: Path) -> None:
    (tmp_path / "store" / "commitlog").mkdir(parents=True)
    (tmp_path / "store" / "commitlog" / "00000000000000000000").touch()
    done = aerobee("broker", "--set", "listenPort=0", HOME=str(tmp_path))
    assert done.returncode == 1
    assert f"error: the default directory {tmp_path}/store holds a store already" in done.stderr
    assert f"--set storePathRootDir={tmp_path}/store" in done.stderr


def test_a_file_with_mistakes_is_refused_with_all_of_them(tmp_path: Path) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_text("brokrName=b\nlistenPort=abc\n")
    done = aerobee("broker", "-c", str(conf), "--json")
    assert done.returncode == 2
    error = json.loads(done.stderr)["error"]
    assert "did you mean 'brokerName'?" in error
    assert "'abc' is not a whole number" in error
    assert aerobee("broker", "-c", str(tmp_path / "none.conf")).returncode == 2
