"""LocalCluster(secure=True): every kind of client, as a user who may and as one who may not."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from aerobee import AerobeeError, Producer
from aerobee.client.blocking import BlockingClient
from aerobee.client.consumer import LitePullConsumer, PushConsumer
from aerobee.client.core import ClientOptions, client_config
from aerobee.errors import TransportError
from aerobee.errors.codes import NoPermissionError
from aerobee.net.client import RemotingClient
from aerobee.protocol.codes import PrivateRequestCode
from aerobee.protocol.command import request
from aerobee.protocol.signing import signer
from aerobee.sync import Admin
from aerobee.sync import Producer as SyncProducer
from aerobee.testing.cluster import LocalCluster


@pytest.fixture(scope="module")
def secure() -> Iterator[LocalCluster]:
    with LocalCluster(2, secure=True) as cluster:
        cluster.create_topic("orders", 2)
        cluster.create_topic("others", 2)
        yield cluster


@pytest.fixture(scope="module")
def alice(secure: LocalCluster) -> ClientOptions:
    return secure.add_user("alice", {"Topic:orders": "Pub,Sub", "Group:readers": "Sub"})


def test_who_is_nobody_gets_nothing(secure: LocalCluster) -> None:
    async def send(options: ClientOptions) -> None:
        async with Producer(secure.namesrv, timeout=3, retries=0, **options) as producer:
            await producer.send("orders", b"x")

    options = secure.client_options
    wrong: ClientOptions = {**options, "secret_key": "wrong-secret"}
    with pytest.raises(NoPermissionError, match="signature"):
        asyncio.run(send(wrong))
    with pytest.raises(NoPermissionError):
        asyncio.run(send({"tls": options["tls"], "access_key": "", "secret_key": ""}))
    with pytest.raises(TransportError):
        asyncio.run(send({"access_key": options["access_key"], "secret_key": options["secret_key"]}))
    assert secure.messages("orders") == []


def test_asyncio_clients_do_what_their_user_may(secure: LocalCluster, alice: ClientOptions) -> None:
    async def main() -> list[bytes]:
        async with Producer(secure.namesrv, retries=0, **alice) as producer:
            await producer.send("orders", b"asyncio")
            with pytest.raises(AerobeeError, match="alice"):
                await producer.send("others", b"refused")
        found: asyncio.Queue[bytes] = asyncio.Queue()
        consumer = PushConsumer(secure.namesrv, group="readers", consume_from="first", **alice)

        @consumer.listener("orders")
        async def handle(message: object) -> None:
            await found.put(message.body)  # type: ignore[attr-defined]

        async with consumer, asyncio.timeout(30):
            return [await found.get()]

    assert asyncio.run(main()) == [b"asyncio"]
    assert secure.messages("others") == []


def test_clients_without_asyncio(secure: LocalCluster, alice: ClientOptions) -> None:
    with SyncProducer(secure.namesrv, retries=0, **alice) as producer:
        producer.send("orders", b"sync")
        with pytest.raises(NoPermissionError):
            producer.send("others", b"refused")
    mine = BlockingClient(client_config(secure.namesrv, {}, **alice))
    route = mine.route("orders")
    assert route is not None and sum(mine.end_offsets(route.read_queues).values()) >= 1
    with pytest.raises(NoPermissionError, match="alice"):
        mine.route("others")


def test_an_administrator_and_who_is_none(secure: LocalCluster, alice: ClientOptions) -> None:
    options = secure.client_options
    keys = {"access_key": options["access_key"], "secret_key": options["secret_key"]}
    with Admin(secure.namesrv, tls=options["tls"], **keys) as admin:
        admin.topics.create("made", queues=1)
        assert admin.topics.show("made")
        assert admin.users.create("dora", "a-secret-of-hers").is_complete
        assert admin.rights.grant("dora", "Topic:made", ["Pub"]).is_complete
        assert admin.rights.check("dora", "Topic:made", "Pub").allowed
        assert not admin.rights.check("dora", "Topic:made", "Sub").allowed
        assert "a-secret-of-hers" not in str(admin.users.show("dora").to_json())
        assert admin.users.delete("dora").is_complete
    own = {"access_key": alice["access_key"], "secret_key": alice["secret_key"]}
    with Admin(secure.namesrv, tls=alice["tls"], **own) as admin, pytest.raises(AerobeeError, match="alice"):
        admin.topics.delete("made")


def test_users_survive_the_death_of_a_broker(secure: LocalCluster, alice: ClientOptions) -> None:
    async def read() -> int:
        async with LitePullConsumer(secure.namesrv, group="readers", **alice) as consumer:
            return len(await consumer.queues("orders"))

    secure.kill(0)
    secure.restart(0)
    with SyncProducer(secure.namesrv, **alice) as producer:
        for _ in range(4):
            producer.send("orders", b"after")
    assert asyncio.run(read()) == 4


def begun(cluster: LocalCluster, user: ClientOptions, epoch: int) -> str:
    """Begin an epoch of a Spark query at the master; return why not."""

    async def main() -> str:
        config = client_config(cluster.namesrv, {}, **user)
        assert config.credentials is not None
        sign = signer(config.credentials.access_key, config.credentials.secret_key)
        client = RemotingClient(sign=sign, tls=config.tls)
        ext = {"queryId": "totals", "epoch": str(epoch), "run": f"run-{epoch}", "leaseMs": "60000"}
        try:
            asked = request(PrivateRequestCode.BATCH_BEGIN, opaque=client.next_opaque(), ext=ext)
            answer = await client.call(cluster.broker_address(0, cluster.master(0)), asked, 20)
        finally:
            await client.close()
        return "" if answer.code == 0 else answer.remark or "?"

    return asyncio.run(main())


def test_a_group_of_replicas_with_users() -> None:
    with LocalCluster(replicas=3, secure=True) as cluster:
        cluster.create_topic("orders", 1)
        bob = cluster.add_user("bob", {"Topic:orders": "Pub"})
        with SyncProducer(cluster.namesrv, timeout=20, **bob) as producer:
            producer.send("orders", b"before")
            eve = cluster.add_user("eve", {"Topic:orders": "Pub"})
            assert begun(cluster, bob, 1) == ""
            assert "another user's" in begun(cluster, eve, 2)
            cluster.kill(0, cluster.master(0))
            cluster.master(0)
            producer.send("orders", b"after")
            # The new master knows whose query it is.
            assert "another user's" in begun(cluster, eve, 3)
            assert begun(cluster, bob, 4) == ""
        assert [message.body for message in cluster.messages("orders")] == [b"before", b"after"]
