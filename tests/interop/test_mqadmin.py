"""Apache's mqadmin 5.5.0 against our name servers and brokers: every command of everyday work, its facts compared.

One consumer and one producer of Apache's run all the while, so that there are connections, progress and statistics.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from aerobee.model.dialect import loads_object
from aerobee.testing import apache
from aerobee.testing.cluster import LocalCluster
from aerobee.testing.javasession import PATIENT, JavaSession, SessionRun

CLUSTER = "LocalCluster"
TOPIC = "Orders"
GROUP = "billing"
COUNT = 80


class Stand:
    """The cluster under administration and what runs on it."""

    def __init__(self, cluster: LocalCluster, session: JavaSession) -> None:
        self.cluster = cluster
        self.session = session
        self.a, self.b = cluster.broker_address(0), cluster.broker_address(1)
        self.consumer: SessionRun = session.start("consume", topic=TOPIC, group=GROUP, limit_ms=600_000)
        self.consumer.facts()
        self.sent = [
            event
            for event in session.run("produce", topic=TOPIC, count=COUNT, tags="a,b", keys="k", group="shop")
            if event["event"] == "sent"
        ]
        # One send a second keeps a producer connected.
        self.producer = session.start("produce", topic="Quiet", count=600, pause_ms=1000, group="shop")
        self.consumer.wait_for_events("message", COUNT)
        self.producer.wait_for_events("sent", 1)

    def admin(self, *arguments: str) -> str:
        """The output of a command that must succeed."""
        text = self.session.mqadmin(*arguments)
        print(f"mqadmin {' '.join(arguments)}: {len(text)} characters")
        assert "Exception" not in text, text
        return text

    def refused(self, *arguments: str) -> str:
        """The reason of a refusal, the first line of Apache's exception."""
        text = self.session.mqadmin(*arguments)
        assert "Caused by:" in text, text
        return text.partition("Caused by:")[2].partition("\n")[0]


def rows(text: str) -> list[list[str]]:
    """The lines of a table by words, without the head."""
    return [line.split() for line in text.split("\n") if line.strip() and not line.startswith("#")]


def settings(text: str) -> dict[str, str]:
    pairs = (line.partition(" =") for line in text.split("\n") if " =" in line)
    return {key.strip(): value.strip() for key, _, value in pairs}


@pytest.fixture(scope="module")
def stand(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stand]:
    reason = apache.unavailable()
    if reason:
        pytest.skip(reason)
    work = tmp_path_factory.mktemp("mqadmin")
    with (
        LocalCluster(brokers=2, namesrvs=2, cluster=CLUSTER, settings=PATIENT) as cluster,
        JavaSession(work / "session", cluster.namesrv) as session,
    ):
        cluster.create_topic(TOPIC, 4)
        cluster.create_topic("Quiet", 1)
        yield Stand(cluster, session)


def test_as_a_process_of_its_own(stand: Stand, tmp_path: Path) -> None:
    found = rows(apache.mqadmin(tmp_path, "clusterList", "-n", stand.cluster.namesrv))
    assert [row[:5] for row in found] == [
        [CLUSTER, "broker-a", "0", stand.a, "V5_5_0"],
        [CLUSTER, "broker-b", "0", stand.b, "V5_5_0"],
    ]
    assert all(row[-1] == "true" for row in found)


def test_cluster(stand: Stand) -> None:
    found = rows(stand.admin("clusterList", "-m"))
    assert [row[1] for row in found] == ["broker-a", "broker-b"]
    assert sum(int(row[4]) for row in found) >= COUNT  # InTotalToday
    assert sum(int(row[5]) for row in found) >= COUNT
    status = dict(
        line.partition(":")[::2] for line in stand.admin("brokerStatus", "-b", stand.a).split("\n") if ":" in line
    )
    status = {key.strip(): value.strip() for key, value in status.items()}
    assert status["brokerVersionDesc"] == "V5_5_0"
    assert int(status["msgPutTotalTodayNow"]) >= COUNT // 2
    assert int(status["commitLogMaxOffset"]) > 0 == int(status["commitLogMinOffset"])
    assert int(status["earliestMessageTimeStamp"]) <= stand.sent[-1]["sequence"] + stand.cluster.clock.now_ms()
    assert stand.a in stand.admin("brokerStatus", "-c", CLUSTER)


def test_topics(stand: Stand) -> None:
    assert {TOPIC, f"%RETRY%{GROUP}", "TBW102", CLUSTER, "broker-a"} <= set(stand.admin("topicList").split())
    with_groups = rows(stand.admin("topicList", "-c"))
    assert [CLUSTER, TOPIC, GROUP] in with_groups
    route = loads_object(stand.admin("topicRoute", "-t", TOPIC).encode())
    assert {one["brokerName"]: one["brokerAddrs"] for one in route["brokerDatas"]} == {
        "broker-a": {0: stand.a},
        "broker-b": {0: stand.b},
    }
    assert {(one["brokerName"], one["readQueueNums"], one["perm"]) for one in route["queueDatas"]} == {
        ("broker-a", 4, 6),
        ("broker-b", 4, 6),
    }
    status = rows(stand.admin("topicStatus", "-t", TOPIC))
    ends = {(row[0], int(row[1])): (int(row[2]), int(row[3])) for row in status if row[0].startswith("broker-")}
    assert len(ends) == 8 and all(first == 0 for first, _ in ends.values())
    assert sum(end for _, end in ends.values()) == COUNT


def test_a_topic_is_made_changed_and_deleted(stand: Stand) -> None:
    made = stand.admin("updateTopic", "-c", CLUSTER, "-t", "Made", "-r", "6", "-w", "5", "-p", "6")
    assert f"create topic to {stand.a} success" in made and f"create topic to {stand.b} success" in made
    assert stand.admin("topicClusterList", "-t", "Made").split() == [CLUSTER]
    stand.admin("updateTopic", "-b", stand.a, "-t", "Typed", "-r", "1", "-w", "1", "-a", "+message.type=FIFO")
    refusal = stand.refused("updateTopic", "-b", stand.a, "-t", "Typed", "-a", "+message.type=NONE")
    assert "message.type" in refusal and "FIFO" in refusal
    changed = stand.admin("updateTopicPerm", "-b", stand.a, "-t", "Made", "-p", "4")
    assert "from 6 to 4" in changed
    table = rows(stand.admin("topicRoute", "-t", "Made", "-l"))
    queues = {row[1]: row[3:] for row in table if row[0] == CLUSTER}
    assert queues == {"broker-a": ["6", "5", "4"], "broker-b": ["6", "5", "6"]}
    stand.admin("deleteTopic", "-c", CLUSTER, "-t", "Made")
    assert "CODE: 17" in stand.refused("topicRoute", "-t", "Made")
    assert "Made" not in stand.admin("topicList").split()
    assert "TBW102" in stand.refused("updateTopic", "-b", stand.a, "-t", "TBW102")


def test_groups(stand: Stand) -> None:
    stand.admin("updateSubGroup", "-c", CLUSTER, "-g", "ledger", "-r", "3", "-q", "2")
    shown = stand.admin("getConsumerConfig", "-g", "ledger")
    assert settings(shown)["retryMaxTimes"] == "3" and settings(shown)["retryQueueNums"] == "2"
    assert shown.count("groupName") == 2
    stand.admin("deleteSubGroup", "-c", CLUSTER, "-g", "ledger")
    assert "ledger" not in stand.admin("getConsumerConfig", "-g", "ledger")


def test_progress_and_connections(stand: Stand) -> None:
    client = stand.consumer.facts()["client"]
    text = stand.admin("consumerConnection", "-g", GROUP)
    assert [row[0] for row in rows(text) if row[2:4] == ["JAVA", "V5_5_0"]] == [client]
    assert "CONSUME_PASSIVELY" in text and "CLUSTERING" in text and "CONSUME_FROM_FIRST_OFFSET" in text
    assert [row for row in rows(text) if row[0] == TOPIC] == [[TOPIC, "*"]]
    producers = stand.admin("producerConnection", "-g", "shop", "-t", TOPIC)
    assert "JAVA" in producers and "V5_5_0" in producers
    assert "(shop)" in stand.admin("producer", "-b", stand.a)
    assert "CODE: 17" in stand.refused("consumerConnection", "-g", "nobody")

    def progress() -> dict[tuple[str, int], tuple[int, int]]:
        table = rows(stand.admin("consumerProgress", "-g", GROUP))
        return {(row[1], int(row[2])): (int(row[3]), int(row[4])) for row in table if row[0] == TOPIC}

    # Offsets are committed every five seconds.
    stand.session.wait_until(lambda: all(end == at for end, at in progress().values()), "all committed", 30)
    assert sum(end for end, _ in progress().values()) == COUNT
    line = next(row for row in rows(stand.admin("consumerProgress")) if row[0] == GROUP)
    assert line[1:5] == ["1", "V5_5_0", "PUSH", "CLUSTERING"] and line[6] == "0"
    assert client in stand.admin("consumerStatus", "-g", GROUP)
    assert "Rebalance OK" in stand.admin("consumerStatus", "-g", GROUP)


def test_broker_settings(stand: Stand) -> None:
    found = settings(stand.admin("getBrokerConfig", "-b", stand.a))
    assert found["brokerName"] == "broker-a" and found["brokerClusterName"] == CLUSTER
    stand.admin("updateBrokerConfig", "-b", stand.a, "-k", "fileReservedTime", "-v", "49")
    assert settings(stand.admin("getBrokerConfig", "-b", stand.a))["fileReservedTime"] == "49"
    assert settings(stand.admin("getBrokerConfig", "-b", stand.b))["fileReservedTime"] == "72"
    refusal = stand.refused("updateBrokerConfig", "-b", stand.a, "-k", "storePathRootDir", "-v", "elsewhere")
    assert "CODE: 16" in refusal and "storePathRootDir" in refusal
    refusal = stand.refused("updateBrokerConfig", "-b", stand.a, "-k", "nonsense", "-v", "1")
    assert "unknown key 'nonsense'" in refusal
    refusal = stand.refused("updateBrokerConfig", "-b", stand.a, "-k", "fileReservedTime", "-v", "long")
    assert "fileReservedTime" in refusal


def test_messages_are_found(stand: Stand) -> None:
    one = stand.sent[7]
    by_offset_id = stand.admin("queryMsgById", "-i", one["offsetMsgId"], "-t", TOPIC)
    by_unique_id = stand.admin("queryMsgByUniqueKey", "-t", TOPIC, "-i", one["msgId"])
    place = ["-b", one["brokerName"], "-i", str(one["queueId"]), "-o", str(one["queueOffset"])]
    by_place = stand.admin("queryMsgByOffset", "-t", TOPIC, *place)
    for text in (by_offset_id, by_unique_id, by_place):
        assert f"Queue Offset:        {one['queueOffset']}\n" in text and one["msgId"] in text
        assert "Keys:                [k7 keven3]" in text and "Tags:                [b]" in text
        assert f"consumerGroup={GROUP}, trackType=CONSUMED" in text
    by_key = rows(stand.admin("queryMsgByKey", "-t", TOPIC, "-k", "keven3"))
    assert {row[0] for row in by_key} == {stand.sent[6]["msgId"], one["msgId"]}
    assert "CODE: 208" in stand.refused("queryMsgByUniqueKey", "-t", TOPIC, "-i", "0" * 32)
    printed = stand.admin("printMsg", "-t", TOPIC)
    assert {one["msgId"] for one in stand.sent} == {line.split()[1] for line in printed.split("\n") if "MSGID" in line}
    tagged = stand.admin("printMsg", "-t", TOPIC, "-s", "b")
    assert tagged.count("MSGID:") == COUNT // 2 and "TAGS=a" not in tagged
    queue = ["-a", one["brokerName"], "-i", str(one["queueId"]), "-p", "true", "-d", "false"]
    assert one["msgId"] in stand.admin("printMsgByQueue", "-t", TOPIC, *queue)
    units = stand.admin("queryCq", "-t", TOPIC, "-q", "0", "-i", "0", "-c", "3", "-b", stand.a)
    assert units.count("physicOffset=") == 3


def test_a_message_is_pushed_again_to_one_consumer(stand: Stand) -> None:
    before = len(stand.consumer.events("message"))
    target = ["-g", GROUP, "-d", stand.consumer.facts()["client"]]
    text = stand.admin("queryMsgByUniqueKey", "-t", TOPIC, "-i", stand.sent[3]["msgId"], *target)
    assert "CR_SUCCESS" in text
    again = stand.consumer.wait_for_events("message", before + 1)[before]
    assert again["msgId"] == stand.sent[3]["msgId"]


def test_send_and_consume(stand: Stand) -> None:
    sent = rows(stand.admin("sendMessage", "-t", "Quiet", "-p", "hello", "-k", "greeting", "-c", "tag"))
    assert sent[0][2] == "SEND_OK"
    assert rows(stand.admin("queryMsgByKey", "-t", "Quiet", "-k", "greeting"))[0][0] == sent[0][3]
    assert stand.admin("sendMsgStatus", "-b", "broker-a", "-c", "3", "-s", "100").count("SEND_OK") == 3
    assert stand.admin("consumeMessage", "-t", TOPIC, "-c", "5").count("MSGID:") == 5
    assert stand.admin("checkMsgSendRT", "-t", "Quiet", "-a", "4", "-s", "100").count(" true ") == 4


def test_offsets_are_reset_and_cloned(stand: Stand) -> None:
    stand.admin("updateSubGroup", "-c", CLUSTER, "-g", "audit")
    stand.admin("cloneGroupOffset", "-s", GROUP, "-d", "audit", "-t", TOPIC)

    # Apache's command finds the brokers by the group's retry topic, which a consumer's first heartbeat makes.
    stand.session.run("consume", topic="Quiet", group="audit", limit_ms=1)

    def audited() -> int:
        table = rows(stand.admin("consumerProgress", "-g", "audit"))
        return sum(int(row[4]) for row in table if row[0] == TOPIC)

    assert audited() == COUNT
    table = rows(stand.admin("resetOffsetByTime", "-g", "audit", "-t", TOPIC, "-s", "0"))
    assert [row[2] for row in table if row[0].startswith("broker-")] == ["0"] * 8
    assert audited() == 0
    stand.admin("skipAccumulatedMessage", "-g", "audit", "-t", TOPIC)
    assert audited() == COUNT
    # The running consumer is told, and begins again.
    before = len(stand.consumer.events("message"))
    stand.admin("resetOffsetByTime", "-g", GROUP, "-t", TOPIC, "-s", "0")
    again = stand.consumer.wait_for_events("message", before + COUNT)[before:]
    assert {one["msgId"] for one in again} == {one["msgId"] for one in stand.sent}


def test_name_server_settings_and_values(stand: Stand) -> None:
    shown = stand.admin("getNamesrvConfig")
    assert all(f"={stand.cluster.namesrv_address(index)}=" in shown for index in (0, 1))
    stand.admin("updateNamesrvConfig", "-k", "orderMessageEnable", "-v", "true")
    assert settings(stand.admin("getNamesrvConfig"))["orderMessageEnable"] == "true"
    assert "CODE: 16" in stand.refused("updateNamesrvConfig", "-k", "kvConfigPath", "-v", "elsewhere")
    stand.admin("updateKvConfig", "-s", "ORDER_TOPIC_CONFIG", "-k", TOPIC, "-v", "broker-a:4;broker-b:4")
    assert "orderConf=[broker-a:4;broker-b:4]" in stand.admin("updateOrderConf", "-t", TOPIC, "-m", "get")
    assert '"orderTopicConf":"broker-a:4;broker-b:4"' in stand.admin("topicRoute", "-t", TOPIC)
    stand.admin("deleteKvConfig", "-s", "ORDER_TOPIC_CONFIG", "-k", TOPIC)
    assert "CODE: 22" in stand.refused("updateOrderConf", "-t", TOPIC, "-m", "get")
    assert "orderTopicConf" not in stand.admin("topicRoute", "-t", TOPIC)


def test_a_broker_is_closed_to_writers_and_opened_again(stand: Stand) -> None:
    def permissions() -> dict[str, Any]:
        route = loads_object(stand.admin("topicRoute", "-t", TOPIC).encode())
        return {one["brokerName"]: one["perm"] for one in route["queueDatas"]}

    assert stand.admin("wipeWritePerm", "-b", "broker-a").count(" OK, ") == 2
    assert permissions() == {"broker-a": 4, "broker-b": 6}
    sent = [one for one in stand.session.run("produce", topic=TOPIC, count=8) if one["event"] == "sent"]
    assert {one["brokerName"] for one in sent} == {"broker-b"}
    assert stand.admin("addWritePerm", "-b", "broker-a").count(" OK, ") == 2
    assert permissions() == {"broker-a": 6, "broker-b": 6}


def test_statistics_and_cleaning(stand: Stand, tmp_path: Path) -> None:
    stats = next(row for row in rows(stand.admin("statsAll", "-t", TOPIC)) if row[:2] == [TOPIC, GROUP])
    assert int(stats[2]) >= 0 and float(stats[3]) >= 0
    consumed = rows(stand.admin("brokerConsumeStats", "-b", stand.a))
    assert {row[2] for row in consumed if row[:2] == [TOPIC, GROUP]} == {"broker-a"}
    assert "success" in stand.admin("cleanExpiredCQ", "-b", stand.a)
    assert "success" in stand.admin("cleanUnusedTopic", "-b", stand.a)
    stand.admin("exportMetadata", "-c", CLUSTER, "-t", "-f", str(tmp_path))
    exported = json.loads((tmp_path / "topic.json").read_text())
    assert TOPIC in exported["topicConfigTable"]
    stand.admin("exportMetrics", "-c", CLUSTER, "-f", str(tmp_path))
    assert set(json.loads((tmp_path / "metrics.json").read_text())["evaluateReport"]) == {"broker-a", "broker-b"}


def test_what_a_broker_does_not_have_is_refused_in_words(stand: Stand) -> None:
    assert "not supported" in stand.refused("getColdDataFlowCtrInfo", "-b", stand.a)
    assert "this broker has no replicas" in stand.refused("getBrokerEpoch", "-b", "broker-a")
