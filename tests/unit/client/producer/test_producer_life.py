"""A producer's life: heartbeats, leaving, sharing, credentials, TLS, transactions, requests, trace."""

from __future__ import annotations

import asyncio
import base64
import hmac
from typing import Any

import pytest

import aerobee
from aerobee import Message, TransactionState
from aerobee.client.core import corepool
from aerobee.client.producer.requestreply import send_reply
from aerobee.hot.log.host import encode_host
from aerobee.hot.log.layout import TRANSACTION_PREPARED
from aerobee.hot.log.properties import encode_properties
from aerobee.hot.log.record import Draft, encode_records
from aerobee.model.ids import decode_offset_message_id
from aerobee.model.route import BrokerData, QueueData, TopicRouteData
from aerobee.net.channel import Channel
from aerobee.protocol.codes import RequestCode
from aerobee.protocol.command import Command, response
from aerobee.protocol.headers.transaction import CheckTransactionStateRequestHeader
from aerobee.testing.secrets import secret_for


def run(work: Any) -> Any:
    return asyncio.run(asyncio.wait_for(work, 60))


def test_a_new_connection_begins_with_a_heartbeat_and_closing_says_goodbye(new_cluster: Any) -> None:
    async def work() -> None:
        async with new_cluster("a") as cluster:
            broker = cluster.brokers[0]
            before = asyncio.all_tasks()
            async with aerobee.Producer(cluster.namesrv, group="g", instance_name="me") as producer:
                await producer.send("t", b"x")
                await broker.until(lambda: broker.heartbeats)
            assert broker.heartbeats[0].client_id.endswith("@me")
            assert [data.group_name for data in broker.heartbeats[0].producer_data_set] == ["g"]
            [goodbye] = broker.of(RequestCode.UNREGISTER_CLIENT)
            assert goodbye.ext["producerGroup"] == "g" and goodbye.ext["clientID"].endswith("@me")
            assert asyncio.all_tasks() == before
            assert not corepool._cores and not corepool._users

    run(work())


def test_heartbeats_go_on_and_routes_are_asked_again(new_cluster: Any) -> None:
    async def work() -> None:
        async with new_cluster("a") as cluster:
            broker = cluster.brokers[0]
            options: Any = {"heartbeat_interval_ms": 20, "route_interval_ms": 20}
            async with aerobee.Producer(cluster.namesrv, **options) as producer:
                await producer.send("t", b"x")
                await broker.until(lambda: len(broker.heartbeats) >= 4)
                assert cluster.asked.count("t") >= 2

    run(work())


def test_a_broker_that_fell_silent_gets_a_new_connection(new_cluster: Any) -> None:
    async def work() -> None:
        async with new_cluster("a") as cluster:
            broker = cluster.brokers[0]
            options: Any = {"heartbeat_interval_ms": 30, "request_timeout_ms": 1000}
            async with aerobee.Producer(cluster.namesrv, **options) as producer:
                await producer.send("t", b"x")
                broker.answers_heartbeats = False
                await broker.until(lambda: len(set(broker.heartbeat_channels)) > 1)
                broker.answers_heartbeats = True
                assert (await producer.send("t", b"x")).broker == "a"

    run(work())


def test_producers_with_equal_settings_share_a_connection_and_others_do_not(new_cluster: Any) -> None:
    async def work() -> None:
        async with new_cluster("a") as cluster:
            one, two = aerobee.Producer(cluster.namesrv), aerobee.Producer(cluster.namesrv, group="other")
            three = aerobee.Producer(cluster.namesrv, namespace="ns")
            async with one, two, three:
                for producer in (one, two, three):
                    await producer.send("t", b"x")
                assert one._core is two._core and one._core is not three._core
                assert len(cluster.brokers[0].server.channels) == 2

    run(work())


def test_constructing_needs_no_loop_and_wrong_use_is_said(new_cluster: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)
    with pytest.raises(aerobee.InvalidArgumentError, match="NAMESRV_ADDR"):
        aerobee.Producer()
    monkeypatch.setenv("NAMESRV_ADDR", "h1:9876;h2:9876")
    producer = aerobee.Producer()
    assert producer.client_config.namesrv == ("h1:9876", "h2:9876")
    with pytest.raises(TypeError, match="unexpected keyword argument 'grp'"):
        aerobee.Producer("h:1", grp="x")  # type: ignore[call-arg]
    with pytest.raises(aerobee.InvalidArgumentError, match="not host:port"):
        aerobee.Producer("localhost:no")

    async def not_started() -> None:
        with pytest.raises(aerobee.ClientStateError, match="not started"):
            await producer.send("t", b"x")

    run(not_started())

    async def other_loop() -> aerobee.Producer:
        return await aerobee.Producer("h:1").start()

    started = run(other_loop())

    async def elsewhere() -> None:
        with pytest.raises(aerobee.ClientStateError, match="another event loop"):
            await started.send("t", b"x")

    run(elsewhere())


def test_requests_are_signed_as_apache_checks_them(new_cluster: Any) -> None:
    async def work() -> None:
        async with new_cluster("a") as cluster:
            options: Any = {"access_key": "me", "secret_key": secret_for("me"), "security_token": "st"}
            async with aerobee.Producer(cluster.namesrv, **options) as producer:
                await producer.send("t", b"body", tags="ü")
            command = cluster.brokers[0].stored[0].command
            fields = {name: value for name, value in command.ext.items() if name != "Signature"}
            content = "".join(fields[name] for name in sorted(fields)).encode() + b"body"
            expected = base64.b64encode(hmac.digest(secret_for("me").encode(), content, "sha1")).decode()
            assert command.ext["Signature"] == expected
            assert (command.ext["AccessKey"], command.ext["SecurityToken"]) == ("me", "st")
            assert secret_for("me") not in repr(producer.client_config)

    run(work())


def half_message(group: str, receipt: aerobee.SendReceipt) -> bytes:
    properties = {"UNIQ_KEY": receipt.message_id, "PGROUP": group, "REAL_TOPIC": "t", "TRAN_MSG": "true"}
    host = encode_host("127.0.0.1:1")
    draft = Draft(
        b"t", 0, 0, TRANSACTION_PREPARED, 1, host, host, 0, 0, b"half", encode_properties(properties), 0, "", ""
    )
    return encode_records([draft], 100, 1, False)


def test_transactions_commit_roll_back_and_stay_unknown(new_cluster: Any) -> None:
    async def work() -> None:
        async with new_cluster("a") as cluster:
            broker = cluster.brokers[0]
            async with aerobee.Producer(cluster.namesrv, group="g", on_check=lambda half: None) as producer:
                async with producer.transaction("t", b"1") as tx:
                    assert broker.stored[0].sys_flag & TRANSACTION_PREPARED
                    assert broker.stored[0].properties["TRAN_MSG"] == "true"
                    assert broker.stored[0].properties["PGROUP"] == "g"
                    assert not broker.of(RequestCode.END_TRANSACTION)
                async with producer.transaction("t", b"2") as rolled:
                    rolled.rollback()
                with pytest.raises(KeyError):
                    async with producer.transaction("t", b"3"):
                        raise KeyError("x")
                await broker.until(lambda: len(broker.of(RequestCode.END_TRANSACTION)) == 3)
                ends = broker.of(RequestCode.END_TRANSACTION)
                assert [end.ext["commitOrRollback"] for end in ends] == ["8", "12", "0"]
                assert ends[0].ext["msgId"] == tx.message_id
                offset = decode_offset_message_id(tx.receipt.offset_id).physical_offset
                assert ends[0].ext["commitLogOffset"] == str(offset)
                assert ends[2].is_oneway and "KeyError" in str(ends[2].remark)
        without = aerobee.Producer(cluster.namesrv)
        with pytest.raises(aerobee.InvalidArgumentError, match="on_check"):
            without.transaction("t", b"x")

    run(work())


@pytest.mark.parametrize(
    ("verdict", "flag"),
    [(True, "8"), (False, "12"), (None, "0"), (TransactionState.COMMIT, "8"), (ValueError("?"), "0")],
)
def test_a_brokers_question_is_answered_by_on_check(new_cluster: Any, verdict: Any, flag: str) -> None:
    asked: list[Message] = []

    async def on_check(half: Message) -> Any:
        asked.append(half)
        if isinstance(verdict, Exception):
            raise verdict
        return verdict

    async def work() -> None:
        async with new_cluster("a") as cluster:
            broker = cluster.brokers[0]
            async with aerobee.Producer(cluster.namesrv, group="g", on_check=on_check) as producer:
                receipt = await producer.send("t", b"x")
                header = CheckTransactionStateRequestHeader(
                    topic="t", tran_state_table_offset=7, commit_log_offset=100, transaction_id="T"
                )
                broker.push(RequestCode.CHECK_TRANSACTION_STATE, header, half_message("g", receipt))
                await broker.until(lambda: broker.of(RequestCode.END_TRANSACTION))
            [end] = broker.of(RequestCode.END_TRANSACTION)
            assert end.ext["commitOrRollback"] == flag and end.ext["fromTransactionCheck"] == "true"
            assert end.ext["tranStateTableOffset"] == "7" and end.ext["msgId"] == receipt.message_id
            assert end.is_oneway and asked[0].body == b"half" and asked[0].topic == "t"

    run(work())


def test_a_request_gets_the_reply_that_is_pushed_to_it(new_cluster: Any) -> None:
    async def work() -> None:
        async with new_cluster("a") as cluster:
            broker = cluster.brokers[0]

            async with aerobee.Producer(cluster.namesrv) as producer:
                broker.replies = True
                reply = await producer.request("t", b"ping", timeout=30)
                assert reply.body == b"pong" and reply.properties == {"mine": "1"}
                own = broker.stored[0].properties
                assert own["TTL"] == "30000" and own["REPLY_TO_CLIENT"] == broker.heartbeats[0].client_id
                # A broker pushes only to clients it knows.
                assert broker.commands[0].code == RequestCode.HEART_BEAT
                broker.replies = False
                with pytest.raises(aerobee.NoReplyError, match="is a consumer of 't' up"):
                    await producer.request("t", b"ping", timeout=0.2)

    run(work())


def test_a_reply_goes_to_the_clusters_reply_topic_on_the_requests_broker(new_cluster: Any) -> None:
    async def work() -> None:
        async with new_cluster("a", "b") as cluster, aerobee.Producer(cluster.namesrv) as producer:
            own = {"CLUSTER": "C", "CORRELATION_ID": "c1", "REPLY_TO_CLIENT": "me", "TTL": "3000"}
            request = Message("t", b"?", broker="b", system_properties=own)
            sender = producer._running()
            receipt = await send_reply(sender, request, b"answer")
            assert receipt.broker == "b"
            stored = cluster.brokers[1].stored[0]
            assert stored.command.code == RequestCode.SEND_REPLY_MESSAGE_V2 and stored.topic == "C_REPLY_TOPIC"
            assert stored.properties.items() >= {"MSG_TYPE": "reply", "CORRELATION_ID": "c1", "TTL": "3000"}.items()
            with pytest.raises(aerobee.InvalidArgumentError, match="nobody to reply to"):
                await send_reply(sender, Message("t", b"?"), b"answer")

    run(work())


def test_traces_are_apaches_records(new_cluster: Any) -> None:
    async def work() -> None:
        async with new_cluster("a") as cluster:
            broker = cluster.brokers[0]
            async with aerobee.Producer(cluster.namesrv, group="g", trace=True) as producer:
                receipt = await producer.send("t", b"body", keys="k1 k2")
            [trace] = [stored for stored in broker.stored if stored.topic == "RMQ_SYS_TRACE_TOPIC"]
            [line, rest] = trace.body.decode().split("\x02")
            fields = line.split("\x01")
            assert rest == "" and len(fields) == 14
            assert [fields[i] for i in (0, 2, 3, 4, 5, 6, 7, 8, 9, 11, 12, 13)] == [
                "Pub", "DefaultRegion", "g", "t", receipt.message_id, "null", "k1 k2", broker.address, "4", "0",
                receipt.offset_id, "true",
            ]  # fmt: skip
            assert trace.properties["KEYS"] == f"{receipt.message_id} k1 k2"

    run(work())


def test_a_static_topics_logical_queues_go_to_the_brokers_that_serve_them(new_cluster: Any) -> None:
    async def work() -> None:
        async with new_cluster("a", "b") as cluster, aerobee.Producer(cluster.namesrv) as producer:
            mapping = {
                name: {"bname": name, "scope": "__global__", "totalQueues": 2, "epoch": 1, "currIdMap": {i: 0}}
                for i, name in enumerate("ab")
            }
            cluster.extra["static"] = TopicRouteData(
                tuple(QueueData(broker.name, 1, 1, 6) for broker in cluster.brokers),
                tuple(BrokerData("C", broker.name, {0: broker.address}) for broker in cluster.brokers),
                topic_queue_mapping_by_broker=mapping,
            )
            for _ in range(2):
                await producer.send("static", b"x")
            assert [(s.queue_id, s.command.ext["n"]) for b in cluster.brokers for s in b.stored] == [(0, "a"), (1, "b")]

    run(work())


def test_closing_answers_what_is_in_flight_first(new_cluster: Any) -> None:
    async def work() -> None:
        async with new_cluster("a") as cluster:
            async with aerobee.Producer(cluster.namesrv) as producer:
                futures = [producer.send_nowait("t", b"x") for _ in range(20)]
            assert all(future.result().broker == "a" for future in futures)
            with pytest.raises(aerobee.ClientStateError, match="closed"):
                await producer.send("t", b"x")

    run(work())


def test_a_go_away_is_followed_by_a_new_connection(new_cluster: Any) -> None:
    async def work() -> None:
        async with new_cluster("a") as cluster, aerobee.Producer(cluster.namesrv) as producer:
            broker = cluster.brokers[0]

            def go_away(channel: Channel, command: Command, count: int) -> Command | None:
                broker.answer_send = broker.store
                return response(command, 1500, remark="go away")

            broker.answer_send = go_away
            assert (await producer.send("t", b"x")).broker == "a"
            assert len(broker.stored) == 2

    run(work())
