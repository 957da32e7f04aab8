"""The guard before a broker's handlers: who is let in, what each request needs, and that nothing is read by a side
door."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping

import pytest

from aerobee.access.brokertable import BROKER_ROWS
from aerobee.access.namesrvtable import NAMESRV_ROWS
from aerobee.access.owners import QUERIES_MAX, QueryOwners
from aerobee.access.requests import ACCESS_ROWS
from aerobee.broker.config import BrokerConfig
from aerobee.errors import ConfigError
from aerobee.model.names import HALF_TOPIC
from aerobee.namesrv.config import NamesrvConfig
from aerobee.namesrv.handlers import NameServer
from aerobee.protocol.bodies.heartbeat import ConsumerData, HeartbeatData, ProducerData, SubscriptionData
from aerobee.protocol.codes import (
    BINARY,
    FOR_SOURCE_FIELD,
    FOR_USER_FIELD,
    JSON,
    PrivateRequestCode,
    RequestCode,
    ResponseCode,
    request_codes,
)
from aerobee.protocol.command import Command
from aerobee.protocol.signing import SIGNATURE
from aerobee.testing.accesskit import AccessClient, access_config, add_user, grant, signed
from aerobee.testing.brokerkit import BrokerKit, run_broker
from aerobee.testing.clock import VirtualClock
from aerobee.testing.disk import RecordingDisk
from aerobee.testing.secrets import secret_for

_R = RequestCode
REFUSED = ResponseCode.NO_PERMISSION
NOT_SERVED = ResponseCode.REQUEST_CODE_NOT_SUPPORTED


def send_ext(topic: str, **more: str) -> dict[str, str]:
    return {
        "a": "P", "b": topic, "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "1700000000000", "h": "0",
        "i": "UNIQ_KEY\x01C0000201000000000000000000000001\x02TAGS\x01t\x02", "j": "0", "k": "false", "m": "false",
        **more,
    }  # fmt: skip


def pull_ext(topic: str, group: str, offset: int = 0) -> dict[str, str]:
    return {
        "consumerGroup": group, "topic": topic, "queueId": "0", "queueOffset": str(offset), "maxMsgNums": "32",
        "sysFlag": "4", "commitOffset": "0", "suspendTimeoutMillis": "0", "subscription": "*", "subVersion": "0",
        "expressionType": "TAG",
    }  # fmt: skip


def run(main, **more: object) -> BrokerKit:  # type: ignore[no-untyped-def]
    return run_broker(main, access=access_config(), **more)  # type: ignore[arg-type]


async def with_message(kit: BrokerKit, topic: str = "theirs", **more: str) -> tuple[AccessClient, Command]:
    """Send a message as root, and return root's connection and the answer."""
    root = AccessClient(kit)
    answer = await root.ask(_R.SEND_MESSAGE_V2, send_ext(topic, **more), b"secret words")
    assert answer.code == 0, answer.remark
    return root, answer


def offset_in(answer: Command) -> int:
    return int(answer.ext["msgId"][16:], 16)


# -- the table


def test_every_code_has_an_authorization_row() -> None:
    """Test 6: what is served, and every code that RocketMQ knows and a server may be asked, has a row."""
    served: set[int] = set()

    async def main(kit: BrokerKit) -> None:
        served.update(kit.server._handlers)
        served.update(kit.server.fast)

    run(main)
    rows = {**BROKER_ROWS, **ACCESS_ROWS}
    assert served <= rows.keys()
    disk = RecordingDisk(seed=1)
    names = NameServer(NamesrvConfig(), clock=VirtualClock(lambda: 0.0), disk=disk, send_oneway=lambda *told: None)
    assert names.handlers().keys() == NAMESRV_ROWS.keys()
    known = {*request_codes().values(), *(c for c in vars(PrivateRequestCode).values() if isinstance(c, int))}
    assert {*rows, *NAMESRV_ROWS} <= known
    # Codes that are sent to clients, or that nobody has used for years.
    unused = {13, 22, 23, 27, 39, 40, 47, 209, 210, 211, 212, 213, 214, 220, 221, 301, 302, 326, 200073, 200072}
    without = known - rows.keys() - NAMESRV_ROWS.keys() - unused
    assert without <= {1014, 1015, 1016, 1017, 1018}, without


def test_no_code_passes_without_a_right_signature() -> None:
    """No credentials, an unknown user, a wrong key: 16 in the same words, for every code; nothing is called."""

    async def main(kit: BrokerKit) -> None:
        codes = sorted({*request_codes().values(), *kit.server._handlers, *kit.server.fast, 4711})
        answers = set()
        for user, secret in ((None, ""), ("nobody", "x"), ("root", "wrong")):
            for at in range(0, len(codes), 8):
                # More wrong signatures than these close a connection.
                client = AccessClient(kit, user, secret)
                for code in codes[at : at + 8]:
                    answer = await client.ask(code, {"topic": "a", "group": "g"})
                    answers.add((answer.code, answer.remark, bytes(answer.body), tuple(answer.ext)))
                await kit.pass_time(61)
        assert len(answers) == 1
        assert answers.pop()[0] == REFUSED

    run(main)


def test_no_user_wrong_key_disabled_unknown_answer_alike() -> None:
    async def main(kit: BrokerKit) -> None:
        root = AccessClient(kit)
        await add_user(root, "off")
        body = b'{"userStatus":"disable"}'
        assert (await root.ask(_R.AUTH_UPDATE_USER, {"username": "off"}, body)).code == 0
        told = set()
        for user, secret in ((None, None), ("nobody", "x"), ("root", "wrong"), ("off", None)):
            client = AccessClient(kit, user, secret)
            for code, ext in ((_R.SEND_MESSAGE_V2, send_ext("a")), (_R.GET_MAX_OFFSET, {"topic": "a", "queueId": "0"})):
                answer = await client.ask(code, ext)
                told.add((answer.code, answer.remark))
        assert len(told) == 1
        # The log tells them apart.
        assert kit.access is not None
        assert kit.access.audit.logins_refused == 8

    run(main)


# What a user without any right may do all the same.
_HARMLESS = {_R.HEART_BEAT, _R.GET_ALL_TOPIC_CONFIG, _R.GET_ALL_SUBSCRIPTIONGROUP_CONFIG}
_EXT = {
    "topic": "theirs", "b": "theirs", "group": "G", "consumerGroup": "G", "queueId": "0", "offset": "0",
    "groupName": "G",
    "srcGroup": "G", "destGroup": "G", "producerGroup": "P", "commitLogOffset": "0", "tranStateTableOffset": "0",
    "commitOrRollback": "8", "msgId": "7F00000100002A9F0000000000000000", "key": "k", "maxNum": "1",
    "compareGroup": "G",
    "beginTimestamp": "0", "endTimestamp": "9", "delayLevel": "0", "clientID": "c", "queryId": "q", "recallHandle": "x",
    "parentTopic": "theirs", "username": "root", "subject": "User:root", "queueOffset": "0", "maxMsgNums": "1",
    "sysFlag": "0", "commitOffset": "0", "suspendTimeoutMillis": "0", "subVersion": "0", "statsName": "a",
    "statsKey": "b",
}  # fmt: skip
_BODIES: Mapping[int, bytes] = {
    _R.LOCK_BATCH_MQ: b'{"consumerGroup":"G","clientId":"c","mqSet":[]}',
    _R.UNLOCK_BATCH_MQ: b'{"consumerGroup":"G","clientId":"c","mqSet":[]}',
    _R.CHECK_CLIENT_CONFIG: b'{"clientId":"c","group":"G"}',
    _R.QUERY_ASSIGNMENT: b'{"topic":"theirs","consumerGroup":"G","clientId":"c"}',
    _R.SET_MESSAGE_REQUEST_MODE: b'{"topic":"theirs","consumerGroup":"G"}',
    _R.UPDATE_AND_CREATE_TOPIC_LIST: b'{"topicConfigList":[{"topicName":"new"}]}',
    _R.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: b'{"groupName":"G"}',
    _R.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: b'{"groupConfigList":[{"groupName":"G"}]}',
    _R.HEART_BEAT: HeartbeatData("c", (ProducerData("P"),)).encode(),
    _R.UPDATE_BROKER_CONFIG: b"traceOn=false\n",
}


def test_user_without_acl_gets_nothing() -> None:
    """Test 5: every code as a user without a policy. What is not refused shows nothing and changes nothing."""

    async def main(kit: BrokerKit) -> None:
        root, _ = await with_message(kit)
        await add_user(root, "mallory")
        mallory = AccessClient(kit, "mallory")
        served = {*kit.server._handlers, *kit.server.fast}
        own_refusals = {354, 355, 902, 903, 1001, 1003, 1009, 1012, 1013}
        for code in sorted(served | set(request_codes().values())):
            answer = await mallory.ask(code, _EXT, _BODIES.get(code, b""))
            if code in own_refusals or code not in served:
                assert answer.code == NOT_SERVED, (code, answer)
            elif code in _HARMLESS:
                assert answer.code == 0, (code, answer)
                assert b"theirs" not in answer.body
            else:
                assert answer.code == REFUSED, (code, str(answer))
                assert "User:mallory has no permission to access" in (answer.remark or ""), (code, answer)
            assert b"secret words" not in answer.body
        assert (await mallory.ask(_R.AUTH_GET_USER, {"username": "mallory"})).code == 0
        assert (await mallory.ask(_R.AUTH_GET_ACL, {"subject": "User:mallory"})).code == 0
        for code in (_R.SEND_REPLY_MESSAGE_V2, _R.SEND_REPLY_MESSAGE):
            answer = await mallory.ask(code, {**_EXT, **send_ext("c_REPLY_TOPIC"), "topic": "c_REPLY_TOPIC"})
            assert "no permission to access" not in (answer.remark or "")

    run(main)


def test_a_refusal_names_user_action_and_resource() -> None:
    async def main(kit: BrokerKit) -> None:
        root = AccessClient(kit)
        await add_user(root, "bob")
        bob = AccessClient(kit, "bob")
        for codec in (JSON, BINARY):
            answer = await bob.ask(_R.SEND_MESSAGE_V2, send_ext("orders"), b"x", codec)
            assert answer.code == REFUSED
            assert answer.remark == (
                "User:bob has no permission to access Topic:orders (Pub) from 10.0.0.9, no matched policies."
            )

    run(main)


@pytest.mark.parametrize("codec", [JSON, BINARY])
def test_a_right_lets_pass_and_a_change_of_it_holds_for_the_next_frame(codec: int) -> None:
    async def main(kit: BrokerKit) -> None:
        root = AccessClient(kit)
        await add_user(root, "bob")
        bob = AccessClient(kit, "bob")
        await grant(root, "bob", "Topic:ord*", "Pub")
        for _ in range(3):
            assert (await bob.ask(_R.SEND_MESSAGE_V2, send_ext("orders"), b"x", codec)).code == 0
        assert (await bob.ask(_R.SEND_MESSAGE_V2, send_ext("other"), b"x", codec)).code == REFUSED
        await grant(root, "bob", "Topic:orders", "Pub", decision="Deny")
        answer = await bob.ask(_R.SEND_MESSAGE_V2, send_ext("orders"), b"x", codec)
        assert (answer.code, "the decision is deny" in (answer.remark or "")) == (REFUSED, True)
        await grant(root, "bob", "Topic:orders", "Pub", sources=("10.0.0.0/8",))
        assert (await bob.ask(_R.SEND_MESSAGE_V2, send_ext("orders"), b"x", codec)).code == 0
        await grant(root, "bob", "Topic:orders", "Pub", sources=("10.1.0.0/16",))
        assert (await bob.ask(_R.SEND_MESSAGE_V2, send_ext("orders"), b"x", codec)).code == 0  # by Topic:ord*
        assert (await root.ask(_R.AUTH_DELETE_USER, {"username": "bob"})).code == 0
        assert (await bob.ask(_R.SEND_MESSAGE_V2, send_ext("orders"), b"x", codec)).code == REFUSED

    run(main)


@pytest.mark.parametrize("code", [_R.PULL_MESSAGE, _R.LITE_PULL_MESSAGE])
def test_lite_pull_needs_sub(code: int) -> None:
    """Test 7, for both pulls, first and after others were let pass."""

    async def main(kit: BrokerKit) -> None:
        root, _ = await with_message(kit)
        await add_user(root, "bob")
        bob = AccessClient(kit, "bob")
        answer = await bob.ask(code, pull_ext("theirs", "G"))
        assert (answer.code, answer.body) == (REFUSED, b"")
        await grant(root, "bob", "Topic:theirs", "Sub")
        assert "Group:G (Sub)" in ((await bob.ask(code, pull_ext("theirs", "G"))).remark or "")
        await grant(root, "bob", "Group:G", "Sub")
        for _ in range(2):
            answer = await bob.ask(code, pull_ext("theirs", "G"))
            assert answer.code == 0 and b"secret words" in answer.body
        assert (await bob.ask(code, pull_ext("theirs", "H"))).code == REFUSED
        assert (await bob.ask(code, pull_ext("mine", "G"))).code == REFUSED
        assert (await bob.ask(code, pull_ext("%RETRY%H", "G"))).code == REFUSED

    run(main)


def test_a_held_pull_is_ended_when_rights_change() -> None:
    async def main(kit: BrokerKit) -> None:
        root, _ = await with_message(kit)
        await add_user(root, "bob")
        await grant(root, "bob", "Topic:theirs", "Sub")
        await grant(root, "bob", "Group:G", "Sub")
        bob = AccessClient(kit, "bob")
        ext = {**pull_ext("theirs", "G", 1), "sysFlag": "6", "suspendTimeoutMillis": "15000"}
        bob.connection.send(signed(_R.PULL_MESSAGE, ext, user="bob", opaque=77))
        await kit.pass_time(1)
        assert await bob.connection.answers() == []
        await grant(root, "bob", "Topic:theirs", "Sub", decision="Deny")
        assert [one.opaque for one in await bob.connection.answers()] == [77]
        await root.ask(_R.SEND_MESSAGE_V2, send_ext("theirs"), b"secret words")
        await kit.pass_time(20)
        assert await bob.connection.answers() == []

    run(main)


@pytest.mark.parametrize("code", [_R.POP_MESSAGE, _R.NOTIFICATION])
def test_a_held_pop_is_ended_when_rights_change(code: int) -> None:
    async def main(kit: BrokerKit) -> None:
        root = AccessClient(kit)
        topic = {
            "topic": "theirs", "defaultTopic": "TBW102", "readQueueNums": "1", "writeQueueNums": "1", "perm": "6",
            "topicFilterType": "SINGLE_TAG",
        }  # fmt: skip
        assert (await root.ask(_R.UPDATE_AND_CREATE_TOPIC, topic)).code == 0
        await add_user(root, "bob")
        await grant(root, "bob", "Topic:theirs", "Sub")
        await grant(root, "bob", "Group:G", "Sub")
        await root.ask(_R.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, b'{"groupName":"G","retryQueueNums":1}')
        bob = AccessClient(kit, "bob")
        ext = {
            "consumerGroup": "G", "topic": "theirs", "queueId": "-1", "maxMsgNums": "8", "invisibleTime": "60000",
            "pollTime": "15000", "bornTime": str(kit.clock.now_ms()), "initMode": "1", "exp": "*", "expType": "TAG",
            "order": "false",
        }  # fmt: skip
        bob.connection.send(signed(code, ext, user="bob", opaque=77))
        await kit.pass_time(1)
        assert await bob.connection.answers() == []
        await grant(root, "bob", "Topic:theirs", "Sub", decision="Deny")
        assert [one.opaque for one in await bob.connection.answers()] == [77]
        await root.ask(_R.SEND_MESSAGE_V2, send_ext("theirs"), b"secret words")
        await kit.pass_time(20)
        assert await bob.connection.answers() == []

    run(main)


def test_view_by_offset_without_topic() -> None:
    async def main(kit: BrokerKit) -> None:
        root, sent = await with_message(kit)
        await add_user(root, "bob")
        await grant(root, "bob", "Topic:mine", "All")
        bob = AccessClient(kit, "bob")
        place = {"offset": str(offset_in(sent))}
        for ext in (place, {**place, "topic": "mine"}):
            answer = await bob.ask(_R.VIEW_MESSAGE_BY_ID, ext)
            assert (answer.code, answer.body) == (REFUSED, b"")
            assert "Topic:theirs (Sub|Get)" in (answer.remark or "")
        # A place without a message is not looked at twice: one could have come meanwhile.
        assert (await bob.ask(_R.VIEW_MESSAGE_BY_ID, {"offset": "999999"})).code == ResponseCode.SYSTEM_ERROR
        await grant(root, "bob", "Topic:theirs", "Get")
        assert b"secret words" in (await bob.ask(_R.VIEW_MESSAGE_BY_ID, place)).body
        assert b"secret words" in (await root.ask(_R.VIEW_MESSAGE_BY_ID, place)).body

    run(main)


def test_send_back_copies_no_foreign_message() -> None:
    async def main(kit: BrokerKit) -> None:
        root, sent = await with_message(kit)
        await add_user(root, "bob")
        await grant(root, "bob", "Group:G", "Sub")
        bob = AccessClient(kit, "bob")
        ext = {"group": "G", "offset": str(offset_in(sent)), "delayLevel": "0"}
        answer = await bob.ask(_R.CONSUMER_SEND_MSG_BACK, ext)
        assert (answer.code, "Topic:theirs (Sub)" in (answer.remark or "")) == (REFUSED, True)
        await grant(root, "bob", "Topic:theirs", "Sub")
        assert (await bob.ask(_R.CONSUMER_SEND_MSG_BACK, ext)).code == 0

    run(main)


def test_end_transaction_without_topic() -> None:
    async def main(kit: BrokerKit) -> None:
        properties = "UNIQ_KEY\x01C0000201000000000000000000000001\x02TRAN_MSG\x01true\x02PGROUP\x01P\x02"
        root, sent = await with_message(kit, f="4", i=properties)
        await add_user(root, "bob")
        await grant(root, "bob", "Topic:mine", "Pub")
        bob = AccessClient(kit, "bob")
        ext = {
            "producerGroup": "P", "tranStateTableOffset": sent.ext["queueOffset"], "commitOrRollback": "8",
            "commitLogOffset": str(offset_in(sent)), "msgId": "C0000201000000000000000000000001",
        }  # fmt: skip
        half = {"topic": HALF_TOPIC}  # what Java's clients send after a check-back
        for more in ({}, {"topic": "mine"}, half):
            answer = await bob.ask(_R.END_TRANSACTION, {**ext, **more})
            assert (answer.code, "Topic:theirs (Pub)" in (answer.remark or "")) == (REFUSED, True), answer
        assert kit.store.max_offset(b"theirs", 0) == 0
        await grant(root, "bob", "Topic:theirs", "Pub")
        assert (await bob.ask(_R.END_TRANSACTION, {**ext, **half})).code == 0
        assert kit.store.max_offset(b"theirs", 0) == 1

    run(main)


def test_a_super_user_may_ask_for_another_user_and_nobody_else() -> None:
    """A front signs as the inner user and names its client's user, whose rights count. The field gives no rights."""

    async def main(kit: BrokerKit) -> None:
        root, _ = await with_message(kit)
        await add_user(root, "bob")
        await add_user(root, "eve")
        await grant(root, "eve", "Topic:theirs", "Pub")
        bob, inner = AccessClient(kit, "bob"), AccessClient(kit, "inner")
        sent = {"a": "P", "b": "theirs", "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "1", "h": "0", "j": "0"}
        assert (await inner.ask(_R.SEND_MESSAGE_V2, sent, b"x")).code == 0  # the short way knows it from here on
        for who, meant, code in (
            (inner, "bob", REFUSED), (inner, "", REFUSED), (inner, "nobody", REFUSED), (inner, "eve", 0),
            (bob, "eve", REFUSED), (bob, "root", REFUSED), (inner, "root", 0),
        ):  # fmt: skip
            for request_code, ext, body in (
                (_R.SEND_MESSAGE_V2, sent, b"x"),
                (_R.GET_MAX_OFFSET, {"topic": "theirs", "queueId": "0"}, b""),
            ):
                wanted = REFUSED if (meant, request_code) == ("eve", _R.GET_MAX_OFFSET) else code
                answer = await who.ask(request_code, {**ext, FOR_USER_FIELD: meant}, body)
                assert answer.code == wanted, (who.user, meant, request_code, answer)
        # Passwords are shown to the user that is meant, not to the one who signed.
        await grant(root, "bob", "Cluster:DefaultCluster", "Get")
        asked = {"username": "eve"}
        assert secret_for("eve").encode() in (await inner.ask(_R.AUTH_GET_USER, asked)).body
        answer = await inner.ask(_R.AUTH_GET_USER, {**asked, FOR_USER_FIELD: "bob"})
        assert (b"eve" in answer.body, secret_for("eve").encode() in answer.body) == (True, False)

    run(main)


def test_a_front_tells_where_the_client_of_a_user_is() -> None:
    """Policies with a source are asked for that address. Nobody but a Super user can tell one."""

    async def main(kit: BrokerKit) -> None:
        root, _ = await with_message(kit)
        await add_user(root, "eve")
        entry = {"resource": "Topic:theirs", "actions": ["Pub"], "decision": "Allow", "sourceIps": ["10.1.0.0/16"]}
        body = {"policies": [{"policyType": "CUSTOM", "entries": [entry]}]}
        made = await root.ask(_R.AUTH_CREATE_ACL, {"subject": "User:eve"}, json.dumps(body).encode())
        assert made.code == 0, made
        eve, inner = AccessClient(kit, "eve"), AccessClient(kit, "inner")
        sent = {"a": "P", "b": "theirs", "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "1", "h": "0", "j": "0"}
        for who, source, code in (
            (inner, "10.1.2.3", 0), (inner, "10.2.2.3", REFUSED), (inner, "", REFUSED), (inner, "x" * 5000, REFUSED),
            (eve, "10.1.2.3", REFUSED), (inner, "10.1.2.3", 0),
        ):  # fmt: skip
            more = {FOR_USER_FIELD: "eve", FOR_SOURCE_FIELD: source}
            assert (await who.ask(_R.SEND_MESSAGE_V2, {**sent, **more}, b"x")).code == code, (who.user, source)
        # What the front was allowed for that address is not allowed to the user from here.
        assert (await eve.ask(_R.SEND_MESSAGE_V2, sent, b"x")).code == REFUSED

    run(main)


def test_a_check_back_shows_no_foreign_message() -> None:
    """Every user may call himself a member of a producer group. The half messages of the group are shown to those only
    who may send to their topic."""

    async def main(kit: BrokerKit) -> None:
        properties = "UNIQ_KEY\x01C0000201000000000000000000000001\x02TRAN_MSG\x01true\x02PGROUP\x01P\x02"
        root, _ = await with_message(kit, f="4", i=properties)
        for name in ("bob", "eve"):
            await add_user(root, name)
        await grant(root, "bob", "Topic:theirs", "Pub")
        bob, eve = AccessClient(kit, "bob"), AccessClient(kit, "eve")
        fronted = AccessClient(kit, "inner")
        beat = HeartbeatData("c", (ProducerData("P"),)).encode()
        asked: dict[str, bool] = {}
        for step in range(12):
            for who, more in ((bob, {}), (eve, {}), (fronted, {FOR_USER_FIELD: "eve"})) if step else ((eve, {}),):
                assert (await who.ask(_R.HEART_BEAT, more, beat)).code == 0
            await kit.pass_time(40)
            for who, name in ((bob, "bob"), (eve, "eve"), (fronted, "front")):
                found = [one.code for one in await who.connection.pushes()]
                asked[name] = asked.get(name, False) or _R.CHECK_TRANSACTION_STATE in found
        assert asked == {"bob": True, "eve": False, "front": False}

    run(main)


def test_lists_show_what_a_user_may_see() -> None:
    async def main(kit: BrokerKit) -> None:
        root, _ = await with_message(kit)
        await with_message(kit, "mine")
        await add_user(root, "bob")
        await grant(root, "bob", "Topic:mine", "Get")
        bob = AccessClient(kit, "bob")
        answer = await bob.ask(_R.GET_ALL_TOPIC_CONFIG)
        assert b'"mine"' in answer.body and b'"theirs"' not in answer.body and b"dataVersion" in answer.body
        assert b'"theirs"' in (await root.ask(_R.GET_ALL_TOPIC_CONFIG)).body
        await grant(root, "bob", "Cluster:DefaultCluster", "List")
        assert b'"theirs"' in (await bob.ask(_R.GET_ALL_TOPIC_CONFIG)).body

    run(main)


def test_a_heartbeat_asks_for_every_group_and_topic() -> None:
    async def main(kit: BrokerKit) -> None:
        root, _ = await with_message(kit)
        await add_user(root, "bob")
        bob = AccessClient(kit, "bob")
        beat = HeartbeatData(
            "c", (), (ConsumerData("G", "CONSUME_PASSIVELY", "CLUSTERING", None, (SubscriptionData("theirs", "*"),)),)
        )
        assert "Group:G (Sub)" in ((await bob.ask(_R.HEART_BEAT, body=beat.encode())).remark or "")
        await grant(root, "bob", "Group:G", "Sub")
        assert "Topic:theirs (Sub)" in ((await bob.ask(_R.HEART_BEAT, body=beat.encode())).remark or "")
        await grant(root, "bob", "Topic:theirs", "Sub")
        assert (await bob.ask(_R.HEART_BEAT, body=beat.encode())).code == 0

    run(main)


def test_an_existing_topic_may_be_changed_only_by_who_may_change_it() -> None:
    async def main(kit: BrokerKit) -> None:
        root, _ = await with_message(kit)
        await add_user(root, "bob")
        await grant(root, "bob", "Topic:the*", "Create")
        bob = AccessClient(kit, "bob")
        ext = {
            "topic": "there", "defaultTopic": "TBW102", "readQueueNums": "4", "writeQueueNums": "4", "perm": "6",
            "topicFilterType": "SINGLE_TAG",
        }  # fmt: skip
        assert (await bob.ask(_R.UPDATE_AND_CREATE_TOPIC, ext)).code == 0
        assert (await bob.ask(_R.DELETE_TOPIC_IN_BROKER, {"topic": "there"})).code == REFUSED
        await grant(root, "bob", "Topic:theirs", "Sub")
        answer = await bob.ask(_R.UPDATE_AND_CREATE_TOPIC, {**ext, "topic": "theirs", "perm": "0"})
        assert answer.code == 0  # Topic:theirs says nothing of Create, and Topic:the* allows it

    run(main)


def test_a_batch_is_its_first_users() -> None:
    async def main(kit: BrokerKit) -> None:
        root = AccessClient(kit)
        for name in ("bob", "eve"):
            await add_user(root, name)
            await grant(root, name, "Topic:mine", "Pub")
        bob, eve = AccessClient(kit, "bob"), AccessClient(kit, "eve")
        begin = {"queryId": "q", "epoch": "1", "run": "r", "leaseMs": "60000"}
        assert (await bob.ask(PrivateRequestCode.BATCH_BEGIN, begin)).code == 0
        for code in (90002, 90003, 90004, 90005):
            answer = await eve.ask(code, {**begin, "epoch": "2", "topic": "mine"})
            assert (answer.code, "another user's" in (answer.remark or "")) == (REFUSED, True)
        rows = {**begin, "batchId": "1", "topic": "theirs", "queueId": "0", "producerGroup": "P", "attempt": "a"}
        assert (await bob.ask(PrivateRequestCode.BATCH_ROWS, rows)).code == REFUSED

    run(main)


def test_a_user_who_may_publish_nowhere_takes_no_query() -> None:
    """Nor is a query that such a user asks for taken away from the one whose it is."""

    async def main(kit: BrokerKit) -> None:
        root = AccessClient(kit)
        for name in ("bob", "mallory", "reader", "far"):
            await add_user(root, name)
        await grant(root, "bob", "Topic:mine", "Pub")
        await grant(root, "reader", "Topic:mine", "Sub")
        await grant(root, "far", "Topic:mine", "Pub", sources=("192.0.2.1",))
        begin = {"queryId": "q", "epoch": "1", "run": "r", "leaseMs": "60000", "batchId": "0"}
        for name in ("mallory", "reader", "far"):
            user = AccessClient(kit, name)
            for code in (PrivateRequestCode.BATCH_BEGIN, PrivateRequestCode.BATCH_STATUS, PrivateRequestCode.BATCH_END):
                answer = await user.ask(code, begin)
                assert (answer.code, "Topic:* (Pub)" in (answer.remark or "")) == (REFUSED, True)
        assert (await AccessClient(kit, "bob").ask(PrivateRequestCode.BATCH_BEGIN, begin)).code == 0

    run(main)


def test_a_query_is_still_its_users_after_a_restart() -> None:
    disk = RecordingDisk(seed=3)
    begin = {"queryId": "q/ä", "epoch": "1", "run": "r", "leaseMs": "60000"}

    async def first(kit: BrokerKit) -> None:
        root = AccessClient(kit)
        for name in ("bob", "eve"):
            await add_user(root, name)
            await grant(root, name, "Topic:mine", "Pub")
        assert (await AccessClient(kit, "bob").ask(PrivateRequestCode.BATCH_BEGIN, begin)).code == 0
        await kit.pass_time(2)

    async def second(kit: BrokerKit) -> None:
        root, eve = AccessClient(kit), AccessClient(kit, "eve")
        again = {**begin, "epoch": "2"}
        assert (await eve.ask(PrivateRequestCode.BATCH_BEGIN, again)).code == REFUSED
        assert (await root.ask(_R.AUTH_DELETE_USER, {"username": "bob"})).code == 0
        assert (await eve.ask(PrivateRequestCode.BATCH_BEGIN, again)).code == 0

    run(first, disk=disk)
    run(second, disk=disk)


def test_the_owners_of_queries_are_bounded_and_a_flood_forgets_its_own() -> None:
    owners = QueryOwners()
    owners.put("mine", "bob")
    owners.put("x" * 5_000, "eve")
    assert owners.get("x" * 5_000) is None
    for number in range(QUERIES_MAX + 500):
        owners.put(f"q{number}", "eve")
    assert owners.get("mine") == "bob"
    assert owners.get("q0") is None
    assert owners.get(f"q{QUERIES_MAX + 499}") == "eve"


def test_a_retry_topic_is_read_by_its_own_group_alone() -> None:
    async def main(kit: BrokerKit) -> None:
        root = AccessClient(kit)
        await add_user(root, "bob")
        for group in ("Mine", "Other"):
            await grant(root, "bob", f"Group:{group}", "Sub")
            body = f'{{"groupName":"{group}"}}'.encode()
            assert (await root.ask(_R.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, body)).code == 0
        bob = AccessClient(kit, "bob")
        for code in (_R.PULL_MESSAGE, _R.LITE_PULL_MESSAGE, _R.POP_MESSAGE, _R.ACK_MESSAGE, _R.NOTIFICATION):
            ext = {**_EXT, **pull_ext("%RETRY%Other", "Mine")}
            answer = await bob.ask(code, ext)
            assert (answer.code, "the retry topic of another group" in (answer.remark or "")) == (REFUSED, True)
        for group in ("Mine", "%RETRY%Mine"):
            answer = await bob.ask(_R.PULL_MESSAGE, pull_ext("%RETRY%Mine", group))
            assert "no permission to access" not in (answer.remark or "")
        # A Super user may read any.
        answer = await root.ask(_R.PULL_MESSAGE, pull_ext("%RETRY%Other", "Mine"))
        assert "no permission to access" not in (answer.remark or "")

    run(main)


# -- signatures


@pytest.mark.parametrize("codec", [JSON, BINARY])
def test_one_changed_bit_is_refused(codec: int) -> None:
    async def main(kit: BrokerKit) -> None:
        root = AccessClient(kit)
        assert (await root.ask(_R.SEND_MESSAGE_V2, send_ext("t"), b"words", codec)).code == 0
        for name in (*send_ext("t"), "AccessKey", SIGNATURE):
            command = signed(_R.SEND_MESSAGE_V2, send_ext("t"), b"words", codec=codec, opaque=9)
            last = command.ext[name]
            command.ext[name] = chr(ord(last[0]) ^ 1) + last[1:]
            assert (await kit.connect().call(command)).code == REFUSED, name
            await kit.pass_time(5)
        command = signed(_R.SEND_MESSAGE_V2, send_ext("t"), b"words", codec=codec, opaque=9)
        command.body = b"wordt"
        assert (await kit.connect().call(command)).code == REFUSED
        command = signed(_R.SEND_MESSAGE_V2, send_ext("t"), b"words", codec=codec, opaque=9)
        command.ext["more"] = "x"
        assert (await kit.connect().call(command)).code == REFUSED

    run(main)


def test_signature_old_client_unique_key_query() -> None:
    """Test 3: up to 4.9.3 the field is added after signing."""

    async def main(kit: BrokerKit) -> None:
        ext = {"topic": "t", "key": "k", "maxNum": "1", "beginTimestamp": "0", "endTimestamp": "9"}
        for version, code in ((399, ResponseCode.QUERY_NOT_FOUND), (400, REFUSED), (513, REFUSED)):
            command = signed(_R.QUERY_MESSAGE, ext, version=version)
            command.ext["_UNIQUE_KEY_QUERY"] = "true"
            assert (await kit.connect().call(command)).code == code, version
        command = signed(_R.QUERY_MESSAGE, {**ext, "_UNIQUE_KEY_QUERY": "true"})
        assert (await kit.connect().call(command)).code == ResponseCode.QUERY_NOT_FOUND

    run(main)


def test_wrong_signatures_close_the_connection() -> None:
    async def main(kit: BrokerKit) -> None:
        wrong = AccessClient(kit, "root", "wrong")
        right = AccessClient(kit)
        for _ in range(9):
            assert (await wrong.ask(_R.GET_MAX_OFFSET, {"topic": "t", "queueId": "0"})).code == REFUSED
        assert not wrong.connection.is_closed
        wrong.connection.send(signed(_R.GET_MAX_OFFSET, {"topic": "t", "queueId": "0"}, secret="wrong"))
        await kit.pass_time(0.1)
        assert wrong.connection.is_closed
        # Another client at that address is served.
        assert (await right.ask(_R.GET_BROKER_CONFIG)).code == 0

    run(main)


def test_a_oneway_request_that_is_refused_gets_no_answer() -> None:
    async def main(kit: BrokerKit) -> None:
        client = kit.connect()
        for code in (_R.SEND_MESSAGE_V2, _R.PULL_MESSAGE, _R.UNREGISTER_CLIENT, 4711):
            command = signed(code, send_ext("t"), user=None)
            command.flag = 2
            client.send(command)
        await kit.pass_time(1)
        assert await client.answers() == []

    run(main)


def test_two_topics_in_one_header_do_not_pass() -> None:
    """A frame that names a field twice is decided by the value that the handler gets."""

    async def main(kit: BrokerKit) -> None:
        root = AccessClient(kit)
        await add_user(root, "bob")
        await grant(root, "bob", "Topic:mine", "Pub")
        bob = AccessClient(kit, "bob")
        assert (await bob.ask(_R.SEND_MESSAGE_V2, send_ext("mine"), b"x")).code == 0
        for topics in (("mine", "theirs"), ("theirs", "mine")):
            command = signed(_R.SEND_MESSAGE_V2, send_ext(topics[1]), b"x", user="bob", opaque=5)
            from aerobee.protocol.command import encode_command

            frame = encode_command(command)
            head = frame[8 : len(frame) - 1].replace(b'"extFields":{', b'"extFields":{"b":"%s",' % topics[0].encode())
            data = (len(head) + 5).to_bytes(4, "big") + len(head).to_bytes(4, "big") + head + b"x"
            bob.connection.channel.data_received(data)
            (answer,) = await bob.connection.answers()
            assert answer.code == (0 if topics[1] == "mine" else REFUSED)
        assert kit.broker.state.catalog.find("theirs") is None

    run(main)


def test_access_off_serves_the_very_tables_of_the_broker() -> None:
    """Without access control there is nothing between the server and the handlers."""

    async def main(kit: BrokerKit) -> None:
        assert kit.server.fast == kit.broker.served().fast
        assert dict(kit.server._handlers) == dict(kit.broker.served().handlers)

    run_broker(main, config=BrokerConfig(broker_name="broker-a"))


def test_a_signature_is_base64() -> None:
    async def main(kit: BrokerKit) -> None:
        for wrong in ("", "=", "é", "A" * 5000, base64.b64encode(b"x" * 20).decode()):
            command = signed(_R.GET_BROKER_CONFIG, {})
            command.ext[SIGNATURE] = wrong
            assert (await kit.connect().call(command)).code == REFUSED

    run(main)


def test_a_stateful_strategy_trusts_tls_connections_for_a_while() -> None:
    strategy = "org.apache.rocketmq.auth.authentication.strategy.StatefulAuthenticationStrategy"

    async def main(kit: BrokerKit) -> None:
        root = AccessClient(kit)
        await add_user(root, "bob")
        for is_secure in (False, True):
            bob = AccessClient(kit, "bob")
            bob.connection.channel.is_secure = is_secure
            assert (await bob.ask(_R.GET_ALL_TOPIC_CONFIG)).code == 0
            bob.secret = "wrong"
            assert (await bob.ask(_R.GET_ALL_TOPIC_CONFIG)).code == (0 if is_secure else REFUSED)
        # A minute later, after a change of the user, and for another user, the signature counts.
        bob.user = "root"
        assert (await bob.ask(_R.GET_ALL_TOPIC_CONFIG)).code == REFUSED
        bob.user = "bob"
        await kit.pass_time(61)
        assert (await bob.ask(_R.GET_ALL_TOPIC_CONFIG)).code == REFUSED
        bob.secret = None
        assert (await bob.ask(_R.GET_ALL_TOPIC_CONFIG)).code == 0
        assert (await root.ask(_R.AUTH_UPDATE_USER, {"username": "bob"}, b'{"password":"other"}')).code == 0
        assert (await bob.ask(_R.GET_ALL_TOPIC_CONFIG)).code == REFUSED

    run_broker(main, access=access_config(authentication_strategy=strategy))


def test_white_lists_leave_only_harmless_codes_unchecked() -> None:
    async def main(kit: BrokerKit) -> None:
        stranger = AccessClient(kit, None)
        assert (await stranger.ask(_R.GET_MAX_OFFSET, {"topic": "t", "queueId": "0"})).code != REFUSED
        assert (await stranger.ask(_R.GET_MIN_OFFSET, {"topic": "t", "queueId": "0"})).code == REFUSED
        root = AccessClient(kit)
        await add_user(root, "bob")
        bob = AccessClient(kit, "bob")
        assert (await bob.ask(_R.GET_MIN_OFFSET, {"topic": "t", "queueId": "0"})).code != REFUSED
        assert (await bob.ask(_R.SEARCH_OFFSET_BY_TIMESTAMP, {"topic": "t", "queueId": "0"})).code == REFUSED

    run_broker(main, access=access_config(authentication_whitelist="30", authorization_whitelist="31"))
    for word in ("10", "26", "33", "3005", "x", "9" * 5000):
        with pytest.raises(ConfigError, match="may not be left unchecked"):
            access_config(authentication_whitelist=word)
