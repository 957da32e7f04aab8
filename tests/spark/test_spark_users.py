"""Spark at a cluster with TLS and users: who may and who may not, and where secrets are not to be found."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from aerobee.sync import Producer
from aerobee.testing.cluster import LocalCluster
from aerobee.testing.commands import aerobee
from aerobee.testing.secrets import secret_for

PATIENCE_S = 240


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with LocalCluster(secure=True, data=tmp_path_factory.mktemp("secure")) as cluster:
        for topic in ("orders", "others", "copies"):
            cluster.create_topic(topic, 2)
        yield cluster


_numbers = itertools.count(1)


def named(name: str) -> str:
    """Return a name that no other try of a test has used."""
    return f"{name}-{next(_numbers)}"


def options_of(cluster: LocalCluster, who: Any, topic: str) -> dict[str, str]:
    """Return Spark's options for a user."""
    assert cluster.security is not None
    return {
        "nameServer": cluster.namesrv, "tlsCa": cluster.security.ca, "topic": topic,
        "accessKey": who["access_key"], "secretKey": who["secret_key"],
    }  # fmt: skip


def test_spark_does_what_its_user_may(spark: Any, secure: LocalCluster, tmp_path: Path) -> None:
    name = named("alice")
    alice = secure.add_user(name, {"Topic:orders": "Pub,Sub"})
    mine, others = options_of(secure, alice, "orders"), options_of(secure, alice, "others")
    rows = spark.range(50).selectExpr("cast(id as string) as body")
    rows.write.format("rocketmq").mode("append").options(**mine).save()
    found = spark.read.format("rocketmq").options(**mine).load()
    assert sorted(int(row.body) for row in found.select("body").collect()) == list(range(50))
    for work in (
        lambda: rows.write.format("rocketmq").mode("append").options(**others).save(),
        lambda: spark.read.format("rocketmq").options(**others).load().count(),
    ):
        with pytest.raises(Exception, match=f"User:{name} has no permission"):
            work()
    with pytest.raises(Exception, match="check signature failed"):
        spark.read.format("rocketmq").options(**{**mine, "secretKey": "wrong-secret"}).load().count()
    reading = spark.readStream.format("rocketmq").options(**others).load()
    query = reading.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "c")).start()
    with pytest.raises(Exception, match=f"User:{name} has no permission"):
        query.awaitTermination(120)
    assert secure.messages("others") == []


def test_exactly_once_needs_the_right_to_publish(spark: Any, secure: LocalCluster, tmp_path: Path) -> None:
    reader = secure.add_user(named("reader"), {"Topic:orders": "Sub"})
    writer = secure.add_user(named("writer"), {"Topic:orders": "Sub", "Topic:copies": "Pub"})
    before = len(secure.messages("copies"))
    with Producer(secure.namesrv, **secure.client_options) as producer:
        producer.send("orders", b"one at least")

    def run(who: Any, checkpoint: str) -> None:
        source = spark.readStream.format("rocketmq").options(**options_of(secure, who, "orders"))
        rows = source.option("startingOffsets", "earliest").load().selectExpr("body")
        sink = rows.writeStream.format("rocketmq").options(**options_of(secure, who, "copies"))
        sink = sink.option("deliveryGuarantee", "exactly-once").option("checkpointLocation", str(tmp_path / checkpoint))
        sink.trigger(availableNow=True).start().awaitTermination()

    with pytest.raises(Exception, match=r"User:reader-[0-9]+ has no permission"):
        run(reader, "refused")
    assert len(secure.messages("copies")) == before
    run(writer, "done")
    assert len(secure.messages("copies")) == before + len(secure.messages("orders"))


def test_marker_secret_is_nowhere(secure: LocalCluster, tmp_path: Path) -> None:
    """A user's secret, given as an option, in a profile and in SQL, is in no plan, page, log, event or checkpoint."""
    assert secure.security is not None
    user = named("spark")
    marker = secret_for(user)
    admin = {"AEROBEE_CREDENTIALS": secure.security.credentials_file, "AEROBEE_PROFILE": "admin"}
    at = ["-n", secure.namesrv]
    made = aerobee("user", "create", user, "--password-file", "-", *at, feed=marker, **admin)
    assert made.returncode == 0, made.stderr
    # Topics of its own: other tests write to the others, and a second try must not find the rows of the first.
    source, target = named("marked"), named("marked-copies")
    for topic in (source, target):
        secure.create_topic(topic, 2)
        assert aerobee("acl", "grant", user, f"Topic:{topic}", "Pub,Sub", *at, **admin).returncode == 0
    profiles = tmp_path / "private" / "credentials.toml"
    profiles.parent.mkdir()
    profiles.touch(0o600)
    profiles.write_text(
        f'[spark]\nnamesrv = "{secure.namesrv}"\naccess_key = "{user}"\nsecret_key = "{marker}"\n'
        f'tls_ca = "{secure.security.ca}"\n'
    )
    place = tmp_path / "seen"
    for name in ("shown", "events", "checkpoint"):
        (place / name).mkdir(parents=True)
    plan = place / "plan.json"
    plan.write_text(
        json.dumps(
            {
                "namesrv": secure.namesrv, "ca": secure.security.ca, "shown": str(place / "shown"),
                "events": str(place / "events"), "checkpoint": str(place / "checkpoint"),
                "source": source, "target": target,
            }
        )
    )  # fmt: skip
    secrets = {"options": {"accessKey": user, "secretKey": marker}, "wrong": f"wrong{marker}"}
    job = Path(__file__).with_name("secretjob.py")
    environ = {**os.environ, "AEROBEE_CREDENTIALS": str(profiles), "TMPDIR": str(place)}
    done = subprocess.run(
        [sys.executable, str(job), str(plan)], input=json.dumps(secrets) + "\n",
        capture_output=True, text=True, timeout=PATIENCE_S, env=environ, check=False,
    )  # fmt: skip
    assert done.returncode == 0 and done.stdout.endswith("done\n"), done.stdout + done.stderr
    (place / "stdout").write_text(done.stdout)
    (place / "stderr").write_text(done.stderr)
    seen = [path for path in place.rglob("*") if path.is_file()]
    assert any(path.stat().st_size > 10_000 for path in (place / "events").rglob("*")), "an event log was written"
    assert any((place / "checkpoint" / "commits").iterdir()), "checkpoints were written"
    hits = [str(path.relative_to(place)) for path in seen if marker.encode() in path.read_bytes()]
    assert hits == []
    # On the broker's side it is in the file of users and nowhere else: not in the log of messages, nor in settings.
    data = Path(secure.security.credentials_file).parents[1]
    found = {path.name for path in data.rglob("*") if path.is_file() and marker.encode() in path.read_bytes()}
    assert found == {"users.json"}
    shown = aerobee("cluster", "config", *at, **admin)
    assert shown.returncode == 0 and marker not in shown.stdout
    assert 'secretKey":"' not in shown.stdout or "******" in shown.stdout
