"""Commands in the hands of somebody in a hurry: they ask before they take away, and say what they did not do."""

from __future__ import annotations

import json
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from aerobee.client.core.config import parse_namesrv
from aerobee.testing.commands import PATIENCE_S, Up, aerobee, command, environment, up

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="signals as Unix has them")
NOBODY = "127.0.0.1:1"


@pytest.fixture(scope="module")
def shared() -> Iterator[Up]:
    with up() as running:
        yield running


@pytest.fixture(scope="module")
def quiet(shared: Up) -> Up:
    """Return the cluster with a topic and a group, both named `quiet`."""
    assert shared.run("topic", "create", "-t", "quiet", "-q", "4").returncode == 0
    assert shared.run("group", "create", "-g", "quiet").returncode == 0
    return shared


def fill(shared: Up, topic: str, count: int = 40) -> None:
    assert shared.run("topic", "create", "-t", topic, "-q", "4").returncode == 0
    assert shared.run("produce", "-t", topic, "--count", str(count)).returncode == 0


def queues_of(shared: Up, topic: str) -> int:
    settings = shared.json("topic", "show", "-t", topic)["settings"]
    return int(settings[0]["read_queues"])


def test_fewer_queues_are_asked_for_with_what_they_cost(shared: Up) -> None:
    fill(shared, "narrow")
    planned = shared.json("topic", "update", "-t", "narrow", "-q", "2", "--dry-run")
    assert planned["changes"] == ["read queues 4 to 2", "write queues 4 to 2"]
    assert planned["out_of_reach"] == 20
    refused = shared.run("topic", "update", "-t", "narrow", "-q", "2", feed="n\n")
    assert (refused.returncode, queues_of(shared, "narrow")) == (1, 4)
    assert "20 messages are in queues that could no longer be read" in refused.stderr
    assert shared.run("topic", "update", "-t", "narrow", "-q", "2", feed="y\n").returncode == 0
    assert queues_of(shared, "narrow") == 2


@pytest.mark.parametrize(
    "words",
    [
        ("topic", "update", "-t", "quiet", "-q", "1"),
        ("topic", "delete", "-t", "quiet"),
        ("group", "update", "-g", "quiet", "--no-consume"),
        ("cluster", "config", "maxMsgsNumBatch=50"),
        ("quota", "set", "topic:quiet", "--messages", "1"),
    ],
    ids=" ".join,
)
def test_a_question_that_nobody_can_answer_is_a_usage_error(quiet: Up, words: tuple[str, ...]) -> None:
    done = quiet.run(*words, feed="")
    assert done.returncode == 2
    assert "add --yes to do it, or --dry-run to see what it would do" in done.stderr
    assert "interrupted" not in done.stderr
    assert queues_of(quiet, "quiet") == 4


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("cluster config --key fileReservdTime", "did you mean 'fileReservedTime'?"),
        ("cluster config fileReservedTime --yes", "use --key fileReservedTime to show it"),
        ("cluster config --unset fileReservedTime --yes", "nobody changed this over the wire"),
        ("cluster config --unset fileReservdTime --yes", "did you mean 'fileReservedTime'?"),
        ("cluster kv get -s NONE", "NONE has no values"),
        ("cluster kv delete -s NONE -k one --yes --json", '{"error": "there is no one in NONE"}'),
        ("quota remove topic:quiet --yes", "topic:quiet has no quota"),
        ("message trace 0123", "are traces turned on in the clients?"),
        ("message show -t quiet --queue 99 --offset 0", "Its queues are 0 to 3."),
        ("topic update -t quiet --retention 0 --yes", "neither off nor a whole number of hours"),
        ("cluster export /proc/none/x", "/proc/none"),
        ("cluster export /proc/none/x --json", '"error": "/proc/none'),
    ],
    ids=str,
)
def test_a_mistake_is_named_and_not_called_done(quiet: Up, words: str, told: str) -> None:
    done = quiet.run(*words.split())
    assert done.returncode in (1, 2)
    assert told in done.stderr and "Traceback" not in done.stderr
    assert done.stdout == ""


def test_a_command_without_standard_output_still_does_its_work(quiet: Up) -> None:
    words = command("topic", "create", "-t", "unseen", "-n", quiet.namesrv)
    done = subprocess.run(["sh", "-c", '"$@" >&-', "sh", *words], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert queues_of(quiet, "unseen") > 0


def test_a_full_disk_behind_standard_output_is_told(quiet: Up) -> None:
    words = command("topic", "list", "-n", quiet.namesrv)
    done = subprocess.run(["sh", "-c", '"$@" >/dev/full', "sh", *words], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (2, "error: No space left on device\n")


def test_a_drained_broker_is_shown(quiet: Up) -> None:
    assert quiet.run("cluster", "drain", "-b", "broker-a", "--yes").returncode == 0
    try:
        shown = quiet.run("cluster")
        assert (shown.returncode, " drained " in shown.stdout) == (0, True)
        assert "`aerobee cluster undrain -b broker-a` allows them" in shown.stderr
    finally:
        assert quiet.run("cluster", "undrain", "-b", "broker-a").returncode == 0
    assert quiet.run("cluster").stderr == ""


def test_names_are_not_cut_in_a_narrow_terminal(quiet: Up) -> None:
    words = shlex.join(command("cluster", "-n", quiet.namesrv))
    for terminal in ("xterm", "dumb"):
        done = subprocess.run(
            ["script", "-qec", words, "/dev/null"],
            capture_output=True, text=True, check=False, env=environment(TERM=terminal, COLUMNS="40"),
        )  # fmt: skip
        assert f" {quiet.ready['broker']} " in done.stdout and "\u2026" not in done.stdout


def test_a_setting_that_deletes_says_so_before_it_is_changed(quiet: Up) -> None:
    for words, told in (
        ("logMaxBytes=1048576", "all but the newest 1.0 MiB are deleted at once, and do not come back"),
        ("fileReservedTime=1", "messages older than 1 h are deleted"),
    ):
        assert told in quiet.run("cluster", "config", words, "--dry-run").stdout
    assert "deleted" not in quiet.run("cluster", "config", "fileReservedTime=100", "--dry-run").stdout


def test_quotas_are_asked_for_with_what_holds_now(quiet: Up) -> None:
    planned = quiet.run("quota", "set", "topic:quiet", "--messages", "5", "--dry-run").stdout
    assert planned == "would change the quota of topic:quiet on broker-a from any rate to 5 messages a second\n"
    assert quiet.json("quota", "list") == {"broker-a": []}
    assert quiet.run("quota", "set", "topic:quiet", "--messages", "5", feed="y\n").returncode == 0
    assert "from 5 messages a second to 9 bytes a second" in (
        quiet.run("quota", "set", "topic:quiet", "--bytes", "9", "--dry-run").stdout
    )
    assert quiet.run("quota", "remove", "topic:quiet", feed="n\n").returncode == 1
    assert quiet.json("quota", "list")["broker-a"][0]["messages"] == 5
    assert quiet.run("quota", "remove", "topic:quiet", "--yes").returncode == 0


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("topic", "create", "-t", "none", "-q", "0"), "0 is not in the range 1<=x<=65536"),
        (("topic", "create", "-t", "none", "-q", "many"), "'many' is not a whole number"),
        (("topic", "create", "-t", "none", "-q", "1.5"), "'1.5' is not a whole number"),
        (("cluster", "drain", "-b", "broker-a", "--wait", "soon"), "'soon' is not a number"),
    ],
    ids=str,
)
def test_a_number_that_is_none_is_named_before_anybody_is_asked(words: tuple[str, ...], told: str) -> None:
    done = aerobee(*words, "-n", NOBODY)
    assert done.returncode == 2 and told in done.stderr, done.stderr


def test_the_lag_of_a_group_without_a_place_is_not_zero(shared: Up) -> None:
    fill(shared, "unread")
    assert shared.run("group", "create", "-g", "newcomer").returncode == 0
    assert shared.json("group", "lag", "-g", "newcomer")["lag"] is None
    assert "the lag of group newcomer is unknown" in shared.run("group", "lag", "-g", "newcomer").stdout
    assert shared.json("group", "lag", "-g", "newcomer", "-t", "unread")["lag"] == 40


def test_tail_makes_no_group(shared: Up) -> None:
    fill(shared, "watched", 3)
    before = shared.json("group", "list", "--all")["groups"]
    assert len(shared.run("tail", "-t", "watched", "--until-end").stdout.splitlines()) == 3
    assert shared.json("group", "list", "--all")["groups"] == before


def test_produce_without_a_server_says_so_by_its_exit_code_and_in_json() -> None:
    done = aerobee("produce", "-t", "orders", "-m", "hello", "-n", NOBODY, "--timeout", "1")
    assert done.returncode == 3
    done = aerobee("produce", "-t", "orders", "-m", "hello", "-n", NOBODY, "--timeout", "1", "--json")
    said = json.loads(done.stderr)
    assert (done.returncode, done.stdout, said["sent"], said["failed"]) == (3, "", 0, 1)
    assert "connection refused" in next(iter(said["errors"]))


def test_a_name_server_without_a_port_has_the_usual_one() -> None:
    assert parse_namesrv("one;two:1000;[::1];[::1]:5", {}) == ("one:9876", "two:1000", "[::1]:9876", "[::1]:5")
    done = aerobee("topic", "list", "-n", "127.254.254.254", "--timeout", "1")
    assert done.returncode == 3
    assert "127.254.254.254:9876" in done.stderr


def test_sigterm_saves_what_consume_has_printed(shared: Up) -> None:
    fill(shared, "followed")
    process = subprocess.Popen(
        command("consume", "-t", "followed", "-g", "follower"),
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment(NAMESRV_ADDR=shared.namesrv),
    )  # fmt: skip
    assert process.stdout is not None
    for _ in range(40):
        assert process.stdout.readline()
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, said) == (0, "40 messages\n")
    assert shared.json("group", "lag", "-g", "follower")["lag"] == 0


def test_a_closed_terminal_stops_up_and_leaves_nothing() -> None:
    with up() as running:
        data = Path(running.ready["data"])
        assert data.is_dir()
        code, _, _ = running.stop(signal.SIGHUP)
    assert (code, data.exists()) == (0, False)
