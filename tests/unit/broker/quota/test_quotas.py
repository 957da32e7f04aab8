"""Quotas: how they are written, what a bucket gives, and what clients of a broker with quotas see."""

import asyncio

import pytest

from aerobee.broker.config import BrokerConfig
from aerobee.broker.quota.rules import Bucket, Buckets
from aerobee.broker.quota.throttle import messages_in
from aerobee.errors import ConfigError, InvalidArgumentError
from aerobee.hot.log.batch import encode_batch
from aerobee.hot.wire.frame import scan_frames
from aerobee.model.quota import Quota, QuotaKind, parse_quotas, render_quotas
from aerobee.model.topic import TopicConfig
from aerobee.protocol.codes import PrivateRequestCode, RequestCode, ResponseCode
from aerobee.protocol.command import encode_command, request
from aerobee.testing.brokerkit import BrokerKit, KitClient, run_broker
from aerobee.testing.sendkit import send


def test_quotas_are_read_as_they_are_written() -> None:
    text = "topic:* messages=5; user:alice bytes=1000 messages=7; address:10.0.0.9 bytes=1"
    found = parse_quotas(text)
    assert found == (
        Quota(QuotaKind.topic, "*", 0, 5),
        Quota(QuotaKind.user, "alice", 1000, 7),
        Quota(QuotaKind.address, "10.0.0.9", 1, 0),
    )
    assert parse_quotas(render_quotas(found)) == tuple(sorted(found, key=lambda one: one.kind.name))
    assert parse_quotas(" ; ") == ()


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("alice bytes=1", "is not user:NAME"),
        ("client:x bytes=1", "is not user:NAME"),
        ("user: bytes=1", "is not user:NAME"),
        ("user:a", "neither bytes=N nor messages=N"),
        ("user:a bytes", "is not bytes=N"),
        ("user:a packets=4", "is not bytes=N"),
        ("user:a bytes=0", "bytes"),
        ("user:a bytes=-5", "bytes"),
        ("user:a bytes=" + "9" * 5000, "bytes"),
        ("user:a bytes=1; user:a messages=1", "two quotas"),
        ("user:" + "a" * 300 + " bytes=1", "longer than 255"),
        ("; ".join(f"user:u{n} bytes=1" for n in range(1001)), "1000 are the most"),
    ],
)
def test_what_makes_no_sense_is_refused_in_words(text: str, reason: str) -> None:
    with pytest.raises(InvalidArgumentError, match=reason) as refused:
        parse_quotas(text)
    assert len(str(refused.value)) < 500
    with pytest.raises(ConfigError, match="quotas: "):
        BrokerConfig(quotas=text)


def test_a_bucket_gives_its_rate_and_a_second_at_once() -> None:
    bucket = Bucket(Quota(QuotaKind.user, "a", 0, 10), 0.0)
    taken = 0
    for step in range(1001):
        while bucket.wait_s(step / 100) <= 0:
            bucket.take(100, 1)
            taken += 1
    # Ten at the start, ten a second for ten seconds, and the one that makes the debt.
    assert 109 <= taken <= 112
    assert 0 < bucket.wait_s(10.0) <= 0.1


def test_a_large_message_is_never_too_large_and_waits_for_its_debt() -> None:
    bucket = Bucket(Quota(QuotaKind.user, "a", 100, 0), 0.0)
    assert bucket.wait_s(0.0) == 0
    bucket.take(1000, 1)
    assert bucket.wait_s(0.0) == pytest.approx(9)
    assert bucket.wait_s(5.0) == pytest.approx(4)
    assert bucket.wait_s(9.1) == 0
    # A clock that goes back gives nothing twice.
    assert bucket.wait_s(1.0) == 0


def test_a_star_is_a_quota_for_each_name() -> None:
    buckets = Buckets(parse_quotas("user:* messages=1; user:vip messages=1000"))
    assert buckets.of(QuotaKind.user, "a", 0.0) is buckets.of(QuotaKind.user, "a", 1.0)
    assert buckets.of(QuotaKind.user, "a", 0.0) is not buckets.of(QuotaKind.user, "b", 0.0)
    assert buckets.of(QuotaKind.topic, "a", 0.0) is None
    assert Buckets(parse_quotas("topic:* messages=1")).of(QuotaKind.topic, "9" * 5000, 0.0) is None


@pytest.mark.parametrize(
    ("body", "count"),
    [
        (encode_batch([(0, b"x", b"")] * 7), 7),
        (b"", 1),
        (b"\0\0\0\0" * 100, 1),
        (b"\xff\xff\xff\xff", 1),
        (b"\0\0\0\4" * 50_000, 10_000),
    ],
)
def test_the_messages_of_a_batch_are_counted(body: bytes, count: int) -> None:
    data = encode_command(request(RequestCode.SEND_BATCH_MESSAGE, None, body, opaque=1))
    (frame,), _ = scan_frames(data)
    assert messages_in(frame) == count


# -- a broker with quotas


def quotas(text: str) -> BrokerConfig:
    return BrokerConfig(broker_name="broker-a", broker_fast_failure_enable=False, quotas=text)


async def flood(kit: BrokerKit, client: KitClient, seconds: int, *, rate: int, topic: str = "T") -> list[int]:
    """Send one after the other as answers come, at most so many a second; return the codes of the answers."""
    codes: list[int] = []
    number = 0
    for _ in range(seconds * 100):
        for _ in range(rate // 100):
            number += 1
            client.send(send(f"{topic}{number}", topic=topic, opaque=number))
        await kit.pass_time(0.01, 0.01)
        codes += [answer.code for answer in await client.answers()]
    return codes


def test_who_is_over_its_quota_is_held_to_it_and_others_are_not() -> None:
    async def main(kit: BrokerKit) -> None:
        for topic in ("T", "U"):
            kit.state.catalog.put_topic(TopicConfig(topic, 1, 1))
        loud, quiet = kit.connect(), kit.connect()
        both = await asyncio.gather(flood(kit, loud, 5, rate=1000), flood(kit, quiet, 5, rate=100, topic="U"))
        stored = both[0].count(0)
        # 100 a second, and a second's worth at the start.
        assert 540 <= stored <= 660, stored
        assert set(both[0]) == {0, ResponseCode.FLOW_CONTROL}
        assert both[1].count(0) == len(both[1]) == 500
        assert kit.broker.throttle.refused > 0

    run_broker(main, config=quotas("topic:T messages=100"))


def test_an_address_has_a_quota_and_its_other_requests_wait_their_turn() -> None:
    async def main(kit: BrokerKit) -> None:
        kit.state.catalog.put_topic(TopicConfig("T", 1, 1))
        client = kit.connect()
        for number in range(4):
            client.send(send(f"K{number}", b"x" * 100, opaque=number))
        client.send(request(RequestCode.GET_BROKER_CONFIG, opaque=9))
        answered = await client.answers()
        assert [one.opaque for one in answered] == [0, 1]
        await kit.pass_time(0.3, 0.1)
        # What was read together with a send that waits is not held back.
        assert [one.opaque for one in await client.answers()] == [9, 2]
        await kit.pass_time(5, 0.1)
        rest = await client.answers()
        assert [(one.opaque, one.code) for one in rest] == [(3, 0)]

    run_broker(main, config=quotas("address:10.0.0.9 bytes=190"))


def test_a_client_that_leaves_while_it_waits_leaves_nothing() -> None:
    async def main(kit: BrokerKit) -> None:
        kit.state.catalog.put_topic(TopicConfig("T", 1, 1))
        client = kit.connect()
        for number in range(50):
            client.send(send(f"K{number}", opaque=number))
        client.close()
        await kit.pass_time(5)
        assert kit.broker.throttle._waiting == {}
        other = kit.connect()
        assert (await other.call(send("L", opaque=1))).code == 0

    run_broker(main, config=quotas("topic:* messages=2"))


def test_a_user_has_a_quota_and_the_address_of_a_user_has_none() -> None:
    async def main(kit: BrokerKit) -> None:
        kit.state.catalog.put_topic(TopicConfig("T", 1, 1))
        alice, anonymous = kit.connect(), kit.connect()
        # What the guard of access control writes when a signature is right.
        alice.channel.user = "alice"
        for client in (alice, anonymous):
            for number in range(30):
                client.send(send(f"K{number}", opaque=number))
        await kit.pass_time(0.05, 0.01)
        assert (len(await alice.answers()), len(await anonymous.answers())) == (11, 6)

    run_broker(main, config=quotas("user:alice messages=10; address:* messages=5"))


def test_rows_of_a_sink_count_and_wait_by_being_sent_again() -> None:
    """Whoever sends rows of a query instead of messages does not escape, over many connections neither."""
    rows = encode_batch([(0, b"x", b"UNIQ_KEY\x01A\x02")] * 5)

    def ext(number: int, topic: str) -> dict[str, str]:
        return {
            "queryId": "q", "batchId": "0", "topic": topic, "queueId": "0", "producerGroup": "P", "leaseMs": "60000",
            "attempt": f"a{number}", "sequence": "0",
        }  # fmt: skip

    async def main(kit: BrokerKit) -> None:
        for topic in ("T", "U"):
            kit.state.catalog.put_topic(TopicConfig(topic, 1, 1))
        told: list[tuple[str, int]] = []
        for number in range(10):
            for topic in ("T", "U"):
                command = request(PrivateRequestCode.BATCH_ROWS, None, rows, opaque=1)
                command.ext.update(ext(number, topic))
                told.append((topic, (await kit.connect().call(command)).code))
        assert [code for topic, code in told if topic == "T"] == [0, 0, 0] + [ResponseCode.SYSTEM_BUSY] * 7
        assert {code for topic, code in told if topic == "U"} == {0}
        await kit.pass_time(2)
        command = request(PrivateRequestCode.BATCH_ROWS, None, rows, opaque=1)
        command.ext.update(ext(99, "T"))
        assert (await kit.connect().call(command)).code == 0
        # Sends and rows have one bucket.
        assert (await kit.connect().call(send("K", topic="T", opaque=1))).code == 0
        for keys in ("9" * 5000, "-1", "x"):
            command = request(PrivateRequestCode.BATCH_ROWS, None, rows, opaque=1)
            command.ext.update({**ext(3, "U"), "keys": keys})
            assert (await kit.connect().call(command)).code not in (0, ResponseCode.SYSTEM_BUSY)

    run_broker(main, config=quotas("topic:T messages=10"))


def test_without_quotas_the_handlers_are_the_same() -> None:
    async def main(kit: BrokerKit) -> None:
        assert kit.broker.served().fast is kit.broker.fast
        assert kit.broker.served().handlers is kit.broker.handlers
        kit.broker.live_settings.update({"quotas": "topic:T messages=1"})
        guarded = kit.broker.served().fast
        assert guarded[RequestCode.SEND_MESSAGE_V2] is not kit.broker.fast[RequestCode.SEND_MESSAGE_V2]
        assert guarded[RequestCode.PULL_MESSAGE] is kit.broker.fast[RequestCode.PULL_MESSAGE]
        kit.broker.live_settings.unset(["quotas"])
        assert kit.broker.served().fast is kit.broker.fast

    run_broker(main, config=quotas(""))
