"""Ways to somebody else's messages, signatures and replies that no single right opens."""

from __future__ import annotations

import pytest

from aerobee.model.names import BATCH_TOPIC, HALF_TOPIC, POP_TOPIC, SCHEDULE_TOPIC, STATE_TOPIC, TIMER_TOPIC
from aerobee.protocol.bodies.heartbeat import ConsumerData, HeartbeatData, ProducerData, SubscriptionData
from aerobee.protocol.codes import FOR_USER_FIELD, PrivateRequestCode, RequestCode, ResponseCode
from aerobee.protocol.signing import CREDENTIAL_FIELDS
from aerobee.testing.accesskit import AccessClient, access_config, add_user, grant, signed
from aerobee.testing.brokerkit import BrokerKit, run_broker
from aerobee.testing.secrets import secret_for

_R = RequestCode
REFUSED = ResponseCode.NO_PERMISSION


def send_ext(topic: str, *, properties: str = "", flag: str = "0") -> dict[str, str]:
    unique = "UNIQ_KEY\x01C0000201000000000000000000000001\x02"
    return {
        "a": "P", "b": topic, "c": "TBW102", "d": "4", "e": "0", "f": flag, "g": "1700000000000", "h": "0",
        "i": unique + properties, "j": "0", "k": "false", "m": "false",
    }  # fmt: skip


def pull_ext(topic: str, group: str) -> dict[str, str]:
    return {
        "consumerGroup": group, "topic": topic, "queueId": "0", "queueOffset": "0", "maxMsgNums": "32",
        "sysFlag": "4", "commitOffset": "0", "suspendTimeoutMillis": "0", "subscription": "*", "subVersion": "0",
        "expressionType": "TAG",
    }  # fmt: skip


def run(main) -> None:  # type: ignore[no-untyped-def]
    run_broker(main, access=access_config())


def consumer_beat(client: str, group: str, topic: str) -> bytes:
    one = ConsumerData(group, "CONSUME_PASSIVELY", "CLUSTERING", None, (SubscriptionData(topic, "*"),))
    return HeartbeatData(client, (), (one,)).encode()


@pytest.mark.parametrize("code", [_R.GET_CONSUMER_RUNNING_INFO, _R.CONSUME_MESSAGE_DIRECTLY])
def test_a_client_is_not_given_the_signature_of_whoever_asks_about_it(code: int) -> None:
    """A signature covers neither code nor time: with one of a Super user a consumer could read every password."""

    async def main(kit: BrokerKit) -> None:
        root = AccessClient(kit)
        sent = await root.ask(_R.SEND_MESSAGE_V2, send_ext("theirs"), b"x")
        await add_user(root, "bob")
        for resource in ("Topic:theirs", "Group:G"):
            await grant(root, "bob", resource, "Sub")
        bob = AccessClient(kit, "bob")
        assert (await bob.ask(_R.HEART_BEAT, {}, consumer_beat("c", "G", "theirs"))).code == 0
        await bob.connection.pushes()
        ext = {"consumerGroup": "G", "clientId": "c", "jstackEnable": "false", "msgId": sent.ext["msgId"]}
        asked = signed(code, {**ext, "SecurityToken": "token", FOR_USER_FIELD: "root"}, opaque=91)
        root.connection.send(asked)
        pushed = []
        for _ in range(20):
            pushed += await bob.connection.pushes()
            if pushed:
                break
            await kit.pass_time(0.1)
        (push,) = pushed
        assert push.ext["clientId"] == "c" and not CREDENTIAL_FIELDS & push.ext.keys(), push.ext
        bob.connection.answer(push)
        assert [one.opaque for one in await root.connection.answers()] == [91]
        # What a signature that got out is good for.
        stolen = signed(code, ext, opaque=92)
        stolen.code = _R.AUTH_LIST_USER
        assert secret_for("root").encode() in (await kit.connect().call(stolen)).body

    run(main)


def test_replies_to_a_client_do_not_go_to_another_user_of_its_name() -> None:
    """Every user may send a heartbeat, and client ids can be guessed."""

    async def main(kit: BrokerKit) -> None:
        root = AccessClient(kit)
        for name in ("bob", "eve"):
            await add_user(root, name)
        fronted = {FOR_USER_FIELD: "bob"}
        beat = HeartbeatData("asker", (ProducerData("P"),)).encode()
        reply = {**send_ext("c_REPLY_TOPIC", properties="REPLY_TO_CLIENT\x01asker\x02CORRELATION_ID\x011\x02")}

        async def reached(*clients: AccessClient) -> list[str]:
            root.connection.send(signed(_R.SEND_REPLY_MESSAGE_V2, reply, b"the answer", opaque=93))
            found = []
            for one in clients:
                for push in await one.connection.pushes():
                    assert push.code == _R.PUSH_REPLY_MESSAGE_TO_CLIENT and push.body == b"the answer"
                    found.append(str(one.user))
                    one.connection.answer(push)
            await root.connection.answers()
            return found

        bob, eve, front, again = (AccessClient(kit, name) for name in ("bob", "eve", "inner", "bob"))
        assert (await bob.ask(_R.HEART_BEAT, {}, beat)).code == 0
        for more in ({}, fronted):
            assert (await eve.ask(_R.HEART_BEAT, more, beat)).code == 0
        assert await reached(bob, eve) == ["bob"]
        # A new connection of the same user takes the name over, also one that a front made for that user.
        assert (await again.ask(_R.HEART_BEAT, {}, beat)).code == 0
        assert await reached(eve, bob, again) == ["bob"]
        bob.connection.close()
        again.connection.close()
        await kit.pass_time(1)
        assert (await front.ask(_R.HEART_BEAT, fronted, beat)).code == 0
        assert await reached(eve, front) == ["inner"]
        # Who has left has no claim any more.
        front.connection.close()
        await kit.pass_time(1)
        other = HeartbeatData("asker", (ProducerData("Q"),)).encode()
        assert (await eve.ask(_R.HEART_BEAT, {}, other)).code == 0
        assert await reached(eve) == ["eve"]

    run(main)


def test_topics_that_hold_messages_of_all_topics_are_shown_to_super_users() -> None:
    """A right to every topic but one is none to the broker's own topics, where messages of that one wait."""

    async def main(kit: BrokerKit) -> None:
        root = AccessClient(kit)
        await add_user(root, "bob")
        await grant(root, "bob", "*", "All")
        await grant(root, "bob", "Topic:payroll", "All", decision="Deny")
        bob = AccessClient(kit, "bob")
        for properties, flag in (("DELAY\x013\x02", "0"), ("TRAN_MSG\x01true\x02PGROUP\x01P\x02", "4")):
            answer = await root.ask(_R.SEND_MESSAGE_V2, send_ext("payroll", properties=properties, flag=flag), b"pay")
            assert answer.code == 0, answer.remark
        for name in (
            SCHEDULE_TOPIC,
            HALF_TOPIC,
            TIMER_TOPIC,
            BATCH_TOPIC,
            STATE_TOPIC,
            POP_TOPIC,
            "rmq_sys_REVIVE_LOG_c",
        ):
            for code, ext in (
                (_R.PULL_MESSAGE, pull_ext(name, "G")),
                (_R.LITE_PULL_MESSAGE, pull_ext(name, "G")),
                (_R.POP_MESSAGE, pull_ext(name, "G")),
                (_R.PEEK_MESSAGE, pull_ext(name, "G")),
                (PrivateRequestCode.BULK_PULL, pull_ext(name, "G")),
                (PrivateRequestCode.BULK_PULL, {**pull_ext(name, ""), "consumerGroup": ""}),
                (
                    _R.QUERY_MESSAGE,
                    {"topic": name, "key": "k", "maxNum": "9", "beginTimestamp": "0", "endTimestamp": "9"},
                ),
            ):
                answer = await bob.ask(code, ext)
                assert (answer.code, answer.body) == (REFUSED, b""), (name, code, answer)
                assert f"User:bob has no permission to access Topic:{name} (Super)" in (answer.remark or "")
        # The sizes of these topics may be asked for, and a Super user reads them.
        assert (await bob.ask(_R.GET_MAX_OFFSET, {"topic": SCHEDULE_TOPIC, "queueId": "2"})).code == 0
        answer = await root.ask(_R.PULL_MESSAGE, {**pull_ext(SCHEDULE_TOPIC, "G"), "queueId": "2"})
        assert (answer.code, b"pay" in answer.body) == (0, True)
        # What waits there is shown by its place to who may read the topic that it waits for.
        half = await root.ask(_R.PULL_MESSAGE, pull_ext(HALF_TOPIC, "G"))
        assert half.code == 0
        place = {"offset": str(int.from_bytes(half.body[28:36], "big"))}
        answer = await bob.ask(_R.VIEW_MESSAGE_BY_ID, place)
        assert (answer.code, "Topic:payroll" in (answer.remark or "")) == (REFUSED, True)

    run(main)


def test_offsets_are_cloned_only_where_the_topic_may_be_changed() -> None:
    """Blanks around a name do not count for the handler, and no name stands for all topics of the group."""

    async def main(kit: BrokerKit) -> None:
        root = AccessClient(kit)
        for topic in ("payroll", "other"):
            assert (await root.ask(_R.SEND_MESSAGE_V2, send_ext(topic), b"x")).code == 0
        for group in ("A", "B"):
            body = f'{{"groupName":"{group}"}}'.encode()
            assert (await root.ask(_R.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, body)).code == 0
        await add_user(root, "bob")
        await grant(root, "bob", "Group:*", "All")
        await grant(root, "bob", "Topic:*", "All")
        await grant(root, "bob", "Topic:payroll", "All", decision="Deny")
        for topic in ("payroll", "other"):
            kit.broker.state.offsets.commit("A", topic, 0, 1)
        bob = AccessClient(kit, "bob")
        for name in ("payroll", " payroll", "payroll ", "\tpayroll", "", "  ", None):
            ext = {"srcGroup": "A", "destGroup": "B", "offline": "true"} | ({} if name is None else {"topic": name})
            answer = await bob.ask(_R.CLONE_GROUP_OFFSET, ext)
            assert answer.code == REFUSED, (name, answer)
        assert kit.broker.state.offsets.query("B", "payroll", 0) == -1
        ext = {"srcGroup": "A", "destGroup": "B", "offline": "true", "topic": " other "}
        assert (await bob.ask(_R.CLONE_GROUP_OFFSET, ext)).code == 0
        assert kit.broker.state.offsets.query("B", "other", 0) == 1

    run(main)


def test_a_retry_topic_of_pop_belongs_to_its_group_whether_the_topic_is_there_or_not() -> None:
    async def main(kit: BrokerKit) -> None:
        root = AccessClient(kit)
        await add_user(root, "bob")
        await grant(root, "bob", "Group:G*", "Sub")
        await grant(root, "bob", "Group:G", "Sub", decision="Deny")
        bob = AccessClient(kit, "bob")
        for name in ("%RETRY%G", "%RETRY%G+gone", "%RETRY%G+a+b"):
            answer = await bob.ask(_R.SEND_MESSAGE_V2, send_ext(name), b"x")
            assert (answer.code, "Group:G (Sub)" in (answer.remark or "")) == (REFUSED, True), (name, answer)

    run(main)
