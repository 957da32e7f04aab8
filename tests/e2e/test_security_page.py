"""Every command of docs/security.md runs as printed. Only addresses and ports are this machine's."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from aerobee.testing.apache import free_ports
from aerobee.testing.commands import PATIENCE_S, environment
from aerobee.testing.secrets import require_unseen, secret_for

PAGE = (Path(__file__).parents[2] / "docs" / "security.md").read_text()
SECTIONS = {head: text for head, text in re.findall(r"^## ([^\n]+)\n(.*?)(?=^## |\Z)", PAGE, re.M | re.S)}

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="a shell of Unix")


def lines(section: str) -> list[str]:
    blocks = re.findall(r"^```sh\n(.*?)^```$", SECTIONS[section], re.M | re.S)
    return [line for block in blocks for line in block.splitlines() if line]


class Page:
    """One run of the page's commands in one directory."""

    def __init__(self, directory: Path, stack: ExitStack) -> None:
        self.directory = directory
        self.environ = environment(HOME=str(directory))
        self.replaced = {"10.0.0.5": "127.0.0.1", "mq1.example.org": "localhost", "--host 0.0.0.0": "--host 127.0.0.1"}
        self._stack = stack
        self.ran: list[str] = []

    def put_files(self, section: str) -> None:
        for text in re.findall(r"^```properties\n(# (\S+)\n.*?)^```$", SECTIONS[section], re.M | re.S):
            said = text[0].replace("choose-24-characters-here", secret_for("admin"))
            (self.directory / text[1]).write_text(said.replace("choose-24-others-here-now", secret_for("inner")))

    def run(self, line: str) -> str:
        """Run a line, or start the server that it names. An export holds for the lines after it."""
        self.ran.append(line)
        for old, new in self.replaced.items():
            line = line.replace(old, new)
        if line.startswith("export "):
            self.environ.update(word.split("=", 1) for word in shlex.split(line)[1:])
            return ""
        if line.startswith(("aerobee up ", "aerobee namesrv ", "aerobee broker ")):
            return self._start(line)
        python = shlex.quote(sys.executable)
        line = re.sub(r"^aerobee ", f"{python} -m aerobee ", line)
        done = subprocess.run(
            line, shell=True, cwd=self.directory, env=self.environ, capture_output=True, text=True,
            timeout=PATIENCE_S, check=False,
        )  # fmt: skip
        require_unseen(line, done.stdout + done.stderr)
        assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"
        return done.stdout

    def _start(self, line: str) -> str:
        free = {"up": ["--namesrv-port", "0", "--broker-port", "0"], "namesrv": ["--set", "listenPort=0"]}
        words = shlex.split(line)[1:]
        own = free.get(words[0], ["--set", f"listenPort={free_ports(-2, 1)}"])
        process = self._stack.enter_context(
            subprocess.Popen(
                [sys.executable, "-m", "aerobee", *words, *own, "--json"],
                cwd=self.directory, env=self.environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            )
        )  # fmt: skip
        self._stack.callback(_end, process)
        assert process.stdout is not None and process.stderr is not None
        ready = process.stdout.readline()
        assert ready, process.stderr.read()
        if "namesrv" in json.loads(ready):
            port = json.loads(ready)["namesrv"].rpartition(":")[2]
            self.replaced["9876"] = port
        return ready


def _end(process: subprocess.Popen[str]) -> None:
    process.terminate()
    require_unseen("a server of docs/security.md", repr(process.communicate(timeout=PATIENCE_S)))


@contextmanager
def page(directory: Path) -> Iterator[Page]:
    with ExitStack() as stack:
        yield Page(directory, stack)


def test_one_machine_its_rights_and_its_rotation(tmp_path: Path) -> None:
    assert os.environ.get("AEROBEE_PROFILE") is None
    with page(tmp_path) as run:
        for section in ("One machine", "Rights", "Rotation"):
            if section == "Rotation":
                run.run("aerobee tls init tls --name localhost")
            for line in lines(section):
                said = run.run(line)
                assert ("refused" in said) == ("|| echo refused" in line), (line, said)
        assert len(run.ran) > 25


def test_several_machines(tmp_path: Path) -> None:
    with page(tmp_path) as run:
        run.put_files("Several machines")
        for line in lines("Several machines"):
            run.run(line)
        run.environ |= {"AEROBEE_ACCESS_KEY": "admin", "AEROBEE_SECRET_KEY": secret_for("admin")}
        run.environ |= {"AEROBEE_TLS_CA": "tls/ca.pem"}
        listed = json.loads(run.run("aerobee user list --json -n 10.0.0.5:9876"))
        assert [one["name"] for one in listed["users"]] == ["admin", "inner"] and listed["problems"] == []
        assert '"outcome": "done"' in run.run("aerobee user create shop --generate --json -n 10.0.0.5:9876")
        run.run("aerobee topic create -t orders -n 10.0.0.5:9876")
        with pytest.raises(AssertionError, match="wrong or missing"):
            run.environ["AEROBEE_SECRET_KEY"] = "another-key-altogether"
            run.run("aerobee topic list -n 10.0.0.5:9876")


def test_every_section_with_commands_is_run() -> None:
    assert [section for section in SECTIONS if lines(section)] == [
        "One machine", "Several machines", "Rights", "Rotation",
    ]  # fmt: skip
