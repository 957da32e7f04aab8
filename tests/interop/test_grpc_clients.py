"""RocketMQ's official 5.x clients, which speak gRPC, against a broker of ours. `make interop-grpc` runs them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest

from aerobee import sync
from aerobee.testing import apache
from aerobee.testing.commands import Up, up

PYTHON_CLIENT = "rocketmq-python-client==5.1.2"
# Sends, receives, acknowledges; by the official client alone, in an environment of its own.
PYTHON = """
import sys
from rocketmq import ClientConfiguration, Credentials, FilterExpression, Message, Producer, SimpleConsumer
configuration = ClientConfiguration(sys.argv[1], Credentials())
producer = Producer(configuration, ("PYTHON",))
producer.startup()
for number in range(20):
    message = Message()
    message.topic, message.body, message.tag = "PYTHON", b"python-%d" % number, "A"
    producer.send(message)
producer.shutdown()
consumer = SimpleConsumer(configuration, "python-readers", {"PYTHON": FilterExpression("A")}, 6)
consumer.startup()
found = set()
for _ in range(10):
    for message in consumer.receive(16, 20) or ():
        consumer.ack(message)
        found.add(bytes(message.body))
    if len(found) == 20:
        break
consumer.shutdown()
assert found == {b"python-%d" % number for number in range(20)}, found
print("done")
"""
KINDS = ("NORMAL", "FIFO", "DELAY", "TRANSACTION")


@pytest.fixture(scope="module")
def running() -> Iterator[Up]:
    with up("--set", "transactionTimeOut=1000", "--set", "transactionCheckInterval=1000") as one:
        with sync.Admin(one.namesrv) as admin:
            admin.topics.create("PYTHON", queues=4)
            for kind in KINDS:
                admin.topics.create(kind, queues=4, attributes={"message.type": kind})
        yield one


def test_java(running: Up) -> None:
    """Messages of each kind, a check-back, a simple consumer that renews, a push consumer that fails one message."""
    reason = apache.unavailable()
    if reason:
        pytest.skip(reason)
    words = [*KINDS, *(f"simple:{kind}" for kind in KINDS), *(f"push:{kind}" for kind in KINDS)]
    java = ["java", "-Xmx256m", "-cp", apache.grpc_client_classpath(), "interop.Clients", running.ready["grpc"]]
    done = subprocess.run([*java, *words], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.split("\n")[:-1] == [f"done {word}" for word in words]


def test_python(running: Up) -> None:
    home = apache.PROJECT / "out" / "interop" / "python-client"
    python = home / "bin" / "python"
    if not (home / "ready").exists():
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(home)], check=True)
        pip = [str(python), "-m", "pip", "install", "-q", "--disable-pip-version-check", PYTHON_CLIENT]
        made = subprocess.run(pip, capture_output=True, text=True, check=False)
        if made.returncode:
            pytest.skip(f"{PYTHON_CLIENT} cannot be installed: {made.stderr[-300:]}")
        (home / "ready").touch()
    done = subprocess.run(
        [str(python), "-c", PYTHON, running.ready["grpc"]], capture_output=True, text=True, timeout=200, check=False
    )
    assert done.returncode == 0 and done.stdout.splitlines()[-1] == "done", done.stdout + done.stderr[-3000:]
