"""RocketMQ's official 5.x clients, which speak gRPC, against a broker of ours. `make interop-grpc` runs them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from aerobee import sync
from aerobee.hot.wire import protobuf
from aerobee.protocol.v2 import calls
from aerobee.protocol.v2.fields import messages, table_of
from aerobee.testing import apache
from aerobee.testing.commands import Up, up
from aerobee.testing.grpcclients import run_java

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
producer = Producer(configuration, ("RANKED",))
producer.startup()
for number in range(4):
    message = Message()
    message.topic, message.body, message.priority = "RANKED", b"%d" % number, number
    producer.send(message)
producer.shutdown()
consumer = SimpleConsumer(configuration, "python-ranked", {"RANKED": FilterExpression("*")}, 6)
consumer.startup()
ranks = []
while len(ranks) < 4:
    for message in consumer.receive(1, 20) or ():
        consumer.ack(message)
        ranks.append(message.priority)
consumer.shutdown()
assert ranks == [3, 2, 1, 0], ranks
print("done")
"""
KINDS = ("NORMAL", "FIFO", "DELAY", "PRIORITY", "TRANSACTION")


@pytest.fixture(scope="module")
def running() -> Iterator[Up]:
    with up("--set", "transactionTimeOut=1000", "--set", "transactionCheckInterval=1000") as one:
        with sync.Admin(one.namesrv) as admin:
            admin.topics.create("PYTHON", queues=4)
            admin.topics.create("RANKED", queues=4, attributes={"message.type": "PRIORITY"})
            for kind in KINDS:
                admin.topics.create(kind, queues=4, attributes={"message.type": kind})
        yield one


def test_java(running: Up) -> None:
    """Messages of each kind, a check-back, a simple consumer that renews, a push consumer that fails one message."""
    reason = apache.unavailable()
    if reason:
        pytest.skip(reason)
    words = [*KINDS, *(f"simple:{kind}" for kind in KINDS), *(f"push:{kind}" for kind in KINDS)]
    run_java(running.ready["grpc"], *words)


@pytest.fixture(scope="module")
def python() -> Path:
    """An interpreter that has the official client, in an environment of its own."""
    home = apache.PROJECT / "out" / "interop" / "python-client"
    python = home / "bin" / "python"
    if not (home / "ready").exists():
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(home)], check=True)
        pip = [str(python), "-m", "pip", "install", "-q", "--disable-pip-version-check", PYTHON_CLIENT]
        made = subprocess.run(pip, capture_output=True, text=True, check=False)
        if made.returncode:
            pytest.skip(f"{PYTHON_CLIENT} cannot be installed: {made.stderr[-300:]}")
        (home / "ready").touch()
    return python


def test_python(running: Up, python: Path) -> None:
    done = subprocess.run(
        [str(python), "-c", PYTHON, running.ready["grpc"]], capture_output=True, text=True, timeout=200, check=False
    )
    assert done.returncode == 0 and done.stdout.splitlines()[-1] == "done", done.stdout + done.stderr[-3000:]


# In one process: their generated code, and ours which is none. Each reads what the other wrote.
SIDE_BY_SIDE = """
import rocketmq
from google.protobuf import descriptor_pool, message_factory
from aerobee.protocol.v2 import calls
from aerobee.protocol.v2.fields import decode, encode
from aerobee.protocol.v2.values import PbMessage, PbResource, PbSystemProperties
from aerobee.proxy.service import MessagingService
system = PbSystemProperties("A", ["k"], "id")
ours = calls.PbSendMessageRequest([PbMessage(PbResource("", "t"), {"n": "v"}, system, b"x")])
found = descriptor_pool.Default().FindMessageTypeByName("apache.rocketmq.v2.SendMessageRequest")
theirs = message_factory.GetMessageClass(found).FromString(encode(ours))
assert theirs.messages[0].system_properties.keys == ["k"] and theirs.messages[0].user_properties["n"] == "v"
assert decode(calls.PbSendMessageRequest, theirs.SerializeToString()) == ours
print("done", MessagingService.__name__)
"""


def test_stubs_side_by_side(python: Path) -> None:
    """A user may import the official client and Aerobee in one process."""
    theirs = next((python.parents[1] / "lib").glob("python*/site-packages"))
    paths = os.pathsep.join((str(apache.PROJECT / "src"), str(theirs)))
    done = subprocess.run(
        [sys.executable, "-c", SIDE_BY_SIDE], capture_output=True, text=True, timeout=120, check=False,
        env={**os.environ, "PYTHONPATH": paths},
    )  # fmt: skip
    assert done.returncode == 0 and done.stdout.startswith("done"), done.stdout + done.stderr[-3000:]


# Prints, for each message: number, name, type, repeated, rivals of a oneof, class of each field.
DESCRIPTORS = """
import json
from google.protobuf import descriptor_pool
import rocketmq
pool, found = descriptor_pool.Default(), {}
def walk(one):
    if one.GetOptions().map_entry:
        return
    rows = found[one.name] = []
    for field in one.fields:
        is_map = field.message_type is not None and field.message_type.GetOptions().map_entry
        many = bool(getattr(field, "is_repeated", None) or getattr(field, "label", 0) == 3)
        oneof = field.containing_oneof
        rivals = [other.name for other in oneof.fields if other is not field] if oneof is not None else []
        kind = "map" if is_map else 5 if field.type == 14 else field.type
        inner = field.message_type.name if field.message_type is not None and not is_map else ""
        rows.append([field.number, field.name, kind, many and not is_map, sorted(set(rivals) - {field.name}), inner])
    for nested in one.nested_types:
        walk(nested)
for name in ("SendMessageRequest", "Message"):
    for one in pool.FindMessageTypeByName("apache.rocketmq.v2." + name).file.message_types_by_name.values():
        walk(one)
print(json.dumps(found))
"""


def test_tables_are_apaches(python: Path) -> None:
    done = subprocess.run([str(python), "-c", DESCRIPTORS], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    theirs = json.loads(done.stdout)
    p = protobuf
    kinds = {
        p.INT32: 5, p.INT64: 3, p.BOOL: 8, p.FLOAT: 2, p.STRING: 9, p.BYTES: 12, p.MESSAGE: 11, p.TEXTS: "map"
    }  # fmt: skip
    names = {id(table_of(cls)): cls.__name__.removeprefix("Pb") for cls in messages()}
    ours = {
        names[id(table_of(cls))]: [
            [
                one.number, one.name, kinds[one.kind], one.many and one.kind != p.TEXTS, sorted(one.rivals),
                names[id(one.table)] if one.table is not None else "",
            ]
            for one in table_of(cls).fields
        ]
        for cls in messages()
        if cls.__module__.startswith("aerobee.") and cls.__name__ not in ("PbTimestamp", "PbDuration")
    }  # fmt: skip
    assert calls and len(ours) > 50
    wrong = {name: (rows, theirs.get(name)) for name, rows in ours.items() if rows != sorted(theirs.get(name, []))}
    assert not wrong
