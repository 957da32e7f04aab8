"""Our producer at Apache's servers and at ours; what it sent is read back by Apache's Java client."""

from __future__ import annotations

import asyncio
import hashlib
import json
import ssl
from pathlib import Path
from typing import Any

import pytest

import aerobee
from aerobee import Message
from aerobee.testing import apache
from aerobee.testing.javasession import JavaSession, SessionRun
from aerobee.testing.place import Place
from aerobee.testing.secrets import secret_for


def run(work: Any) -> Any:
    return asyncio.run(asyncio.wait_for(work, 90))


def read_back(driver: JavaSession | apache.JavaDriver, topic: str) -> dict[str, dict[str, Any]]:
    """By unique id, everything Java finds in a topic."""
    events = driver.run("pull-all", topic=topic)
    return {event["msgId"]: event for event in events if event["event"] == "message"}


def digest(body: bytes) -> str:
    return hashlib.sha1(body).hexdigest()


@pytest.mark.parametrize("serialize", ["JSON", "ROCKETMQ"])
def test_java_reads_every_kind_of_send(place: Place, serialize: str) -> None:
    topic = f"kinds-{serialize}"
    bodies: dict[str, bytes] = {}

    async def work() -> None:
        async with aerobee.Producer(place.namesrv, group="py", serialize=serialize) as producer:
            receipt = await producer.send(topic, b"hi", tags="PAID", keys=["k1", "k2"], properties={"mine": "ü 1"})
            bodies[receipt.message_id] = b"hi"
            futures = {producer.send_nowait(topic, b"%d" % i): b"%d" % i for i in range(200)}
            await producer.flush()
            bodies.update({future.result().message_id: body for future, body in futures.items()})
            batch = [Message(topic, b"batch %d" % i, keys=f"b{i}") for i in range(10)]
            for message, stored in zip(batch, await producer.send_batch(batch), strict=True):
                bodies[stored.message_id] = message.body
            keyed = [await producer.send(topic, b"keyed %d" % i, sharding_key="user-7") for i in range(5)]
            bodies.update({one.message_id: b"keyed %d" % i for i, one in enumerate(keyed)})
            assert len({one.queue for one in keyed}) == 1
            assert [one.queue_offset for one in keyed] == sorted(one.queue_offset for one in keyed)
            await producer.send_oneway(topic, b"one way")
        for kind in ("zlib", "lz4", "zstd"):
            async with aerobee.Producer(place.namesrv, compression=kind) as folding:
                body = kind.encode() * 5000
                bodies[(await folding.send(topic, body)).message_id] = body

    run(work())
    found = read_back(place.java, topic)
    assert len(found) == len(bodies) + 1
    for message_id, body in bodies.items():
        assert found[message_id]["bodyHash"] == digest(body)
    first = found[next(iter(bodies))]
    assert (first["tags"], first["keys"]) == ("PAID", "k1 k2")
    assert first["properties"]["mine"] == "ü 1"


def test_delay_and_recall(place: Place) -> None:
    async def work() -> tuple[str, str]:
        async with aerobee.Producer(place.namesrv) as producer:
            await producer.send("delays", b"first")
            recalled = await producer.send("delays", b"recalled", delay=3)
            assert await producer.cancel(recalled) == recalled.message_id
            soon = await producer.send("delays", b"soon", delay_level=1)
            later = await producer.send("delays", b"later", delay=2)
            return soon.message_id, later.message_id

    consumer = place.java.start("consume", topic="delays", group="delays-g", from_="first", expect=3)
    soon, later = run(work())
    consumer.wait(60)
    bodies = {event["msgId"] for event in consumer.events("message")}
    assert {soon, later} <= bodies and len(bodies) == 3


def test_transactions_end_and_are_asked_about(place: Place) -> None:
    asked: list[str] = []

    async def work() -> None:
        event = asyncio.Event()

        def on_check(half: Message) -> bool:
            asked.append(half.body.decode())
            event.set()
            return True

        async with aerobee.Producer(place.namesrv, group="tx", on_check=on_check) as producer:
            async with producer.transaction("tx", b"committed"):
                pass
            async with producer.transaction("tx", b"rolled back") as transaction:
                transaction.rollback()
            with pytest.raises(ZeroDivisionError):
                async with producer.transaction("tx", b"checked"):
                    1 / 0  # noqa: B018
            await asyncio.wait_for(event.wait(), 60)
            # The answer to the check goes one way; a send behind it on the same connection is answered after it.
            await producer.send("tx", b"last")

    run(work())
    assert set(asked) == {"checked"}
    hashes = {event["bodyHash"] for event in read_back(place.java, "tx").values()}
    assert hashes == {digest(b"committed"), digest(b"checked"), digest(b"last")}


def test_a_java_consumer_replies_to_our_request(place: Place) -> None:
    async def work(replier: SessionRun) -> None:
        async with aerobee.Producer(place.namesrv) as producer:
            await producer.send("rpc", b"creates the topic")
            await asyncio.to_thread(replier.wait_for_events, "started")
            async with asyncio.timeout(60):
                while True:  # until its first rebalance
                    try:
                        reply = await producer.request("rpc", b"ping", timeout=3)
                        break
                    except aerobee.NoReplyError:
                        continue
            assert reply.body.startswith(b"answer to ")

    replier = place.java.start("reply", topic="rpc", group="rpc-g", expect=1000)
    run(work(replier))
    replier.stop()


def test_traces_are_found_by_mqadmin(place: Place) -> None:
    async def work() -> aerobee.SendReceipt:
        async with aerobee.Producer(place.namesrv, group="traced", trace=True) as producer:
            return await producer.send("traces", b"x", keys="order-1")

    receipt = run(work())
    text = place.java.mqadmin("queryMsgTraceById", "-i", receipt.message_id, "-t", "RMQ_SYS_TRACE_TOPIC")
    assert "Pub" in text and "traced" in text and "success" in text


@pytest.mark.parametrize("place", ["apache"], indirect=True)
def test_tls(place: Place) -> None:
    """Apache's servers take TLS and plain text on one port (tls.server.mode=permissive, a certificate of its own)."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE

    async def work() -> None:
        async with aerobee.Producer(place.namesrv, tls=context) as producer:
            assert (await producer.send("tls", b"x")).broker == "broker-a"

    run(work())


def test_a_broker_that_checks_signatures(apache_namesrv: apache.ApacheNameServer, tmp_path: Path) -> None:
    settings = {
        "authenticationEnabled": "true",
        "authenticationMetadataProvider": "org.apache.rocketmq.auth.authentication.provider"
        ".LocalAuthenticationMetadataProvider",
        "initAuthenticationUser": json.dumps({"username": "me", "password": secret_for("me")}),
        "innerClientAuthenticationCredentials": json.dumps({"accessKey": "me", "secretKey": secret_for("me")}),
    }

    async def work() -> None:
        queue = aerobee.MessageQueue("signed", "broker-s", 0)
        async with aerobee.Producer(apache_namesrv.address, access_key="me", secret_key=secret_for("me")) as producer:
            assert (await producer.send("signed", b"x", tags="\u00fc", queue=queue)).broker == "broker-s"
        async with aerobee.Producer(apache_namesrv.address, access_key="me", secret_key="wrong") as producer:
            with pytest.raises(aerobee.NoPermissionError, match="check the access key"):
                await producer.send("signed", b"x", queue=queue)

    store = tmp_path / "store"
    with apache.ApacheBroker(tmp_path / "b", store, apache_namesrv.address, name="broker-s", settings=settings):
        run(work())


def test_the_broker_is_killed_and_comes_back_elsewhere_under_a_running_producer(
    apache_namesrv: apache.ApacheNameServer, tmp_path: Path
) -> None:
    """Sends fail while it is down, go on by themselves after, and nothing acknowledged is lost."""
    acknowledged: dict[str, bytes] = {}

    def start_broker() -> apache.ApacheBroker:
        # A port of its own each time.
        return apache.ApacheBroker(tmp_path / "b", tmp_path / "store", apache_namesrv.address, name="broker-k")

    async def keep_sending(producer: aerobee.Producer, moved: asyncio.Condition) -> None:
        count = 0
        while True:
            count += 1
            body = b"%d" % count
            try:
                receipt = await producer.send("kills", body, timeout=1)
            except aerobee.AerobeeError:
                await asyncio.sleep(0.02)
                continue
            acknowledged[receipt.message_id] = body
            async with moved:
                moved.notify_all()

    async def more(moved: asyncio.Condition, count: int) -> None:
        wanted = len(acknowledged) + count
        async with asyncio.timeout(60), moved:
            await moved.wait_for(lambda: len(acknowledged) >= wanted)

    async def work() -> apache.ApacheBroker:
        moved = asyncio.Condition()
        first = await asyncio.to_thread(start_broker)
        async with aerobee.Producer(apache_namesrv.address) as producer:
            sending = asyncio.create_task(keep_sending(producer, moved))
            try:
                await more(moved, 200)
                await asyncio.to_thread(first.kill)
                second = await asyncio.to_thread(start_broker)
                await more(moved, 200)
            finally:
                sending.cancel()
                await asyncio.wait([sending])
        return second

    with run(work()):
        found = read_back(apache.JavaDriver(tmp_path, apache_namesrv.address), "kills")
    assert acknowledged.keys() <= found.keys()
    assert all(found[one]["bodyHash"] == digest(body) for one, body in acknowledged.items())
