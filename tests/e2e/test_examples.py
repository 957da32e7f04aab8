"""Each example runs as printed against a real cluster, with warnings as errors."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from aerobee.testing.commands import Up, up

EXAMPLES = Path(__file__).parents[2] / "examples"

# Those that end by themselves, and what they say.
SAID = {
    "produce.py": r"\w{32} is message 0 of queue \d\n",
    "produce_sync.py": r"stored on broker-a\n100 more are stored\n",
    "produce_many.py": r"batch at offsets \d+ to \d+\n",
    "large_batch.py": r"500 messages are stored in [1-4] queues\n",
    "deduplicate.py": r"3 orders, 1500 cents, repeats: \['order-1'\]\n",
    "ordered.py": r"one queue: True\nchosen: 0\n",
    "filters.py": r"\['back again', 'big'\]\n",
    "dead_letters.py": r"tried 2 times: a parcel\ndead letter: a parcel\n",
    "from_a_time.py": r"first: after\n",
    "delayed.py": r"cancelled \w+\n",
    "transaction.py": r"committed\nrolled back\n",
    "trace.py": r"\['Pub', 'SubAfter', 'SubBefore'\]\n",
    "failures.py": r"stored\n",
    "admin.py": r"1 message\nlag 0\n1 comes again\nlag 1\nTrue\n",
    "secured.py": r"sent\n",
    "simple.py": r"(delivered to the (lake at attempt 1|hill at attempt 2)\n){2}",
}
# Run by test_consumer_examples.py beside these.
CONSUMERS = (Path(__file__).parent / "test_consumer_examples.py").read_text()


@pytest.fixture(scope="module")
def cluster() -> Iterator[Up]:
    """Return what the README tells people to start: every example must run against it as it is."""
    with up() as running:
        yield running


def run(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *arguments]
    environment = {**os.environ, **variables}
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=90, check=False)


def test_every_example_is_tested_and_listed() -> None:
    there = {path.name for path in EXAMPLES.glob("*.py")}
    assert there == SAID.keys() | set(re.findall(r'"(\w+\.py)"', CONSUMERS)) | {"test_orders.py"}
    page = (EXAMPLES / "README.md").read_text()
    assert set(re.findall(r"\]\((\w+\.py)\)", page)) == there


@pytest.mark.parametrize("name", SAID)
def test_an_example_runs_and_ends(cluster: Up, name: str) -> None:
    done = run("-W", "error", str(EXAMPLES / name), NAMESRV_ADDR=cluster.namesrv)
    assert (done.returncode, done.stderr) == (0, "")
    assert re.fullmatch(SAID[name], done.stdout), done.stdout


def test_the_tests_of_users_run() -> None:
    done = run("-m", "pytest", "-q", "-p", "no:cacheprovider", str(EXAMPLES / "test_orders.py"))
    assert done.returncode == 0, done.stdout + done.stderr
