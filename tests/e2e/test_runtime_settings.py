"""Settings that are changed while a broker runs: over the wire, kept over restarts; and by its file, on SIGHUP."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from aerobee.testing.commands import PATIENCE_S, Up, aerobee, command, environment
from aerobee.testing.waiting import wait_for_words

PERMISSION, WAIT = "brokerPermission", "waitTimeMillsInSendQueue"


@contextmanager
def broker(conf: Path, namesrv: str, log: Path) -> Iterator[subprocess.Popen[str]]:
    """Run `aerobee broker` with a file, until the block ends; its log is appended to `log`."""
    words = command("broker", "-c", str(conf), "-n", namesrv, "--json")
    with log.open("a") as out:
        # In a session of its own it has no terminal, as a service.
        process = subprocess.Popen(
            words, stdout=subprocess.PIPE, stderr=out, text=True, env=environment(), start_new_session=True
        )
    try:
        assert process.stdout is not None
        assert "broker" in json.loads(process.stdout.readline() or "{}"), log.read_text()
        yield process
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_S) == 0
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def config(namesrv: str, *words: str) -> dict[str, dict[str, str]]:
    """Return value and source of the settings that tests change."""
    done = aerobee("cluster", "config", "-n", namesrv, "-b", "kept", "--source", "--json", *words)
    assert done.returncode == 0, done.stderr
    table: dict[str, dict[str, str]] = json.loads(done.stdout)["kept"]
    return {key: table[key] for key in (PERMISSION, WAIT, "fileReservedTime", "brokerName")}


def change(namesrv: str, *words: str) -> subprocess.CompletedProcess[str]:
    return aerobee("cluster", "config", "-n", namesrv, "-b", "kept", "--yes", *words)


@pytest.fixture
def conf(tmp_path: Path) -> Path:
    path = tmp_path / "broker.conf"
    path.write_text(
        f"brokerName=kept\nlistenPort=0\nstorePathRootDir={tmp_path}/store\n{WAIT}=300\n"
        "mappedFileSizeCommitLog=67108864\nmaxHashSlotNum=10000\nmaxIndexNum=40000\n"
    )
    return path


def test_runtime_settings_survive(running: Up, conf: Path, tmp_path: Path) -> None:
    names, log = running.namesrv, tmp_path / "log"
    with broker(conf, names, log):
        before = config(names)
        assert before[PERMISSION] == {"value": "6", "source": "default"}
        assert before[WAIT] == {"value": "300", "source": str(conf)}
        assert before["brokerName"] == {"value": "kept", "source": str(conf)}
        assert change(names, f"{PERMISSION}=4", f"{WAIT}=500").returncode == 0
        after = config(names)
        assert after[PERMISSION] == {"value": "4", "source": "wire"}
    with broker(conf, names, log):
        assert config(names) == after
        assert f"settings that were changed over the wire hold {PERMISSION}=4" in log.read_text()
        refused = aerobee("produce", "-n", names, "-t", "kept", feed="x")
        assert refused.returncode != 0, "a broker that was drained stays drained"
        # What the file says is taken back, also by sending that value.
        assert change(names, "--unset", PERMISSION, f"{WAIT}=300").returncode == 0
        assert config(names) == before
        assert change(names, "--unset", "noSuchKey").returncode == 1
        idle = change(names, "--unset", PERMISSION)
        assert idle.returncode == 1 and f"{PERMISSION}: nobody changed this over the wire" in idle.stderr
    with broker(conf, names, log) as process:
        assert config(names) == before
        # kill -9 right after the answer: what was answered is kept.
        assert change(names, f"{PERMISSION}=4").returncode == 0
        process.kill()
        process.wait()
        process.returncode = 0
    with broker(conf, names, log):
        assert config(names)[PERMISSION] == {"value": "4", "source": "wire"}


def test_a_file_of_settings_that_cannot_be_used_stops_no_start(running: Up, conf: Path, tmp_path: Path) -> None:
    kept = tmp_path / "store" / "config" / "runtimeSettings.json"
    kept.parent.mkdir(parents=True)
    kept.write_text(
        '{"settings":{"brokerPermission":"4","storePathRootDir":"/etc","noSuchKey":"1","waitTimeMillsInSendQueue":"x"}}'
    )
    with broker(conf, running.namesrv, tmp_path / "log"):
        found = config(running.namesrv)
        assert found[PERMISSION]["source"] == "wire"
        assert found[WAIT]["value"] == "300"
        said = (tmp_path / "log").read_text()
        assert said.count("a setting that was changed over the wire is left out") == 3
    kept.write_text("{")
    with broker(conf, running.namesrv, tmp_path / "log"):
        assert config(running.namesrv)[PERMISSION]["value"] == "6" or kept.with_suffix(".json.bak").exists()


def test_sighup_reads_the_file_again(running: Up, conf: Path, tmp_path: Path) -> None:
    names, log = running.namesrv, tmp_path / "log"
    with broker(conf, names, log) as process:
        assert change(names, f"{PERMISSION}=4").returncode == 0
        text = conf.read_text()
        conf.write_text(
            text.replace(f"{WAIT}=300", f"{WAIT}=700") + f"{PERMISSION}=2\nfileReservedTime=5\nmaxIndexNum=50000\n"
        )
        process.send_signal(signal.SIGHUP)
        wait_for_words(log, "the settings were read again")
        found = config(names)
        assert found[WAIT] == {"value": "700", "source": str(conf)}
        assert found["fileReservedTime"] == {"value": "5", "source": str(conf)}
        assert found[PERMISSION] == {"value": "4", "source": "wire"}, "the wire is stronger than the file"
        assert "settings that changed in the file take effect at the next start keys=maxIndexNum" in log.read_text()
        assert change(names, "--unset", PERMISSION).returncode == 0
        assert config(names)[PERMISSION] == {"value": "2", "source": str(conf)}
        conf.write_text("waitTimeMillsInSendQueue=soon\n")
        process.send_signal(signal.SIGHUP)
        wait_for_words(log, "the settings cannot be read again")
        assert config(names)[WAIT]["value"] == "700"
