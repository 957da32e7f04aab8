"""README.md and docs/client.md run as printed: all Python blocks, all commands; the option tables are complete."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from aerobee.client.consumer.options import LitePullConsumerOptions, PushConsumerOptions
from aerobee.client.core import ClientOptions
from aerobee.client.producer.options import ProducerOptions
from aerobee.client.producer.sendoptions import SendOptions
from aerobee.sync import Producer
from aerobee.testing.cluster import LocalCluster

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
GUIDE = (ROOT / "docs" / "client.md").read_text()
# As printed, a reader's cluster is at home.
PRINTED = "localhost:9876"

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="signals of Unix")


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(settings={"enablePropertyFilter": "true"}) as running:
        yield running


PROGRAMS = {
    f"{name} {number}": code
    for name, text in (("README", README), ("client.md", GUIDE))
    for number, code in enumerate(blocks(text, "python"), start=1)
    # tests/spark/ runs these.
    if "pyspark_rocketmq" not in code
}


def start(path: Path, code: str, cluster: LocalCluster, *, as_test: bool) -> subprocess.Popen[str]:
    file = path / "test_printed.py"
    file.write_text(code.replace(PRINTED, cluster.namesrv))
    command = [sys.executable, "-W", "error", *(("-m", "pytest", "-q") if as_test else ()), str(file)]
    pipe = subprocess.PIPE
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    return subprocess.Popen(command, cwd=path, env=environment, stdout=pipe, stderr=pipe, text=True)


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_block_of_python_runs(cluster: LocalCluster, tmp_path: Path, name: str) -> None:
    code = PROGRAMS[name]
    with Producer(cluster.namesrv) as producer:
        producer.send("orders", b"printed", tags="PAID", keys="42")
    with start(tmp_path, code, cluster, as_test="def test_" in code) as process:
        if "consumer.run()" in code:
            assert process.stdout is not None
            assert "42" in process.stdout.readline()
            process.send_signal(signal.SIGINT)
        said, complained = process.communicate(timeout=60)
    assert (process.returncode, complained) == (0, ""), said + complained


COMMANDS = [line.split("  #")[0].strip() for block in blocks(README, "sh") for line in block.splitlines()]


def test_the_commands_run_in_their_order(cluster: LocalCluster) -> None:
    environment = {**os.environ, "NAMESRV_ADDR": cluster.namesrv}
    python = shlex.quote(sys.executable)
    ran = 0
    for command in COMMANDS:
        # These have tests of their own.
        if command.startswith(("make ", "aerobee up")):
            continue
        line = re.sub(r"\baerobee ", f"{python} -m aerobee ", command)
        done = subprocess.run(
            line, shell=True, env=environment, capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
        if " consume " in command or " tail " in command:
            assert "hello" in done.stdout
        ran += 1
    assert ran == 6


def test_make_targets_named_in_the_readme_exist() -> None:
    makefile = (ROOT / "Makefile").read_text()
    for target in set(re.findall(r"\bmake ([a-z-]+)", README + GUIDE)):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target


@pytest.mark.parametrize("page", ["README.md", "docs/client.md", "examples/README.md"])
def test_links_lead_somewhere(page: str) -> None:
    path = ROOT / page
    for target in re.findall(r"\]\(([^)#:]+)(?:#\w+)?\)", path.read_text()):
        assert (path.parent / target).exists(), f"{page}: {target}"


@pytest.mark.parametrize(
    "options", [SendOptions, ClientOptions, ProducerOptions, PushConsumerOptions, LitePullConsumerOptions]
)
def test_the_guide_names_every_option(options: type) -> None:
    table = GUIDE.split(f"<!-- {options.__name__} -->")[1].split("\n\n")[0]
    named = set(re.findall(r"`(\w+)`", "\n".join(row.split(" | ")[0] for row in table.splitlines())))
    shared = set() if options is ClientOptions else set(ClientOptions.__annotations__)
    assert named == set(options.__annotations__) - shared
