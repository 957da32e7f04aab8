"""Options of clients: shown by help, misspelt ones and wrong values refused in words, before anything is sent."""

from __future__ import annotations

import asyncio
import inspect
import pydoc
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import aerobee
import aerobee.sync
from aerobee import Message, MessageQueue
from aerobee.hot.log.batch import decode_batch

NOWHERE = "127.0.0.1:1"
SENDS = ("send", "send_nowait", "send_oneway", "request", "transaction")
# What is wrong, and what the error must name.
MISSPELT = [
    ({"tag": "PAID"}, "'tag'; did you mean 'tags'"),
    ({"key": "42"}, "'key'; did you mean 'keys'"),
    ({"delay_seconds": 30}, "'delay_seconds'; did you mean 'delay'"),
    ({"deliverAt": 1}, "'deliverAt'; did you mean 'deliver_at'"),
    ({"shardingkey": "a"}, "'shardingkey'; did you mean 'sharding_key'"),
    ({"tags": "a", "colour": "b"}, "'colour'; it takes tags, keys"),
]
WRONG: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"tags": ["a"]}, TypeError, r"tags is one tag, a str, not list: \['a'\]"),
    ({"tags": b"a"}, TypeError, "tags is one tag, a str, not bytes"),
    ({"keys": 42}, TypeError, "keys is a str or a list of them, not int: 42"),
    ({"keys": b"42"}, TypeError, "keys is a str or a list of them, not bytes"),
    ({"keys": ["a", 1]}, TypeError, "a key is a str, not int: 1"),
    ({"properties": {"a": 1}}, TypeError, "property 'a' is a str, not int: 1. properties={'a': '1'}"),
    ({"properties": {1: "a"}}, TypeError, "the name of a property is a str, not int"),
    ({"properties": [("a", "b")]}, TypeError, "properties is a dict of str to str, not list"),
    ({"sharding_key": 7}, TypeError, "sharding_key is a str, not int: 7. sharding_key='7'"),
    ({"queue": 3}, TypeError, r"queue is a MessageQueue, not int: 3.*selector=lambda queues, message: queues\[3\]"),
    ({"selector": "hash"}, TypeError, "selector is a function"),
    ({"delay": "5s"}, TypeError, "delay is seconds or a timedelta, not str"),
    ({"delay": True}, TypeError, "delay is seconds or a timedelta, not bool"),
    ({"delay": -1}, ValueError, "delay=-1"),
    ({"delay": float("nan")}, ValueError, "delay=nan"),
    ({"delay": timedelta(seconds=-1)}, ValueError, "delay=-1"),
    ({"deliver_at": "tomorrow"}, TypeError, "deliver_at is a datetime or milliseconds since 1970, an int, not str"),
    ({"deliver_at": 1.7e12}, TypeError, "deliver_at is a datetime or milliseconds since 1970, an int, not float"),
    ({"deliver_at": 1_700_000_000}, ValueError, "a time in seconds times 1000"),
    ({"delay_level": "3"}, TypeError, "delay_level is an int, not str"),
    ({"delay_level": -1}, ValueError, "delay_level=-1 is below 0"),
    ({"priority": "3"}, TypeError, "priority is an int, not str"),
    ({"priority": True}, TypeError, "priority is an int, not bool"),
    ({"priority": -1}, ValueError, "priority=-1 is below 0"),
    ({"priority": 1 << 31}, ValueError, "is more than 2147483647"),
    ({"priority": 1, "sharding_key": "a"}, ValueError, "priority and sharding_key cannot go together"),
    ({"priority": 1, "selector": max}, ValueError, "priority and selector cannot go together"),
    ({"priority": 1, "delay": 5}, ValueError, "priority and delay cannot go together.*ignores the priority"),
    ({"flag": 1 << 31}, ValueError, "does not fit into 32 bits"),
    ({"timeout": -1}, ValueError, "timeout=-1 is not a time to wait"),
    ({"timeout": 0}, ValueError, "timeout=0 is not a time to wait"),
    ({"timeout": float("nan")}, ValueError, "timeout=nan is not a time to wait"),
    ({"timeout": float("inf")}, ValueError, "timeout=inf is not a time to wait"),
    ({"timeout": "3"}, TypeError, "timeout is a number of seconds, not str"),
    (
        {"sharding_key": "a", "queue": MessageQueue("t", "a", 0)},
        ValueError,
        "sharding_key and queue cannot go together",
    ),
    ({"sharding_key": "a", "selector": max}, ValueError, "sharding_key and selector cannot go together"),
    ({"queue": MessageQueue("t", "a", 0), "selector": max}, ValueError, "queue and selector cannot go together"),
    ({"delay": 1, "delay_level": 1}, ValueError, "delay and delay_level cannot go together"),
]


async def refusal(call: Callable[..., Any], *arguments: Any, **options: Any) -> Exception | None:
    """Return what a call raises. It is awaited where it must be."""
    try:
        result = call(*arguments, **options)
        if inspect.isawaitable(result):
            await result
    except (TypeError, ValueError) as error:
        return error
    return None


def test_every_send_refuses_misspelt_and_wrong_options_before_anything_is_sent(new_cluster: Any) -> None:
    async def work() -> None:
        async with (
            new_cluster("a") as cluster,
            aerobee.Producer(cluster.namesrv, on_check=lambda half: None) as producer,
        ):
            for name in SENDS:
                call = getattr(producer, name)
                for options, words in MISSPELT:
                    error = await refusal(call, "t", b"1", **options)
                    assert type(error) is TypeError, (name, options, error)
                    assert f"{name}() got an unexpected keyword argument" in str(error) and words in str(error)
                for options, kind, words in WRONG:
                    error = await refusal(call, "t", b"1", **options)
                    assert isinstance(error, kind) and isinstance(error, aerobee.AerobeeError), (name, options, error)
                    with pytest.raises(kind, match=words):
                        raise error
            assert cluster.asked == [] and cluster.brokers[0].commands == []

    asyncio.run(work())


@pytest.mark.parametrize("name", SENDS)
def test_the_synchronous_face_refuses_the_same_at_once(name: str) -> None:
    """A send_nowait whose future nobody looks at must not hide it. No name server listens there."""
    producer = aerobee.sync.Producer(NOWHERE, on_check=lambda half: None)
    with producer, pytest.raises(TypeError, match=f"{name}\\(\\) got an unexpected .* did you mean 'tags' and 'keys'"):
        getattr(producer, name)("t", b"1", tag="PAID", key="42")
    with aerobee.sync.Producer(NOWHERE, on_check=lambda half: None) as producer:
        with pytest.raises(TypeError, match="property 'a' is a str, not int"):
            getattr(producer, name)("t", b"1", properties={"a": 1})


def test_what_a_message_says_of_itself_is_held_to_the_same(new_cluster: Any) -> None:
    async def work() -> None:
        async with new_cluster("a") as cluster, aerobee.Producer(cluster.namesrv) as producer:
            wrong = Message("t", b"1", tags=["a"])  # type: ignore[arg-type]
            with pytest.raises(TypeError, match="tags is one tag"):
                await producer.send(wrong)
            with pytest.raises(TypeError, match="tags is one tag"):
                await producer.send_batch([Message("t", b"1"), wrong])
            with pytest.raises(TypeError, match="one of a batch is a Message, not bytes"):
                await producer.send_batch([b"1"])  # type: ignore[list-item]
            with pytest.raises(TypeError, match="topic is a str or a Message, not list"):
                await producer.send(["t"], b"1")  # type: ignore[arg-type]
            with pytest.raises(TypeError, match=r"send_batch.. got an unexpected .*'queues'; did you mean 'queue'"):
                await producer.send_batch([Message("t", b"1")], queues=1)  # type: ignore[call-arg]
            with pytest.raises(ValueError, match="timeout=-1"):
                await producer.send_batch([Message("t", b"1")], timeout=-1)
            assert cluster.brokers[0].commands == []
            # A consumed message that is sent on keeps its key, wherever the caller puts it.
            keyed = Message("t", b"1", system_properties={"__SHARDINGKEY": "k"})
            receipt = await producer.send(keyed, queue=MessageQueue("t", "a", 2))
            assert receipt.queue_id == 2 and cluster.brokers[0].stored[0].properties["__SHARDINGKEY"] == "k"

    asyncio.run(work())


def test_none_is_as_good_as_not_given(new_cluster: Any) -> None:
    async def work() -> None:
        async with new_cluster("a") as cluster, aerobee.Producer(cluster.namesrv) as producer:
            nothing = dict.fromkeys(aerobee.SendOptions.__annotations__)
            receipt = await producer.send("t", b"1", **nothing)  # type: ignore[arg-type]
            assert cluster.brokers[0].stored[0].properties == {"UNIQ_KEY": receipt.message_id}
            at = datetime(2030, 1, 1, tzinfo=UTC)
            await producer.send("t", b"1", delay=None, deliver_at=at, queue=None, sharding_key="a")
            stored = cluster.brokers[0].stored[1].properties
            assert stored["TIMER_DELIVER_MS"] == "1893456000000" and "TIMER_DELAY_MS" not in stored

    asyncio.run(work())


@pytest.mark.parametrize("face", [aerobee.Producer, aerobee.sync.Producer])
def test_help_shows_every_option_with_its_type_and_meaning(face: type) -> None:
    for name in SENDS:
        shown = inspect.signature(getattr(face, name)).parameters
        assert [one for one in shown if one not in ("self", "topic", "body")] == list(
            aerobee.SendOptions.__annotations__
        )
        assert all(one.kind is not one.VAR_KEYWORD for one in shown.values())
        text = pydoc.plain(pydoc.render_doc(getattr(face, name)))
        assert "tags: 'str | None' = None" in text and "timeout: 'float | None' = None" in text
        for option in aerobee.SendOptions.__annotations__:
            assert f"        {option}: " in text, (name, option)


CLIENTS: list[tuple[Any, dict[str, Any], type, str]] = [
    (aerobee.Producer, {}, aerobee.ProducerOptions, "Producer"),
    (aerobee.PushConsumer, {"group": "g"}, aerobee.PushConsumerOptions, "PushConsumer"),
    (aerobee.LitePullConsumer, {"group": "g"}, aerobee.LitePullConsumerOptions, "LitePullConsumer"),
    (aerobee.sync.Producer, {}, aerobee.ProducerOptions, "Producer"),
    (aerobee.sync.PushConsumer, {"group": "g"}, aerobee.PushConsumerOptions, "PushConsumer"),
    (aerobee.sync.LitePullConsumer, {"group": "g"}, aerobee.LitePullConsumerOptions, "LitePullConsumer"),
]


@pytest.mark.parametrize(("client", "needed", "options", "name"), CLIENTS)
def test_constructors_show_and_check_their_options(client: Any, needed: Any, options: type, name: str) -> None:
    shown = inspect.signature(client).parameters
    assert set(options.__annotations__) <= set(shown) and all(one.kind is not one.VAR_KEYWORD for one in shown.values())
    with pytest.raises(TypeError, match=f"{name}.. got an unexpected keyword argument 'acess_key'; .*'access_key'"):
        client(NOWHERE, **needed, acess_key="x")
    with pytest.raises(TypeError, match="request_timeout_ms is int, not str"):
        client(NOWHERE, **needed, request_timeout_ms="3000")
    with pytest.raises(ValueError, match="heartbeat_interval_ms=0 is below 1"):
        client(NOWHERE, **needed, heartbeat_interval_ms=0)


@pytest.mark.parametrize(
    ("client", "options", "kind", "words"),
    [
        (aerobee.Producer, {"timeout": -1}, ValueError, "timeout=-1"),
        (aerobee.Producer, {"timeout": float("nan")}, ValueError, "timeout=nan"),
        (aerobee.Producer, {"attempt_timeout": 0}, ValueError, "attempt_timeout=0"),
        (aerobee.Producer, {"retries": 1.5}, TypeError, "retries is int, not float"),
        (aerobee.Producer, {"retry": 3}, TypeError, "'retry'; did you mean 'retries'"),
        (aerobee.Producer, {"on_check": "f"}, TypeError, "on_check is a function or None, not str"),
        (aerobee.Producer, {"idempotent": 1}, TypeError, "idempotent is bool, not int"),
        (aerobee.PushConsumer, {"group": "g", "concurrency": "5"}, TypeError, "concurrency is int, not str"),
        (aerobee.PushConsumer, {"group": "g", "suspend": float("nan")}, ValueError, "suspend=nan"),
        (aerobee.PushConsumer, {"group": 5}, TypeError, "group is a str, not int"),
        (aerobee.LitePullConsumer, {"group": None}, TypeError, "group is a str, not NoneType"),
        (aerobee.PushConsumer, {"group": "g", "threads": 5}, TypeError, "'threads'; it takes "),
        (aerobee.LitePullConsumer, {"group": "g", "autocommit": False}, TypeError, "did you mean 'auto_commit'"),
        (aerobee.LitePullConsumer, {"group": "g", "pull_batch_size": 0}, ValueError, "pull_batch_size=0 is below 1"),
    ],
)
def test_a_wrong_value_is_named_when_the_client_is_made(client: Any, options: Any, kind: Any, words: str) -> None:
    with pytest.raises(kind, match=words):
        client(NOWHERE, **options)


def test_batches_are_cut_at_what_a_broker_takes(new_cluster: Any) -> None:
    """10,000 messages in one request, whatever the bytes would allow."""

    async def work() -> None:
        async with new_cluster("a") as cluster, aerobee.Producer(cluster.namesrv) as producer:
            messages = [Message("t", b"x")] * 20_001
            receipts = await producer.send_batch(messages, timeout=60)
            sizes = [len(decode_batch(stored.body, 32_767)) for stored in cluster.brokers[0].stored]
            assert sizes == [10_000, 10_000, 1] and len(receipts) == 20_001

    asyncio.run(work())
