"""A store that Apache's broker wrote, read here: after an orderly stop, and after kill -9 amid sends."""

import hashlib
import json
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from aerobee.hot.log.record import ZERO, Draft, decode_record
from aerobee.hot.log.units import decode_units
from aerobee.model.compression import decompress
from aerobee.model.dialect import dumps, loads
from aerobee.model.ids import decode_offset_message_id
from aerobee.runtime.disk import InlineDisk
from aerobee.store.checkpoint import decode_checkpoint
from aerobee.store.config import StoreConfig
from aerobee.store.segment import LogReader, PieceKind, scan
from aerobee.testing.apache import LEGACY, NEWEST, STORE_SETTINGS, ApacheBroker, ApacheNameServer, JavaDriver
from aerobee.testing.javasession import JavaSession, Jvms

RUN_LIMIT_S = 120


@dataclass
class Written:
    """A store directory and what Apache's clients were told of it."""

    store: Path
    sent: dict[str, list[dict[str, Any]]] = field(default_factory=dict)

    def produce(self, driver: JavaSession, topic: str, **options: object) -> None:
        events = driver.run("produce", within_s=RUN_LIMIT_S, topic=topic, **options)
        sent = [event for event in events if event["event"] == "sent"]
        assert len(sent) == options["count"]
        assert {event["status"] for event in sent} == {"SEND_OK"}
        self.sent.setdefault(topic, []).extend(sent)


def segment_reader(store: Path) -> LogReader:
    return LogReader(InlineDisk(), str(store / "commitlog"))


def scanned(store: Path) -> list[Draft]:
    """Every record of the log; any damage fails the test."""
    reader = segment_reader(store)
    levels = StoreConfig().delay_levels_ms
    drafts: list[Draft] = []
    for piece in scan(reader, reader.start, reader.stop, delay_levels_ms=levels):
        # Zeros to the end of the last file are where the log ends.
        ends = piece.end == -1 and piece.reason == ZERO
        assert ends or piece.kind is not PieceKind.DAMAGE, piece
        drafts += piece.drafts
    reader.close()
    return drafts


def require_sent(written: Written) -> None:
    """Each acknowledged message lies where its offset id says, with its queue offset and body."""
    reader = segment_reader(written.store)
    for topic, sent in written.sent.items():
        for event in sent:
            place = decode_offset_message_id(event["offsetMsgId"]).physical_offset
            size = int.from_bytes(reader.read(place, 4), "big")
            record = decode_record(reader.read(place, size), 0)
            assert record.topic.decode() == topic
            assert (record.queue_id, record.queue_offset) == (event["queueId"], event["queueOffset"])
            body = decompress(record.body, record.sys_flag)
            assert hashlib.sha1(body).hexdigest() == event["bodyHash"]
    reader.close()


def aerobee(*arguments: str) -> str:
    """Our command; it must find everything sound (exit 0)."""
    command = [str(Path(sys.executable).parent / "aerobee"), "store", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=RUN_LIMIT_S, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def require_verified(store: Path, records: int) -> None:
    """`aerobee store verify` finds every record, every unit and every index entry of Apache's sound."""
    report = json.loads(aerobee("verify", str(store), "--json"))
    assert report["verdict"] == "sound"
    assert report["findings"]["problems"] == []
    assert report["records"] == records
    assert report["index_entries"] > 0


def require_dumped(written: Written, records: int) -> None:
    """`aerobee store dump` shows every record, and every acknowledged message with its body."""
    dumped = [json.loads(line) for line in aerobee("dump", str(written.store), "--decompress").splitlines()]
    assert len(dumped) == records
    by_place = {(line["topic"], line["queue_id"], line["queue_offset"]): line for line in dumped}
    for topic, sent in written.sent.items():
        for event in sent:
            line = by_place[topic, event["queueId"], event["queueOffset"]]
            assert line["body_encoding"] == "utf-8"
            assert hashlib.sha1(line["body"].encode()).hexdigest() == event["bodyHash"]
            assert (line["message_id"], line["tags"], line["keys"]) == (
                event["msgId"],
                event["tags"] or "",
                event["keys"] or "",
            )


def queue_units(store: Path) -> dict[tuple[str, int], list[tuple[int, int, int]]]:
    """The units of every queue file, up to the first empty one."""
    queues: dict[tuple[str, int], list[tuple[int, int, int]]] = {}
    for file in sorted((store / "consumequeue").glob("*/*/*")):
        content = file.read_bytes()
        assert len(content) == STORE_SETTINGS["mappedFileSizeConsumeQueue"]
        units = [unit for unit in decode_units(content) if unit[1] > 0]
        queues.setdefault((file.parent.parent.name, int(file.parent.name)), []).extend(units)
    return queues


def expected_units(drafts: list[Draft]) -> dict[tuple[str, int], list[tuple[int, int, int]]]:
    queues: dict[tuple[str, int], list[tuple[int, int, int]]] = {}
    for draft in drafts:
        unit = (draft.physical_offset, draft.size, draft.tags_code)
        queues.setdefault((draft.topic.decode(), draft.queue_id), []).append(unit)
    return queues


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory, apache_namesrv: ApacheNameServer, jvms: Jvms) -> Written:
    """Every kind of message a client can send, by the newest and the 4.9 client, then an orderly stop."""
    work = tmp_path_factory.mktemp("apache-store")
    result = Written(work / "store")
    with ApacheBroker(work / "broker", result.store, apache_namesrv.address) as broker:
        driver = jvms.at(apache_namesrv.address, NEWEST, "JSON")
        legacy = jvms.at(apache_namesrv.address, LEGACY, "ROCKETMQ")
        result.produce(driver, "Plain", count=100, tags="TagA,TagB,标签😀", keys="key", properties=True)
        result.produce(legacy, "Plain", count=50, tags="TagA", keys="old")
        result.produce(driver, "Batch", count=30, batch=10)
        result.produce(driver, "Packed", count=10, size=8000, compress=1000)
        result.produce(legacy, "Packed", count=10, size=8000, compress=1000)
        result.produce(driver, "Large", count=600, size=4000, compress=100000)
        driver.run("produce", topic="Delayed", count=5, delay=1)
        taken = driver.run("consume", topic="Plain", group="group", expect=150, limit_ms=60000)
        assert [event["count"] for event in taken if event["event"] == "done"] == [150]
        broker.stop()
    return result


def test_after_an_orderly_stop(written: Written) -> None:
    drafts = scanned(written.store)
    assert len(list((written.store / "commitlog").iterdir())) > 2
    assert {draft.topic.decode() for draft in drafts} >= {
        "Plain",
        "Batch",
        "Packed",
        "Large",
        "SCHEDULE_TOPIC_XXXX",
    }
    require_sent(written)
    require_verified(written.store, len(drafts))
    require_dumped(written, len(drafts))
    assert queue_units(written.store) == expected_units(drafts)
    assert not (written.store / "abort").exists()
    checkpoint, problems = decode_checkpoint((written.store / "checkpoint").read_bytes())
    assert problems == []
    # A broker that stops within its first minute leaves 0 here: the queues' thorough flush sets it.
    assert checkpoint.logics_physical_offset in (0, *(draft.physical_offset for draft in drafts))
    assert checkpoint.physic_msg_timestamp <= drafts[-1].store_timestamp


def test_config_files_read_and_written_alike(written: Written) -> None:
    for name in ("topics", "subscriptionGroup", "consumerOffset", "delayOffset"):
        content = (written.store / "config" / f"{name}.json").read_bytes()
        assert dumps(loads(content), pretty=True) == content
    offsets = loads((written.store / "config" / "consumerOffset.json").read_bytes())["offsetTable"]
    assert sum(offsets["Plain@group"].values()) == 150


def test_after_kill(written: Written, tmp_path: Path, apache_namesrv: ApacheNameServer) -> None:
    """A process that dies leaves its written pages: every acknowledged message is there, nothing is torn."""
    with ApacheBroker(tmp_path / "broker", written.store, apache_namesrv.address) as broker:
        driver = JavaDriver(tmp_path / "driver", apache_namesrv.address)
        with driver.start("produce", topic="Killed", count=100000, size=500, retries=0) as run:
            run.wait_for_events("sent", 300, timeout_s=RUN_LIMIT_S)
            # While the broker is writing: read-only, up to where the log was.
            live = json.loads(aerobee("verify", str(written.store), "--json"))
            assert live["is_live"]
            assert live["records"] > 300
            broker.kill()
            run.kill()
            sent = run.events("sent")
    assert (written.store / "abort").exists()
    written.sent["Killed"] = [event for event in sent if event["status"] == "SEND_OK"]
    assert len(written.sent["Killed"]) >= 300
    drafts = scanned(written.store)
    require_sent(written)
    require_verified(written.store, len(drafts))
    require_dumped(written, len(drafts))
    expected = expected_units(drafts)
    for queue, units in queue_units(written.store).items():
        # Dispatch may have been behind the log.
        assert units == expected[queue][: len(units)]
