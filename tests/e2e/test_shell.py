"""`aerobee produce`, `consume` and `tail` as a shell uses them: in pipes, with JSON lines, stopped, and refused."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from typing import Any

import pytest

from aerobee.sync import Producer
from aerobee.testing.cluster import LocalCluster

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="pipes and signals of Unix")


class Shell:
    """Commands against one cluster."""

    def __init__(self, namesrv: str) -> None:
        self._environment = {**os.environ, "NAMESRV_ADDR": namesrv}

    def start(self, *words: str) -> subprocess.Popen[bytes]:
        pipe = subprocess.PIPE
        command = [sys.executable, "-m", "aerobee", *words]
        return subprocess.Popen(command, env=self._environment, stdin=pipe, stdout=pipe, stderr=pipe)

    def run(self, *words: str, given: bytes = b"") -> tuple[int, bytes, str]:
        """Exit code, standard output, standard error."""
        with self.start(*words) as process:
            said, complained = process.communicate(given, timeout=60)
        return process.returncode, said, complained.decode()


@pytest.fixture
def shell(cluster: LocalCluster) -> Shell:
    return Shell(cluster.namesrv)


def fields(lines: bytes) -> list[dict[str, Any]]:
    return [json.loads(line) for line in lines.splitlines()]


def test_lines_go_in_and_come_out(shell: Shell, topic: str) -> None:
    code, said, complained = shell.run("produce", "-t", topic, "--tag", "T", given=b"one\ntwo\r\nth\xc3\xa9e\n")
    assert (code, said) == (0, b"")
    assert complained.startswith("3 sent (") and "0 failed" in complained
    code, said, _ = shell.run("consume", "-t", topic, "-g", f"g-{topic}", "--until-end")
    assert code == 0
    assert sorted(line.split()[-1] for line in said.decode().splitlines()) == ["one", "thée", "two"]


def test_json_lines_make_the_same_messages_again(shell: Shell, cluster: LocalCluster, topic: str) -> None:
    with Producer(cluster.namesrv) as producer:
        producer.send(topic, b"\x00\xff binary", tags="A", keys=["k1", "k2"], properties={"shop": "north"})
        producer.send(topic, "täxt".encode())
    code, said, _ = shell.run("consume", "-t", topic, "-g", f"g-{topic}", "--until-end", "--json")
    assert code == 0 and len(fields(said)) == 2
    copy = f"{topic}-copy"
    cluster.create_topic(copy)
    code, receipts, _ = shell.run("produce", "-t", copy, "--json-in", "--json", given=said)
    assert code == 0
    assert {receipt["topic"] for receipt in fields(receipts)} == {copy}

    def essence(name: str) -> list[tuple[bytes, str, str, dict[str, str]]]:
        found = cluster.messages(name)
        return sorted((one.body, one.tags, one.keys, dict(one.properties)) for one in found)

    assert essence(copy) == essence(topic)


def test_made_up_messages_have_number_size_key_and_rate(shell: Shell, cluster: LocalCluster, topic: str) -> None:
    words = ("--count", "5", "--size", "10", "--key", "k{n}", "-p", "a=b", "--rate", "50")
    assert shell.run("produce", "-t", topic, *words)[0] == 0
    found = cluster.messages(topic)
    assert sorted(one.keys for one in found) == ["k0", "k1", "k2", "k3", "k4"]
    assert {(len(one.body), one.properties["a"]) for one in found} == {(10, "b")}


def test_count_stops_and_the_group_goes_on_from_there(shell: Shell, topic: str) -> None:
    shell.run("produce", "-t", topic, "--count", "10", "--key", "{n}")
    seen: list[str] = []
    for count in (4, 6):
        words = ("-t", topic, "-g", f"g-{topic}", "--json", "--count", str(count))
        code, said, _ = shell.run("consume", *words)
        assert code == 0
        seen += [message["keys"] for message in fields(said)]
    assert sorted(seen, key=int) == [str(n) for n in range(10)]


def test_tail_shows_the_last_ones_and_then_what_comes(shell: Shell, topic: str) -> None:
    shell.run("produce", "-t", topic, "-m", "old", "-m", "older")
    code, said, _ = shell.run("tail", "-t", topic, "--last", "1", "--until-end", "--json")
    assert code == 0 and len(fields(said)) == 1
    with shell.start("tail", "-t", topic, "--count", "3") as process:
        assert process.stdout is not None
        assert b"old" in process.stdout.readline() + process.stdout.readline()
        shell.run("produce", "-t", topic, "-m", "new")
        said, _ = process.communicate(timeout=30)
    assert said.rstrip().endswith(b"new")
    assert process.returncode == 0


@pytest.mark.parametrize("command", ["consume", "tail"])
def test_a_closed_pipe_is_silent(shell: Shell, topic: str, command: str) -> None:
    shell.run("produce", "-t", topic, "--count", "3000")
    words = ("-g", f"g-{topic}") if command == "consume" else ("--last", "3000")
    with shell.start(command, "-t", topic, *words) as process:
        assert process.stdout is not None and process.stderr is not None
        assert process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(timeout=30) == 141


@pytest.mark.parametrize("command", ["consume", "tail"])
def test_ctrl_c_ends_with_130(shell: Shell, topic: str, command: str) -> None:
    shell.run("produce", "-t", topic, "-m", "hello")
    words = ("-g", f"g-{topic}") if command == "consume" else ()
    with shell.start(command, "-t", topic, *words) as process:
        assert process.stdout is not None
        assert b"hello" in process.stdout.readline()
        process.send_signal(signal.SIGINT)
        _, complained = process.communicate(timeout=30)
    assert process.returncode == 130
    # Behind the ^C that a terminal shows.
    assert complained == b"\nerror: interrupted\n"


def test_what_was_printed_before_ctrl_c_is_not_printed_again(shell: Shell, topic: str) -> None:
    shell.run("produce", "-t", topic, "-m", "first")
    with shell.start("consume", "-t", topic, "-g", f"g-{topic}") as process:
        assert process.stdout is not None
        assert b"first" in process.stdout.readline()
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=30)
    shell.run("produce", "-t", topic, "-m", "second")
    code, said, _ = shell.run("consume", "-t", topic, "-g", f"g-{topic}", "--until-end")
    assert code == 0
    assert b"second" in said and b"first" not in said


@pytest.mark.parametrize("command", [("produce", "-m", "x"), ("consume", "-g", "g"), ("tail",)], ids=lambda c: c[0])
def test_nobody_there_is_told_in_words(command: tuple[str, ...]) -> None:
    code, said, complained = Shell("127.0.0.1:1").run(*command, "-t", "orders", "--timeout", "1")
    assert said == b"" and "Traceback" not in complained
    assert "127.0.0.1:1" in complained
    assert code == 3


def test_errors_are_json_where_the_answer_would_be(shell: Shell) -> None:
    code, said, complained = shell.run("tail", "-t", "no-such-topic", "--json")
    assert code == 1 and said == b""
    assert "no-such-topic" in json.loads(complained)["error"]


def test_a_line_that_is_no_json_is_named(shell: Shell, topic: str) -> None:
    code, _, complained = shell.run("produce", "-t", topic, "--json-in", given=b"{nonsense\n")
    assert code == 1 and "{nonsense" in complained and "Traceback" not in complained
