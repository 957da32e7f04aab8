"""Topics and groups over the wire: made, changed, deleted, listed; answered when saved."""

from dataclasses import replace

import pytest

from aerobee.model.dialect import dumps
from aerobee.model.group import SubscriptionGroupConfig
from aerobee.model.topic import GENERATION, TopicConfig
from aerobee.protocol.bodies.groups import SubscriptionGroupList
from aerobee.protocol.bodies.topics import CreateTopicListRequestBody
from aerobee.protocol.codes import RequestCode, ResponseCode
from aerobee.protocol.command import Command, request
from aerobee.protocol.headers.group import (
    DeleteSubscriptionGroupRequestHeader,
    GetAllSubscriptionGroupRequestHeader,
    GetSubscriptionGroupConfigRequestHeader,
)
from aerobee.protocol.headers.topic import (
    CreateTopicRequestHeader,
    DeleteTopicRequestHeader,
    GetAllTopicConfigRequestHeader,
    GetTopicConfigRequestHeader,
    GetTopicStatsInfoRequestHeader,
    UpdateGroupForbiddenRequestHeader,
)
from aerobee.testing.adminkit import AdminKit, run_admin
from aerobee.testing.brokerkit import settle
from aerobee.testing.crash import CrashMode
from aerobee.testing.disk import RecordingDisk
from aerobee.testing.storekit import bodies


def topic_header(topic: str = "T", **values: object) -> CreateTopicRequestHeader:
    wanted = {
        "default_topic": "TBW102",
        "read_queue_nums": 4,
        "write_queue_nums": 4,
        "perm": 6,
        "topic_filter_type": "SINGLE_TAG",
        **values,
    }
    return CreateTopicRequestHeader(topic=topic, **wanted)  # type: ignore[arg-type]


async def make(kit: AdminKit, topic: str = "T", **values: object) -> Command:
    return await kit.call(RequestCode.UPDATE_AND_CREATE_TOPIC, topic_header(topic, **values))


def test_a_topic_is_answered_when_it_is_on_disk() -> None:
    async def main(kit: AdminKit) -> None:
        kit.kit.tick()
        await settle()
        kit.client.send(request(RequestCode.UPDATE_AND_CREATE_TOPIC, topic_header(), opaque=7))
        await settle()
        assert await kit.client.answers() == []
        kit.kit.tick()
        answers = await kit.client.answers()
        assert [(one.opaque, one.code) for one in answers] == [(7, 0)]

    run_admin(main)


def without_generation(kit: AdminKit, topic: str) -> TopicConfig:
    """Return a topic as it was asked for. Each new one has a generation too."""
    found = kit.kit.state.catalog.find(topic)
    assert found is not None and found.generation
    return replace(found, attributes={k: v for k, v in found.attributes.items() if k != GENERATION})


def test_a_topic_answered_survives_a_power_cut() -> None:
    disk = RecordingDisk(seed=3)
    images: list[RecordingDisk] = []

    async def main(kit: AdminKit) -> None:
        assert (await make(kit)).code == 0
        images.append(disk.crash(CrashMode.NONE))

    async def again(kit: AdminKit) -> None:
        assert without_generation(kit, "T") == TopicConfig("T", 4, 4)

    run_admin(main, disk=disk)
    run_admin(again, disk=images[0])


@pytest.mark.parametrize(
    ("values", "code", "remark"),
    [
        ({"topic": "no good"}, ResponseCode.INVALID_PARAMETER, "contains illegal characters"),
        ({"topic": "x" * 128}, ResponseCode.INVALID_PARAMETER, "longer than topic max length"),
        ({"topic": "TBW102"}, ResponseCode.INVALID_PARAMETER, "is conflict with system topic."),
        ({"attributes": "+message.type=MIXED"}, ResponseCode.INVALID_PARAMETER, "MIXED message type is not supported"),
        ({"attributes": "+no.such=1"}, ResponseCode.SYSTEM_ERROR, "unsupported key: no.such"),
        ({"attributes": "message.type=FIFO"}, ResponseCode.SYSTEM_ERROR, "add/alter attribute format is wrong"),
    ],
)
def test_refusals_of_a_topic_are_apaches(values: dict[str, object], code: int, remark: str) -> None:
    async def main(kit: AdminKit) -> None:
        answer = await make(kit, **values)
        assert answer.code == code
        assert remark in (answer.remark or "")

    run_admin(main)


def test_a_list_of_topics_is_made_as_a_whole_or_not() -> None:
    async def main(kit: AdminKit) -> None:
        code = RequestCode.UPDATE_AND_CREATE_TOPIC_LIST
        bad = CreateTopicListRequestBody((TopicConfig("A"), TopicConfig("no good")))
        assert (await kit.call(code, body=bad.encode())).code == ResponseCode.INVALID_PARAMETER
        assert kit.kit.state.catalog.find("A") is None
        good = CreateTopicListRequestBody((TopicConfig("A"), TopicConfig("B", 2, 3)))
        assert (await kit.call(code, body=good.encode())).code == 0
        assert without_generation(kit, "B") == TopicConfig("B", 2, 3)
        assert (await kit.call(code, body=b"[")).code == ResponseCode.INVALID_PARAMETER

    run_admin(main)


def test_attributes_change_one_by_one() -> None:
    async def main(kit: AdminKit) -> None:
        await make(kit, attributes="+message.type=FIFO")
        await make(kit, read_queue_nums=8)
        found = await kit.json(RequestCode.GET_TOPIC_CONFIG, GetTopicConfigRequestHeader(topic="T"))
        generation = found["attributes"].pop(GENERATION)
        assert found["attributes"] == {"message.type": "FIFO"}
        assert (found["readQueueNums"], found["writeQueueNums"]) == (8, 4)
        await make(kit, attributes="-message.type")
        found = await kit.json(RequestCode.GET_TOPIC_CONFIG, GetTopicConfigRequestHeader(topic="T"))
        assert found["attributes"] == {GENERATION: generation}
        for change in (f"-{GENERATION}", f"+{GENERATION}=1"):
            assert "unsupported key" in ((await make(kit, attributes=change)).remark or "")

    run_admin(main)


def test_a_topic_that_is_not_there() -> None:
    async def main(kit: AdminKit) -> None:
        answer = await kit.call(RequestCode.GET_TOPIC_CONFIG, GetTopicConfigRequestHeader(topic="nix"))
        assert (answer.code, answer.remark) == (17, "No topic in this broker. topic: nix")
        answer = await kit.call(RequestCode.GET_TOPIC_STATS_INFO, GetTopicStatsInfoRequestHeader(topic="nix"))
        assert (answer.code, answer.remark) == (17, "topic[nix] not exist")

    run_admin(main)


def test_deleting_a_topic_takes_its_queues_offsets_and_pop_retry_topics() -> None:
    async def main(kit: AdminKit) -> None:
        state = kit.kit.state
        for topic in ("T", "%RETRY%g_T", "%RETRY%g+T", "%RETRY%g", "other"):
            state.catalog.put_topic(TopicConfig(topic, 1, 1))
        kit.put("T", 3)
        kit.put("other", 1)
        state.offsets.commit("g", "T", 0, 2)
        answer = await kit.call(RequestCode.DELETE_TOPIC_IN_BROKER, DeleteTopicRequestHeader(topic="T"))
        assert answer.code == 0
        left = [topic for topic in ("T", "%RETRY%g_T", "%RETRY%g+T", "%RETRY%g", "other") if state.catalog.find(topic)]
        assert left == ["%RETRY%g", "other"]
        assert state.store.max_offset(b"T", 0) == 0
        assert state.offsets.of("g", "T") == {}
        assert bodies(state.store, b"other") == [b"x"]

    run_admin(main)


@pytest.mark.parametrize(
    ("topic", "remark"),
    [(" ", "The specified topic is blank."), ("SELF_TEST_TOPIC", "is conflict with system topic.")],
)
def test_deletions_that_are_refused(topic: str, remark: str) -> None:
    async def main(kit: AdminKit) -> None:
        answer = await kit.call(RequestCode.DELETE_TOPIC_IN_BROKER, DeleteTopicRequestHeader(topic=topic))
        assert answer.code == ResponseCode.INVALID_PARAMETER
        assert remark in (answer.remark or "")

    run_admin(main)


def test_all_topics_whole_and_by_pages() -> None:
    async def main(kit: AdminKit) -> None:
        whole = await kit.json(RequestCode.GET_ALL_TOPIC_CONFIG)
        names = set(whole["topicConfigTable"])
        assert "SCHEDULE_TOPIC_XXXX" in names
        version = dumps(whole["dataVersion"]).decode()
        seen: set[str] = set()
        while len(seen) < len(names):
            header = GetAllTopicConfigRequestHeader(topic_seq=len(seen), max_topic_num=4, data_version=version)
            answer = await kit.call(RequestCode.GET_ALL_TOPIC_CONFIG, header)
            assert answer.ext["totalTopicNum"] == str(len(names))
            page = (await kit.json(RequestCode.GET_ALL_TOPIC_CONFIG, header))["topicConfigTable"]
            assert len(page) <= 4
            assert not seen & set(page)
            seen |= set(page)
        assert seen == names
        # A table that changed in between is read from its start again.
        stale = GetAllTopicConfigRequestHeader(topic_seq=4, max_topic_num=4, data_version='{"counter":1}')
        page = (await kit.json(RequestCode.GET_ALL_TOPIC_CONFIG, stale))["topicConfigTable"]
        assert set(page) == set(sorted(names)[:4])

    run_admin(main)


def test_topic_stats_have_the_ends_and_the_last_store_time_of_every_queue() -> None:
    async def main(kit: AdminKit) -> None:
        kit.kit.state.catalog.put_topic(TopicConfig("T", 1, 2))
        kit.put("T", 3, 1)
        found = await kit.json(RequestCode.GET_TOPIC_STATS_INFO, GetTopicStatsInfoRequestHeader(topic="T"))
        table = {key.fields()["queueId"]: value for key, value in found["offsetTable"].items()}
        assert table[0] == {"lastUpdateTimestamp": 0, "maxOffset": 0, "minOffset": 0}
        assert (table[1]["minOffset"], table[1]["maxOffset"]) == (0, 3)
        assert table[1]["lastUpdateTimestamp"] == kit.kit.store.log.store_timestamp
        assert {key.fields()["brokerName"] for key in found["offsetTable"]} == {"broker-a"}

    run_admin(main)


def test_system_topics_and_unknown_queues() -> None:
    async def main(kit: AdminKit) -> None:
        found = await kit.json(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER)
        assert {"TBW102", "broker-a", "DefaultCluster", "RMQ_SYS_TRACE_TOPIC"} <= set(found["topicList"])
        kit.put("ghost", 1)
        kit.put("SCHEDULE_TOPIC_XXXX", 1)
        assert (await kit.call(RequestCode.CLEAN_UNUSED_TOPIC)).code == 0
        assert kit.kit.store.queues.topics() == {b"SCHEDULE_TOPIC_XXXX"}

    run_admin(main)


# -- groups


async def make_group(kit: AdminKit, **values: object) -> Command:
    config = SubscriptionGroupConfig(**{"group_name": "G", **values})  # type: ignore[arg-type]
    return await kit.call(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=dumps(config.to_json()))


def test_a_group_is_made_shown_and_deleted_with_its_offsets() -> None:
    async def main(kit: AdminKit) -> None:
        assert (await make_group(kit, retry_max_times=3)).code == 0
        header = GetSubscriptionGroupConfigRequestHeader(group="G")
        assert (await kit.json(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, header))["retryMaxTimes"] == 3
        offsets = kit.kit.state.offsets
        offsets.commit("G", "T", 0, 5)
        keep = DeleteSubscriptionGroupRequestHeader(group_name="G")
        assert (await kit.call(RequestCode.DELETE_SUBSCRIPTIONGROUP, keep)).code == 0
        assert offsets.of("G", "T") == {0: 5}
        clean = DeleteSubscriptionGroupRequestHeader(group_name="G", clean_offset=True)
        assert (await kit.call(RequestCode.DELETE_SUBSCRIPTIONGROUP, clean)).code == 0
        assert offsets.of("G", "T") == {}
        assert kit.kit.state.catalog.group_table.get("G") is None

    run_admin(main)


def test_refusals_of_groups() -> None:
    async def main(kit: AdminKit) -> None:
        answer = await make_group(kit, group_name="no good")
        assert answer.code == ResponseCode.INVALID_PARAMETER
        assert "contains illegal characters" in (answer.remark or "")
        several = SubscriptionGroupList((SubscriptionGroupConfig("A"), SubscriptionGroupConfig("no good")))
        code = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST
        assert (await kit.call(code, body=several.encode())).code == ResponseCode.INVALID_PARAMETER
        assert kit.kit.state.catalog.group_table.get("A") is None
        header = GetSubscriptionGroupConfigRequestHeader(group="no good")
        answer = await kit.call(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, header)
        assert (answer.code, answer.remark) == (26, "No group in this broker")

    run_admin(main)


def test_all_groups_by_pages() -> None:
    async def main(kit: AdminKit) -> None:
        whole = await kit.json(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
        header = GetAllSubscriptionGroupRequestHeader(group_seq=0, max_group_num=3)
        answer = await kit.call(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, header)
        assert answer.ext["totalGroupNum"] == str(len(whole["subscriptionGroupTable"]))
        page = (await kit.json(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, header))["subscriptionGroupTable"]
        assert list(page) == sorted(whole["subscriptionGroupTable"])[:3]

    run_admin(main)


def test_a_group_may_be_forbidden_to_read_a_topic() -> None:
    async def main(kit: AdminKit) -> None:
        code = RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN
        ask = UpdateGroupForbiddenRequestHeader(group="G", topic="T")
        assert (await kit.json(code, ask))["readable"] is True
        forbid = UpdateGroupForbiddenRequestHeader(group="G", topic="T", readable=False)
        assert await kit.json(code, forbid) == {"group": "G", "readable": False, "topic": "T"}
        assert kit.kit.state.catalog.forbids("G", "T")
        allow = UpdateGroupForbiddenRequestHeader(group="G", topic="T", readable=True)
        assert (await kit.json(code, allow))["readable"] is True
        assert not kit.kit.state.catalog.forbids("G", "T")

    run_admin(main)
