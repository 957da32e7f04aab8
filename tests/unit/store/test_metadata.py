import json

import pytest

from aerobee.errors import InvalidArgumentError, StoreError
from aerobee.model.dataversion import DataVersion
from aerobee.model.dialect import dumps
from aerobee.model.group import SubscriptionGroupConfig
from aerobee.model.topic import TopicConfig
from aerobee.store.metadata.groups import GroupTable
from aerobee.store.metadata.offsets import ConsumerOffsetTable, DelayOffsetTable
from aerobee.store.metadata.plain import ConsumerFilterTable, MessageRequestModeTable
from aerobee.store.metadata.table import MetadataTable
from aerobee.store.metadata.topics import TopicTable
from aerobee.store.statefile import seal
from aerobee.testing.disk import RecordingDisk

# The texts below were written by the classes of Apache's broker (5.5.0), with a data version of counter 7.
VERSION = DataVersion(7, 1700000000123, 0)
TOPICS = b"""\
{
	"dataVersion":{
		"counter":7,
		"stateVersion":0,
		"timestamp":1700000000123
	},
	"topicConfigTable":{
		"TopicA":{
			"attributes":{},
			"order":false,
			"perm":6,
			"readQueueNums":8,
			"topicFilterType":"SINGLE_TAG",
			"topicName":"TopicA",
			"topicSysFlag":0,
			"writeQueueNums":8
		},
		"OrderTopic":{
			"attributes":{
				"message.type":"FIFO"
			},
			"order":true,
			"perm":6,
			"readQueueNums":4,
			"topicFilterType":"SINGLE_TAG",
			"topicName":"OrderTopic",
			"topicSysFlag":0,
			"writeQueueNums":4
		}
	}
}"""
GROUPS = b"""\
{
	"dataVersion":{
		"counter":7,
		"stateVersion":0,
		"timestamp":1700000000123
	},
	"forbiddenTable":{
		"g1":{
			"TopicA":2
		}
	},
	"subscriptionGroupTable":{
		"g1":{
			"attributes":{},
			"brokerId":0,
			"consumeBroadcastEnable":true,
			"consumeEnable":true,
			"consumeFromMinEnable":true,
			"consumeMessageOrderly":false,
			"consumeTimeoutMinute":15,
			"groupName":"g1",
			"groupRetryPolicy":{
				"type":"CUSTOMIZED"
			},
			"groupSysFlag":0,
			"notifyConsumerIdsChangedEnable":true,
			"retryMaxTimes":16,
			"retryQueueNums":1,
			"whichBrokerWhenConsumeSlowly":1
		}
	}
}"""
OFFSETS = b"""\
{
	"dataVersion":{
		"counter":7,
		"stateVersion":0,
		"timestamp":1700000000123
	},
	"groupTopicMap":{
		"g1":[
			"TopicA"
		]
	},
	"offsetTable":{
		"TopicA@g1":{
			0:10,
			1:20
		}
	},
	"pullOffsetTable":{}
}"""
DELAYS = b"""\
{
	"dataVersion":{
		"counter":7,
		"stateVersion":0,
		"timestamp":1700000000123
	},
	"offsetTable":{
		1:5,
		3:12
	}
}"""
FILTERS = b"""\
{
	"filterDataByTopic":{
		"TopicA":{
			"groupFilterData":{
				"g1":{
					"bloomFilterData":{
						"bitNum":216,
						"bitPos":[203,37,62]
					},
					"bornTime":1794741563382,
					"clientVersion":1700000000000,
					"consumerGroup":"g1",
					"dead":false,
					"deadTime":0,
					"expression":"a > 5",
					"expressionType":"SQL92",
					"topic":"TopicA"
				}
			},
			"topic":"TopicA"
		}
	}
}"""


def texts() -> list[tuple[type[MetadataTable], bytes]]:
    return [
        (TopicTable, TOPICS),
        (GroupTable, GROUPS),
        (ConsumerOffsetTable, OFFSETS),
        (DelayOffsetTable, DELAYS),
    ]


@pytest.mark.parametrize(("kind", "text"), texts())
def test_reads_apaches_file_and_writes_it_the_same(kind: type[MetadataTable], text: bytes) -> None:
    disk = RecordingDisk()
    disk.put(f"/store/config/{kind.file_name}", text)
    table = kind(disk, "/store")
    assert table.load()
    assert table.to_bytes() == text
    assert not table.save()


def test_filters_come_back_whole() -> None:
    """But for the blanks within a list of numbers, which Apache writes on one line."""
    disk = RecordingDisk()
    disk.put("/store/config/consumerFilter.json", FILTERS)
    table = ConsumerFilterTable(disk, "/store")
    table.load()
    assert b"".join(table.to_bytes().split()) == b"".join(FILTERS.split())


def test_topics_built_here_are_apaches_bytes() -> None:
    table = TopicTable(RecordingDisk(), "/store")
    table.put(TopicConfig("TopicA", 8, 8), 1)
    table.put(TopicConfig("OrderTopic", 4, 4, order=True, attributes={"message.type": "FIFO"}), 2)
    table.version = VERSION
    assert table.to_bytes() == TOPICS


def test_groups_built_here_are_apaches_bytes() -> None:
    table = GroupTable(RecordingDisk(), "/store")
    table.put(SubscriptionGroupConfig("g1"), 1)
    table.put_forbidden("g1", {"TopicA": 2, "TopicB": 0}, 2)
    table.version = VERSION
    assert table.to_bytes() == GROUPS


def test_offsets_built_here_are_apaches_bytes() -> None:
    offsets = ConsumerOffsetTable(RecordingDisk(), "/store")
    offsets.put("TopicA", "g1", 0, 10)
    offsets.put("TopicA", "g1", 1, 20)
    offsets.version = VERSION
    assert offsets.to_bytes() == OFFSETS
    delays = DelayOffsetTable(RecordingDisk(), "/store")
    delays.put(1, 5)
    delays.put(3, 12)
    delays.version = VERSION
    assert delays.to_bytes() == DELAYS


def test_every_change_bumps_the_version_and_no_change_does_not() -> None:
    table = TopicTable(RecordingDisk(), "/store")
    assert table.put(TopicConfig("T"), 100)
    assert not table.put(TopicConfig("T"), 200)
    assert table.version == DataVersion(1, 100, 0)
    assert table.put(TopicConfig("T", perm=4), 300)
    assert table.delete("T", 400)
    assert not table.delete("T", 500)
    assert table.version == DataVersion(3, 400, 0)
    assert table.get("T") is None
    groups = GroupTable(RecordingDisk(), "/store")
    assert groups.put(SubscriptionGroupConfig("g"), 1)
    assert groups.put_forbidden("g", {"T": 1}, 2)
    assert not groups.put_forbidden("g", {"T": 1}, 3)
    assert groups.put_forbidden("g", {}, 4)
    assert groups.delete("g", 5)
    assert not groups.delete("g", 6)
    assert groups.version == DataVersion(4, 5, 0)


def test_saves_only_what_changed() -> None:
    disk = RecordingDisk()
    table = TopicTable(disk, "/store")
    assert not table.load()
    table.put(TopicConfig("T"), 1)
    assert table.save()
    assert not table.save()
    again = TopicTable(disk, "/store")
    assert again.load()
    assert dict(again.topics) == dict(table.topics)
    assert not again.save()
    told: list[object] = []
    again.submit(told.append)
    again.put(TopicConfig("U"), 2)
    again.submit(told.append)
    assert told == [None, None]
    last = TopicTable(disk, "/store")
    last.load()
    assert list(last.topics) == ["T", "U"]


def test_a_failed_save_is_tried_again() -> None:
    disk = RecordingDisk()
    table = TopicTable(disk, "/store")
    table.put(TopicConfig("T"), 1)
    told: list[object] = []
    disk.fail(1, "sync")
    table.submit(told.append)
    assert isinstance(told[0], OSError)
    table.submit(told.append)
    assert told[1] is None
    assert TopicTable(disk, "/store").load()


@pytest.mark.parametrize("name", ["../../x", "a/b", "", "..", "a\0b", "x" * 256, "a\nb"])
def test_names_that_no_path_may_hold(name: str) -> None:
    topics = TopicTable(RecordingDisk(), "/store")
    with pytest.raises(InvalidArgumentError):
        topics.put(TopicConfig(name), 1)
    with pytest.raises(InvalidArgumentError):
        GroupTable(RecordingDisk(), "/store").put(SubscriptionGroupConfig(name), 1)
    assert topics.version == DataVersion()


def test_pop_retry_names_are_kept() -> None:
    table = TopicTable(RecordingDisk(), "/store")
    assert table.put(TopicConfig("%RETRY%group+topic"), 1)


@pytest.mark.parametrize(
    "text",
    [
        b"[]",
        b'{"offsetTable":7}',
        b'{"offsetTable":{"a@b":{0:1}',
    ],
)
def test_senseless_content_stops_the_start_and_changes_nothing(text: bytes) -> None:
    disk = RecordingDisk()
    disk.put("/store/config/consumerOffset.json", text)
    table = ConsumerOffsetTable(disk, "/store")
    table.put("t", "g", 0, 5)
    with pytest.raises(StoreError, match=r"consumerOffset\.json"):
        table.load()
    assert table.get("t", "g", 0) == 5


def read(disk: RecordingDisk, path: str) -> bytes:
    file = disk.open(path, write=False)
    return file.read(0, file.size())


def test_a_topic_that_leads_out_of_the_store_is_not_taken_up() -> None:
    disk = RecordingDisk()
    disk.put("/store/config/topics.json", TOPICS.replace(b"OrderTopic", b"../../etc"))
    table = TopicTable(disk, "/store")
    assert table.load(1_700_000_000_000)
    assert table.topics and "../../etc" not in table.topics
    (line,) = map(json.loads, read(disk, "/store/config/topics.json.rejected").splitlines())
    assert (line["time"], line["key"]) == ("2023-11-14T22:13:20Z", "topicConfigTable/../../etc")
    assert "cannot be the name of a file" in line["reason"]
    assert line["entry"]["topicName"] == "../../etc"


@pytest.mark.parametrize("value", [b'"x"', b"true", b"1.5", b"9223372036854775808", b"[]", b"{}"])
def test_one_offset_that_cannot_be_used_leaves_the_others(value: bytes, caplog: pytest.LogCaptureFixture) -> None:
    """Also where the file carries its checksum; the file itself is written again without the entry."""
    disk = RecordingDisk()
    text = b'{"offsetTable":{"a@b":{0:5,1:' + value + b',2:6,"q":1},"c@d":7}}'
    for number, content in enumerate((text, seal(text)), 1):
        disk.put("/store/config/consumerOffset.json", content)
        table = ConsumerOffsetTable(disk, "/store")
        caplog.clear()
        assert table.load(1)
        assert table.table == {"a@b": {0: 5, 2: 6}}
        assert table.rejected == 3 * number
        assert [record.levelname for record in caplog.records] == ["ERROR"] * 3
        again = ConsumerOffsetTable(disk, "/store")
        assert again.load(2)
        assert (again.table, again.rejected) == (table.table, 3 * number)
    keys = [json.loads(line)["key"] for line in read(disk, "/store/config/consumerOffset.json.rejected").splitlines()]
    assert keys == ["a@b/1", "a@b/q", "offsetTable/c@d"] * 2


def test_a_version_that_cannot_be_used_is_set_aside_too() -> None:
    disk = RecordingDisk()
    disk.put("/store/config/delayOffset.json", b'{"dataVersion":{"counter":"x"},"offsetTable":{3:12},"rescanFrom":"y"}')
    table = DelayOffsetTable(disk, "/store")
    assert table.load(1)
    assert (table.table, table.version, table.rescan_from, table.rejected) == ({3: 12}, DataVersion(), None, 2)


def test_a_crash_while_entries_are_set_aside_loses_none_of_them() -> None:
    """The power goes at each call in turn: an entry is in the file or beside it, and the next start works."""
    text = b'{"offsetTable":{"a@b":{0:5,1:"x"}}}'
    for nth in range(1, 40):
        disk = RecordingDisk(seed=nth)
        disk.put("/store/config/consumerOffset.json", text)
        disk.sync_everything()
        disk.fail(nth, times=None)
        try:
            ConsumerOffsetTable(disk, "/store").load(1)
            done = True
        except (OSError, StoreError):
            done = False
        disk.heal()
        for image in disk.crash_images(nth, per_mode=3):
            table = ConsumerOffsetTable(image.disk, "/store")
            assert table.load(2)
            assert table.table == {"a@b": {0: 5}}
            assert table.rejected >= 1
            lines = read(image.disk, "/store/config/consumerOffset.json.rejected").splitlines()
            assert json.loads(lines[-1])["entry"] == "x"
        if done:
            break
    else:
        raise AssertionError("the load never ran to its end")


def test_files_of_4x_and_quoted_numbers() -> None:
    disk = RecordingDisk()
    disk.put("/store/config/consumerOffset.json", b'{"offsetTable":{"T@g":{"0":3,1:4}}}')
    disk.put("/store/config/delayOffset.json", b'{"offsetTable":{3:12}}')
    offsets = ConsumerOffsetTable(disk, "/store")
    held = offsets.table
    assert offsets.load()
    assert held == {"T@g": {0: 3, 1: 4}}
    assert offsets.get("T", "g", 1) == 4
    assert offsets.delete("T", "g") and not offsets.delete("T", "g")
    delays = DelayOffsetTable(disk, "/store")
    assert delays.load() and delays.get(3) == 12
    assert delays.version == DataVersion()


def test_plain_tables_keep_what_they_do_not_understand() -> None:
    disk = RecordingDisk()
    modes = MessageRequestModeTable(disk, "/store")
    assert modes.to_bytes() == b'{\n\t"messageRequestModeMap":{}\n}'
    assert modes.put("T", {"group": "g", "unknown": {1: [1, 2]}}, 10)
    assert not modes.put("T", {"group": "g", "unknown": {1: [1, 2]}}, 11)
    modes.save()
    again = MessageRequestModeTable(disk, "/store")
    again.load()
    assert again.get("T") == {"group": "g", "unknown": {1: [1, 2]}}
    assert again.delete("T", 12)
    disk.put("/store/config/messageRequestMode.json", b'{"other":{}}')
    assert again.load() and again.table == {}


def test_entries_written_before_are_the_bytes_a_fresh_table_writes() -> None:
    """Texts of entries are kept: after any change the file must be what writing all of it anew gives."""
    disk = RecordingDisk(seed=1)
    topics, offsets = TopicTable(disk, "/store"), ConsumerOffsetTable(disk, "/store")
    for number in range(5):
        topics.put(TopicConfig(f"t{number}", 4, 4), 5)
        offsets.put(f"t{number}", "g", 0, number)
    for change in (
        lambda: None,
        lambda: topics.put(TopicConfig("t1", 8, 8, attributes={"a": "b"}), 5),
        lambda: topics.delete("t2", 5),
        lambda: offsets.put("t1", "g", 3, 77),
        lambda: offsets.put("t1", "g", 3, 78),
        lambda: offsets.delete("t0", "g"),
    ):
        change()
        assert topics.to_bytes() == dumps(topics.encode(), pretty=True)
        assert offsets.to_bytes() == dumps(offsets.encode(), pretty=True)


def test_nobody_is_told_of_a_save_that_is_still_under_way() -> None:
    disk = RecordingDisk()
    table = TopicTable(disk, "/store")
    table.put(TopicConfig("a", 1, 1), 1)
    disk.complete_queued()
    told: list[object] = []
    table.submit(told.append)
    table.submit(told.append)
    assert told == []
    disk.run_pending()
    assert told == [None, None]
    table.submit(told.append)
    assert told == [None, None, None], "what is saved is not written again"
