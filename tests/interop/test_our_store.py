"""A store this code wrote, opened by Apache's broker and read by its clients; then opened here again."""

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from aerobee.hot.log.host import encode_host
from aerobee.hot.log.javahash import tags_code
from aerobee.hot.log.properties import encode_properties
from aerobee.hot.log.record import Draft, decode_records
from aerobee.model.compression import CompressionType, compress, decompress
from aerobee.model.group import SubscriptionGroupConfig
from aerobee.model.ids import offset_message_id
from aerobee.model.topic import TopicConfig
from aerobee.runtime.clock import SystemClock
from aerobee.runtime.disk import InlineDisk
from aerobee.store.config import StoreConfig
from aerobee.store.index import MessageIndex
from aerobee.store.messagestore import MessageStore
from aerobee.store.metadata.groups import GroupTable
from aerobee.store.metadata.offsets import ConsumerOffsetTable, DelayOffsetTable
from aerobee.store.metadata.topics import TopicTable
from aerobee.store.offline.directory import look_at
from aerobee.store.offline.verify import verify
from aerobee.testing.apache import LEGACY, NEWEST, STORE_SETTINGS, ApacheBroker, ApacheNameServer, JavaDriver
from aerobee.testing.javasession import JavaSession, Jvms
from aerobee.testing.storekit import records_by_key

TOPIC = "Ours"
QUEUES = 3
STORE_HOST = encode_host("127.0.0.1:10911")
CONFIG = StoreConfig(
    max_message_size=512 * 1024,
    mapped_file_size_commit_log=int(str(STORE_SETTINGS["mappedFileSizeCommitLog"])),
    mapped_file_size_consume_queue=int(str(STORE_SETTINGS["mappedFileSizeConsumeQueue"])),
    max_hash_slot_num=int(str(STORE_SETTINGS["maxHashSlotNum"])),
    max_index_num=int(str(STORE_SETTINGS["maxIndexNum"])),
)


def new_store(root: Path) -> MessageStore:
    disk = InlineDisk()
    return MessageStore(str(root), CONFIG, disk, SystemClock(), [MessageIndex(disk, str(root), CONFIG)])


def unique_id(sequence: int) -> str:
    return f"7F00000100002A139A556C1D{sequence:08X}"


def draft(topic: str, queue_id: int, sequence: int, body: bytes, **more: Any) -> Draft:
    """A message as a send would bring it; `more` are properties and `sys_flag`, `born`, `code`."""
    properties = {
        "KEYS": f"k{sequence} all",
        "UNIQ_KEY": unique_id(sequence),
        "TAGS": "ab"[sequence % 2],
        "名": "值😀",
    }
    properties |= more.get("properties", {})
    return Draft(
        topic=topic.encode(),
        queue_id=queue_id,
        flag=sequence,
        sys_flag=more.get("sys_flag", 0),
        born_timestamp=1_700_000_000_000 + sequence,
        born_host=encode_host(more.get("born", "10.0.0.1:5555")),
        store_host=STORE_HOST,
        reconsume_times=0,
        prepared_transaction_offset=0,
        body=body,
        properties=encode_properties(properties),
        tags_code=more.get("code", tags_code(properties["TAGS"])),
        keys=properties["KEYS"],
        uniq_key=properties["UNIQ_KEY"],
    )


def bodies() -> Iterator[bytes]:
    """Empty, small, large ones: over a few segments in all."""
    for sequence in range(400):
        yield hashlib.shake_128(str(sequence).encode()).digest(sequence * 37 % 9000)


def write_messages(root: Path) -> dict[tuple[str, int, int], dict[str, Any]]:
    """Everything a store may hold; (topic, queue, offset) -> what a reader must see."""
    store = new_store(root)
    store.open()
    expected: dict[tuple[str, int, int], dict[str, Any]] = {}

    def put(drafts: list[Draft], plain: list[bytes]) -> None:
        store.append(drafts)
        for each, body in zip(drafts, plain, strict=True):
            expected[each.topic.decode(), each.queue_id, each.queue_offset] = {
                "msgId": each.uniq_key,
                "offsetMsgId": offset_message_id(STORE_HOST, each.physical_offset),
                "bodyHash": hashlib.sha1(body).hexdigest(),
                "keys": each.keys,
                "flag": each.flag,
                "storeTimestamp": each.store_timestamp,
                "storeSize": each.size,
            }

    for sequence, body in enumerate(bodies()):
        kind = (None, *CompressionType)[sequence % 4]
        stored = body if kind is None else compress(body, kind)
        born = "[2001:db8::1]:5555" if sequence % 5 == 0 else "10.0.0.1:5555"
        flag = 0 if kind is None else kind.flag
        put([draft(TOPIC, sequence % QUEUES, sequence, stored, sys_flag=flag, born=born)], [body])
    put([draft("Together", 0, 1000 + i, b"part") for i in range(20)], [b"part"] * 20)
    later = {"DELAY": "1", "REAL_TOPIC": "Later", "REAL_QID": "0"}
    for sequence in range(2000, 2003):
        due = SystemClock().now_ms() + 1000
        store.append([draft("SCHEDULE_TOPIC_XXXX", 0, sequence, b"later", properties=later, code=due)])
    store.close()
    return expected


def write_metadata(root: Path) -> None:
    disk = InlineDisk()
    topics = TopicTable(disk, str(root))
    for name, queues in ((TOPIC, QUEUES), ("Together", 1), ("Later", 1)):
        topics.put(TopicConfig(name, queues, queues), 1)
    topics.save()
    groups = GroupTable(disk, str(root))
    groups.put(SubscriptionGroupConfig("half"), 1)
    groups.save()
    offsets = ConsumerOffsetTable(disk, str(root))
    for queue_id in range(QUEUES):
        offsets.put(TOPIC, "half", queue_id, 60)
    offsets.save()
    delays = DelayOffsetTable(disk, str(root))
    delays.put(1, 0)
    delays.save()


def compared(event: dict[str, Any]) -> dict[str, Any]:
    names = ("msgId", "offsetMsgId", "bodyHash", "keys", "flag", "storeTimestamp", "storeSize")
    return {name: event[name] for name in names}


def pulled(driver: JavaSession, topic: str) -> dict[tuple[str, int, int], dict[str, Any]]:
    events = [event for event in driver.run("pull-all", topic=topic) if event["event"] == "message"]
    found = {(topic, event["queueId"], event["queueOffset"]): compared(event) for event in events}
    assert len(found) == len(events)
    return found


def test_apache_opens_our_store(tmp_path: Path, apache_namesrv: ApacheNameServer, jvms: Jvms) -> None:
    root = tmp_path / "store"
    expected = write_messages(root)
    write_metadata(root)
    assert len(list((root / "commitlog").iterdir())) > 1
    with ApacheBroker(tmp_path / "broker", root, apache_namesrv.address, name="opens-ours") as broker:
        driver = jvms.at(apache_namesrv.address, NEWEST, "JSON")
        legacy = jvms.at(apache_namesrv.address, LEGACY, "JSON")
        read = pulled(driver, TOPIC) | pulled(driver, "Together")
        assert read == expected
        assert pulled(legacy, "Together") == {key: value for key, value in expected.items() if key[0] == "Together"}
        # By key, through the index; by offset id; by the group's saved offsets; scheduled ones delivered.
        by_key = driver.run("query", topic=TOPIC, key="k123")
        assert [event["msgId"] for event in by_key if event["event"] == "message"] == [unique_id(123)]
        taken = driver.run("consume", topic=TOPIC, group="half", expect=400 - 3 * 60, idle_ms=5000)
        offsets = {(event["queueId"], event["queueOffset"]) for event in taken if event["event"] == "message"}
        assert offsets == {(q, o) for _, q, o in expected if o >= 60 and (TOPIC, q, o) in expected}
        later = [event for event in driver.run("pull-all", topic="Later") if event["event"] == "message"]
        assert sorted(event["msgId"] for event in later) == [unique_id(sequence) for sequence in range(2000, 2003)]
        # Apache goes on where we stopped.
        more = [event for event in driver.run("produce", topic=TOPIC, count=30) if event["event"] == "sent"]
        for event in more:
            assert (TOPIC, event["queueId"], event["queueOffset"]) not in expected
            expected[TOPIC, event["queueId"], event["queueOffset"]] = {"bodyHash": event["bodyHash"]}
        broker.stop()
    assert verify(look_at(InlineDisk(), str(root))).findings.problems == []
    found = read_all(root, TOPIC, QUEUES) | read_all(root, "Together", 1)
    assert found == {key: value["bodyHash"] for key, value in expected.items()}


@pytest.mark.parametrize("clean", [True, False], ids=["stopped", "killed"])
def test_our_store_goes_on_after_apache(tmp_path: Path, apache_namesrv: ApacheNameServer, clean: bool) -> None:
    """Apache's directory, opened by MessageStore after an orderly stop and after kill -9; then we append."""
    root = tmp_path / "store"
    expected: dict[tuple[str, int, int], dict[str, Any]] = {}
    with ApacheBroker(tmp_path / "broker", root, apache_namesrv.address, name=f"theirs-{clean}") as broker:
        driver = JavaDriver(tmp_path / "driver", apache_namesrv.address)
        with driver.start("produce", topic=f"Theirs{clean}", count=1500, size=900, keys="key", retries=0) as run:
            run.wait_for_events("sent", 1000)
            if clean:
                assert run.wait() == 0
                broker.stop()
            else:
                broker.kill()
                run.kill()
            sent = run.events("sent")
    for event in sent:
        expected[f"Theirs{clean}", event["queueId"], event["queueOffset"]] = {"bodyHash": event["bodyHash"]}
    store = new_store(root)
    report = store.open()
    assert report.abnormal is not clean
    assert report.damages == []
    assert records_by_key(store, f"Theirs{clean}", "key7")
    # What Apache stored but did not acknowledge may be there too: numbering goes on above it.
    for queue_id in range(4):
        first = store.max_offset(f"Theirs{clean}".encode(), queue_id)
        added = draft(f"Theirs{clean}", queue_id, 1, b"ours now")
        store.append([added])
        assert added.queue_offset == first
        body_hash = hashlib.sha1(b"ours now").hexdigest()
        expected[f"Theirs{clean}", queue_id, added.queue_offset] = {"bodyHash": body_hash}
    store.close()
    assert verify(look_at(InlineDisk(), str(root))).findings.problems == []
    found = read_all(root, f"Theirs{clean}", 4)
    assert {key: found.get(key) for key in expected} == {k: value["bodyHash"] for k, value in expected.items()}


def read_all(root: Path, topic: str, queues: int) -> dict[tuple[str, int, int], str]:
    """Open the store; the hash of every body it serves of a topic."""
    store = new_store(root)
    report = store.open()
    assert not report.abnormal
    assert report.damages == []
    found: dict[tuple[str, int, int], str] = {}
    for queue_id in range(queues):
        offset = store.min_offset(topic.encode(), queue_id)
        while offset < store.max_offset(topic.encode(), queue_id):
            result = store.get_messages(topic.encode(), queue_id, offset)
            if result.cold is not None:
                result = store.fetch_now(result)
            assert result.damaged == 0
            for record in decode_records(b"".join(bytes(buffer) for buffer in result.buffers)):
                body = decompress(record.body, record.sys_flag)
                found[topic, queue_id, record.queue_offset] = hashlib.sha1(body).hexdigest()
            offset = result.next_begin_offset
    store.close()
    return found
