"""No request holds the loop: while the worst of each kind is worked on, others are served.

A watchdog measures the CPU time of every callback of the servers' loop, and a second connection asks meanwhile.
"""

from __future__ import annotations

import gc
import re
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from aerobee.protocol.bodies.heartbeat import HeartbeatData, ProducerData
from aerobee.protocol.bodysizes import body_size_max
from aerobee.protocol.codes import PrivateRequestCode, RequestCode, ResponseCode
from aerobee.protocol.command import Command
from aerobee.runtime.process import spare_from_collection
from aerobee.testing.cluster import LocalCluster
from aerobee.testing.rawsocket import RawSocket
from aerobee.testing.watchdog import LoopTime, Watchdog

COMPAT = Path(__file__).parents[2] / "docs" / "compat.md"
BEAT = HeartbeatData("other", (ProducerData("others"),)).encode()
MIB = 1 << 20
# Names as long as they may be make answers long.
LONG = "t" * 120


def done_by(server: str) -> list[int]:
    """The request codes that a server answers, by the page that a test holds to the truth."""
    rows = re.findall(r"^\| (\d+) \| \w+ \| done \| ([a-z ]+) \|", COMPAT.read_text(), re.MULTILINE)
    return [int(code) for code, by in rows if by == server]


class Scene:
    """A cluster, a hostile connection to one of its servers, and somebody else's."""

    def __init__(self, cluster: LocalCluster) -> None:
        self.cluster = cluster
        self.broker = cluster.broker_address(0)
        self.namesrv = cluster.namesrv_address(0)
        self.time = LoopTime(cluster.loop_thread_id)

    def attack(self, dog: Watchdog, what: str, address: str, code: int, ext: dict[str, str], body: bytes) -> Command:
        """Send it; somebody else is served at once, and no callback was long. The answer."""
        with RawSocket(address) as other, RawSocket(address) as hostile:
            opaque = hostile.send(code, ext, body)
            with self.time.within(what=f"during {what}, a heartbeat"):
                other.ask(RequestCode.HEART_BEAT if address == self.broker else 0, {}, BEAT)
            answer = hostile.answer(opaque)
        dog.check(what)
        return answer


@pytest.fixture(scope="module")
def scene() -> Iterator[Scene]:
    # As servers do when they start: the collector looks neither at what the test's own process is made of, nor at
    # everything whenever it likes.
    before = gc.get_threshold()
    gc.collect()
    spare_from_collection()
    try:
        with LocalCluster() as cluster:
            cluster.create_topic("victim", queues=4)
            yield Scene(cluster)
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()


@pytest.fixture
def dog(scene: Scene) -> Iterator[Watchdog]:
    with Watchdog(scene.cluster.loop) as watching:
        yield watching
        watching.check("the rest of the test")


def topic_header(name: str, queues: int) -> dict[str, str]:
    return {
        "topic": name, "defaultTopic": "TBW102", "readQueueNums": str(queues), "writeQueueNums": str(queues),
        "perm": "6", "topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false",
    }  # fmt: skip


# -- what was seen


@pytest.mark.parametrize("size", [12 * MIB, 2 * MIB - 1])
def test_a_heartbeat_with_an_unquoted_key(scene: Scene, dog: Watchdog, size: int) -> None:
    entry = b'{"groupName":"g","subscriptionDataSet":[{"topic":"t","subString":"*"}]},'
    head, tail = b'{1:2,"clientID":"c","consumerDataSet":[', b'{"groupName":"g"}]}'
    body = head + entry * ((size - len(head) - len(tail)) // len(entry)) + tail
    answer = scene.attack(dog, "a heartbeat", scene.broker, RequestCode.HEART_BEAT, {}, body)
    if size > body_size_max(RequestCode.HEART_BEAT):
        assert answer.code == ResponseCode.INVALID_PARAMETER
        assert "send less at a time" in (answer.remark or "")


@pytest.mark.parametrize("queues", [8193, 1_000_000])
def test_a_group_cannot_have_any_number_of_retry_queues(scene: Scene, queues: int) -> None:
    body = b'{"groupName":"many","retryQueueNums":%d}' % queues
    with RawSocket(scene.broker) as client:
        answer = client.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, body)
        assert answer.code == ResponseCode.INVALID_PARAMETER
        assert "retryQueueNums" in (answer.remark or "")


def test_topic_stats_of_as_many_queues_as_there_can_be(scene: Scene, dog: Watchdog) -> None:
    with RawSocket(scene.broker) as client:
        assert client.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, topic_header(LONG, 8192)).code == 0
        assert client.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, topic_header("more", 8193)).code != 0
        # Many at once: they are served one after the other, with others in between.
        asked = [client.send(RequestCode.GET_TOPIC_STATS_INFO, {"topic": LONG}) for _ in range(3)]
        with RawSocket(scene.broker) as other, scene.time.within(what="a heartbeat during topic stats"):
            other.ask(RequestCode.HEART_BEAT, {}, BEAT)
        assert all(client.answer(one).body.count(b"queueId") == 8192 for one in asked)


def test_subscriptions_of_a_megabyte_leave_nothing_behind(scene: Scene) -> None:
    with RawSocket(scene.broker) as client:
        before = resident_bytes()
        for number in range(60):
            ext = {
                "topic": "victim", "queueId": "0", "queueOffset": "0", "endOffset": "10", "maxMsgBytes": "1000",
                "subscription": f"{number}-" + "x||" * 300_000,
            }  # fmt: skip
            answer = client.ask(PrivateRequestCode.BULK_PULL, ext)
        assert answer.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED
    assert resident_bytes() - before < 32 * MIB


def resident_bytes() -> int:
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


# -- held pulls


def pull_ext(topic: str, queue: int, group: str = "pullers", hold_ms: int = 20_000) -> dict[str, str]:
    return {
        "consumerGroup": group, "topic": topic, "queueId": str(queue), "queueOffset": "0", "maxMsgNums": "32",
        "sysFlag": "6", "commitOffset": "0", "suspendTimeoutMillis": str(hold_ms), "subscription": "*",
        "subVersion": "1",
    }  # fmt: skip


def test_an_idle_consumer_of_1100_queues_does_not_spin(scene: Scene) -> None:
    """It does as clients do: whatever is answered "not found" is asked for again at once."""
    with RawSocket(scene.broker) as client:
        assert client.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, topic_header("wide", 1100)).code == 0
        asked = {client.send(RequestCode.PULL_MESSAGE, pull_ext("wide", queue)): queue for queue in range(1100)}
        rounds = 0
        while rounds < 5 and (answers := client.arrived(1.0)):
            rounds += 1
            for answer in answers:
                queue = asked.pop(answer.opaque)
                asked[client.send(RequestCode.PULL_MESSAGE, pull_ext("wide", queue))] = queue
        assert rounds == 0, "held pulls were answered although nothing came"


def test_a_pull_too_many_is_told_to_wait() -> None:
    with LocalCluster(settings={"heldPullsPerConnectionMax": "10"}) as cluster:
        cluster.create_topic("narrow", queues=11)
        with RawSocket(cluster.broker_address(0)) as client:
            for queue in range(10):
                client.send(RequestCode.PULL_MESSAGE, pull_ext("narrow", queue))
            answer = client.ask(RequestCode.PULL_MESSAGE, pull_ext("narrow", 10))
            assert answer.code == ResponseCode.SYSTEM_BUSY
            assert "heldPullsPerConnectionMax" in (answer.remark or "")


# -- answers


def test_an_answer_that_fits_no_frame_says_so(scene: Scene, dog: Watchdog) -> None:
    topics = [f"{number}{LONG}" for number in range(9)]
    with RawSocket(scene.broker) as client:
        for name in topics:
            assert client.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, topic_header(name, 8192)).code == 0
        ext = {"consumerGroup": "g", "topic": "", "topicList": ";".join(topics)}
        answer = client.ask(RequestCode.GET_CONSUME_STATS, ext)
        assert (answer.code, answer.body) == (ResponseCode.SYSTEM_ERROR, b"")
        assert "Ask for less at a time" in (answer.remark or "")


# -- every request with the worst body


def bodies(code: int) -> Iterator[tuple[str, bytes]]:
    size = body_size_max(code) if body_size_max(code) < 10 * MIB else 64 << 10
    yield "empty lists", b"[" + b"[]," * ((size - 3) // 3) + b"1]"
    yield "unquoted keys", b'{"a":1' + b",1:{}" * ((size - 7) // 5) + b"}"
    yield "depth", b"[" * size
    yield "zeros", bytes(size)


# What handlers look for, so that they come as far as they can.
EXT = {
    "topic": "BenchmarkTest", "consumerGroup": "worst", "group": "worst", "groupName": "worst", "queueId": "0",
    "producerGroup": "worst", "offset": "0", "timestamp": "0", "commitOffset": "0", "queueOffset": "0",
    "maxNum": "2147483647", "key": "k" * 10_000, "beginTimestamp": "0", "endTimestamp": "9223372036854775807",
    "index": "0", "count": "2147483647", "clientId": "x" * 10_000, "isForce": "true", "srcGroup": "worst",
    "destGroup": "worse", "compareGroup": "worst", "filterGroups": "a," * 20_000, "statsName": "TOPIC_PUT_NUMS",
    "statsKey": "k" * 10_000, "isOrder": "false", "msgId": "0" * 32, "commitOrRollback": "8",
    "tranStateTableOffset": "0", "commitLogOffset": "0", "namespace": "n", "value": "v" * 10_000,
    "brokerName": "worst", "brokerAddr": "1.2.3.4:5", "brokerId": "0", "clusterName": "worst",
    "haServerAddr": "1.2.3.4:6", "cluster": "worst", "readable": "true", "producerGroupName": "worst",
    "topicList": "victim;" * 5_000, "attributes": "+a=b," * 5_000,
}  # fmt: skip

# These take what is stored with them: other tests send them with care.
ENDING = {RequestCode.DELETE_TOPIC_IN_BROKER, RequestCode.DELETE_SUBSCRIPTIONGROUP}


@pytest.mark.parametrize("server", ["broker", "name server"])
def test_every_request_with_the_worst_body(scene: Scene, dog: Watchdog, server: str) -> None:
    address = scene.broker if server == "broker" else scene.namesrv
    probe = RequestCode.HEART_BEAT if server == "broker" else RequestCode.GET_BROKER_CLUSTER_INFO
    codes = [code for code in done_by(server) if code not in ENDING]
    assert len(codes) > 20
    with RawSocket(address) as other:
        for code in codes:
            for kind, body in bodies(code):
                what = f"request {code} with {kind}"
                # Some are answered by closing: that is an answer too.
                with RawSocket(address) as hostile:
                    asked = hostile.send(code, EXT, body)
                    with scene.time.within(what=f"somebody else, during {what},"):
                        other.ask(probe, {}, BEAT if server == "broker" else b"")
                    if code not in SILENT:
                        try:
                            hostile.answer(asked)
                        except ConnectionResetError:
                            pass
                dog.check(what)


# Answered when something happens that does not.
SILENT = {RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE}


def test_many_frames_in_one_read(scene: Scene, dog: Watchdog) -> None:
    """What is expensive is done for one turn, and the rest waits for the next one."""
    with RawSocket(scene.broker) as other, RawSocket(scene.broker) as hostile:
        for _ in range(200):
            hostile.send(RequestCode.GET_TOPIC_STATS_INFO, {"topic": "BenchmarkTest"})
        for _ in range(3):
            with scene.time.within(what="a heartbeat behind 200 requests"):
                other.ask(RequestCode.HEART_BEAT, {}, BEAT)


# -- what grows


def test_a_connection_cannot_bring_groups_without_end(scene: Scene) -> None:
    with RawSocket(scene.broker) as client:
        groups = tuple(ProducerData(f"group-{number}") for number in range(5000))
        answer = client.ask(RequestCode.HEART_BEAT, {}, HeartbeatData("c", groups).encode())
        assert answer.code != 0
        assert "4096 groups" in (answer.remark or "")


def test_a_registration_is_learned_in_slices_and_forgotten_quickly(scene: Scene, dog: Watchdog) -> None:
    with RawSocket(scene.namesrv) as other, RawSocket(scene.namesrv) as broker:
        opaque = broker.send(RequestCode.REGISTER_BROKER, registration(), registered_topics(20_000))
        with scene.time.within(what="a question during a registration"):
            other.ask(RequestCode.GET_BROKER_CLUSTER_INFO)
        assert broker.answer(opaque).code == 0
        names = other.ask(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER).body
        assert names.count(b"reg-") == 20_000
    with RawSocket(scene.namesrv) as other:
        for _ in range(100):
            if b"reg-" not in other.ask(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER).body:
                break
        else:
            pytest.fail("the topics of a broker that is gone are still there")


def registration() -> dict[str, str]:
    return {
        "brokerName": "hostile", "brokerAddr": "127.0.0.1:1", "clusterName": "hostile", "brokerId": "0",
        "haServerAddr": "127.0.0.1:2", "compressed": "false", "bodyCrc32": "0",
    }  # fmt: skip


def registered_topics(count: int) -> bytes:
    topics = ",".join(f'"reg-{number}":{{"topicName":"reg-{number}","perm":6}}' for number in range(count))
    return (
        '{"topicConfigSerializeWrapper":{"dataVersion":{"counter":1,"timestamp":1},"topicConfigTable":{'
        + topics
        + '}},"filterServerList":[]}'
    ).encode()


def test_a_registration_that_inflates_without_end_is_refused(scene: Scene, dog: Watchdog) -> None:
    body = zlib.compress(bytes(40 * MIB), 1)
    with RawSocket(scene.namesrv) as broker:
        answer = broker.ask(RequestCode.REGISTER_BROKER, {**registration(), "compressed": "true"}, body)
        assert answer.code != 0
        assert "inflates beyond" in (answer.remark or "")
