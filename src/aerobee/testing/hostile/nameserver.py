"""Cases against the name server: impossible registrations, keys and routes."""

from __future__ import annotations

import json

from aerobee.protocol.codes import AWAY_FIELD, GROUPS_FIELD, PrivateRequestCode, RequestCode
from aerobee.testing.hostile.attacker import Attacker
from aerobee.testing.hostile.requests import NAMES, NUMBERS, case

_NOTHING = b'{"topicConfigSerializeWrapper":{"topicConfigTable":{}}}'


def broker_ext(name: str = "x", address: str = "127.0.0.1:1", **more: str) -> dict[str, str]:
    """Return the fields of REGISTER_BROKER."""
    return {"brokerName": name, "brokerAddr": address, "clusterName": "c", "haServerAddr": "", "brokerId": "0", **more}


@case("a name server with registrations of invalid brokers")
def false_brokers(attacker: Attacker) -> None:
    line = attacker.line(namesrv=True)
    for name in NAMES:
        ext = broker_ext(name, name, clusterName=name, haServerAddr=name)
        if line.ask(RequestCode.REGISTER_BROKER, ext, _NOTHING) is None:
            line = attacker.line(namesrv=True)
    for number in NUMBERS:
        line.ask(RequestCode.REGISTER_BROKER, broker_ext(brokerId=number), b"")
        line.ask(RequestCode.REGISTER_BROKER, broker_ext(heartbeatTimeoutMillis=number), b"")


@case("a name server with a hundred thousand topics of one broker")
def many_topics(attacker: Attacker) -> None:
    one = '"t{0}":{{"topicName":"t{0}","readQueueNums":4,"writeQueueNums":4,"perm":6}}'
    topics = ",".join(one.format(n) for n in range(100_000))
    body = f'{{"topicConfigSerializeWrapper":{{"topicConfigTable":{{{topics}}},"dataVersion":{{}}}}}}'
    line = attacker.line(namesrv=True)
    line.ask(RequestCode.REGISTER_BROKER, broker_ext(), body.encode())
    line.ask(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
    line.ask(RequestCode.GET_TOPICS_BY_CLUSTER, {"cluster": "c"})
    line.ask(RequestCode.UNREGISTER_BROKER, broker_ext())


@case("a name server with two thousand brokers")
def many_brokers(attacker: Attacker) -> None:
    line = attacker.line(namesrv=True)
    one = b'{"topicConfigSerializeWrapper":{"topicConfigTable":{"shared":{"topicName":"shared","readQueueNums":4,' \
          b'"writeQueueNums":4,"perm":6}}}}'  # fmt: skip
    for number in range(2_000):
        line.tell(RequestCode.REGISTER_BROKER, broker_ext(f"b{number}", f"127.0.0.1:{number}"), one)
    for _ in range(20):
        line.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "shared"})
        line.ask(RequestCode.GET_BROKER_CLUSTER_INFO)
    line.close()


@case("compressed registrations that decompress to gigabytes")
def bombs(attacker: Attacker) -> None:
    import zlib

    bomb = zlib.compress(b"\x00" * (400 << 20), 9)
    line = attacker.line(namesrv=True)
    for body in (bomb, bomb[:1000], zlib.compress(b"[" * 1_000_000), zlib.compress(_NOTHING), b"\x78\x9c" * 1_000):
        if line.ask(RequestCode.REGISTER_BROKER, broker_ext(compressed="true", bodyCrc32="0"), body) is None:
            line = attacker.line(namesrv=True)


@case("huge keys and values of a name server")
def keys(attacker: Attacker) -> None:
    line = attacker.line(namesrv=True)
    for name in NAMES:
        line.ask(RequestCode.PUT_KV_CONFIG, {"namespace": name, "key": name, "value": name})
    for number in range(50):
        line.ask(RequestCode.PUT_KV_CONFIG, {"namespace": "n", "key": f"k{number}", "value": "v" * 500_000})
    line.ask(RequestCode.GET_KVLIST_BY_NAMESPACE, {"namespace": "n"})
    for number in range(50):
        line.ask(RequestCode.DELETE_KV_CONFIG, {"namespace": "n", "key": f"k{number}"})


@case("two thousand keys of a name server")
def many_keys(attacker: Attacker) -> None:
    line = attacker.line(namesrv=True)
    for number in range(2_000):
        line.tell(RequestCode.PUT_KV_CONFIG, {"namespace": f"n{number % 10}", "key": f"k{number}", "value": "v" * 50})
    line.ask(RequestCode.GET_KVLIST_BY_NAMESPACE, {"namespace": "n0"})


@case("invalid topics of a name server, created and deleted")
def topics(attacker: Attacker) -> None:
    line = attacker.line(namesrv=True)
    for name in NAMES:
        body = json.dumps(
            {"queueDatas": [{"brokerName": name, "readQueueNums": -1, "writeQueueNums": 1 << 40, "perm": 6}]}
        )
        for code in (
            RequestCode.REGISTER_TOPIC_IN_NAMESRV,
            RequestCode.DELETE_TOPIC_IN_NAMESRV,
            RequestCode.GET_ROUTEINFO_BY_TOPIC,
        ):
            if line.ask(code, {"topic": name}, body.encode()) is None:
                line = attacker.line(namesrv=True)


@case("settings of the name server at their extremes")
def settings(attacker: Attacker) -> None:
    line = attacker.line(namesrv=True)
    answer = line.ask(RequestCode.GET_NAMESRV_CONFIG)
    assert answer is not None and answer.code == 0
    before = dict(row.partition("=")[::2] for row in answer.body.decode().splitlines())
    for key in before:
        for value in ("-1", "0", "9" * 5000, "1e999", "../../outside", "x" * 100_000):
            line.ask(RequestCode.UPDATE_NAMESRV_CONFIG, {}, f"{key}={value}".encode())
    line.ask(RequestCode.UPDATE_NAMESRV_CONFIG, {}, b"a=b\n" * 500_000)


@case("declarations of broker groups that do not exist")
def declarations(attacker: Attacker) -> None:
    line = attacker.line(namesrv=True)
    asked = {"brokerName": "x"}
    for name in NAMES:
        for number in ("1", "-1", "0", "9" * 5000, "null", '"a"', "{}"):
            told = f'{{"brokerName":{json.dumps(name)},"topics":{{{json.dumps(name)}:{number}}},"dataVersion":{{}}}}'
            known = f'{{"groups":{{{json.dumps(name)}:{json.dumps(number)}}}}}'
            for code, body in ((PrivateRequestCode.TELL_GROUP, told), (PrivateRequestCode.KNOWN_GROUPS, known)):
                if line.ask(code, asked, body.encode("utf-8", "replace")) is None:
                    line = attacker.line(namesrv=True)
        line.ask(PrivateRequestCode.FORGET_GROUP, {"brokerName": name})
        line.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": name, AWAY_FIELD: name})
        line.ask(RequestCode.REGISTER_BROKER, broker_ext(**{GROUPS_FIELD: name}), _NOTHING)
    topics = ",".join(f'"t{number}":4' for number in range(30_000))
    for time in range(40):
        told = f'{{"brokerName":"g{time}","topics":{{{topics}}},"dataVersion":{{"timestamp":{time}}}}}'
        line.ask(PrivateRequestCode.TELL_GROUP, asked, told.encode())
    line.ask(PrivateRequestCode.KNOWN_GROUPS, asked, b'{"groups":{}}')
    line.ask(RequestCode.UNREGISTER_BROKER, broker_ext())
