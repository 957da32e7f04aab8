"""A backup is taken while a broker writes, and restored: nothing below the mark is lost, and numbering goes on."""

from __future__ import annotations

import json
import shutil
import threading
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from aerobee import MessageQueue, SendReceipt, sync
from aerobee.cli.main import main
from aerobee.runtime.disk import InlineDisk
from aerobee.store.durablemark import DurableMark
from aerobee.testing.cluster import LocalCluster
from aerobee.testing.secrets import secret_for
from aerobee.testing.waiting import wait_until

TOPIC = "orders"
# Small segments, so that some fill up while a backup runs.
SMALL = {"mappedFileSizeCommitLog": str(1 << 20), "maxMessageSize": "65536", "mappedFileSizeConsumeQueue": "20000"}


def aerobee(*words: str, expected: int = 0) -> Result:
    result = CliRunner().invoke(main, list(words))
    assert result.exit_code == expected, (words, result.output, result.stderr)
    return result


class Writer:
    """Sends to every queue until it is stopped, and keeps the receipts."""

    def __init__(self, namesrv: str) -> None:
        self.receipts: list[SendReceipt] = []
        self._namesrv = namesrv
        self._stop = threading.Event()
        self._grown = threading.Condition()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Writer:
        self._thread.start()
        return self

    def __exit__(self, *details: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        with sync.Producer(self._namesrv) as producer:
            while not self._stop.is_set():
                number = len(self.receipts)
                receipt = producer.send(TOPIC, b"%06d" % number + bytes(2000), keys=f"k{number}")
                with self._grown:
                    self.receipts.append(receipt)
                    self._grown.notify_all()

    def wait_for(self, count: int) -> None:
        with self._grown:
            assert self._grown.wait_for(lambda: len(self.receipts) >= count, 60)


def synced(store: Path) -> int:
    """Return how far the broker notes the log to be synced."""
    mark = DurableMark(InlineDisk(), str(store / "config"))
    mark.peek()
    return mark.offset


def bodies(namesrv: str) -> dict[tuple[int, int], bytes]:
    """Return the beginnings of all bodies by queue and offset."""
    found = {}
    with sync.LitePullConsumer(namesrv, group="TOOLS_CONSUMER", auto_commit=False) as reader:
        for queue in reader.queues(TOPIC):
            offset, end = reader.begin_offset(queue), reader.end_offset(queue)
            while offset < end:
                pulled = reader.pull(queue, offset, max=32)
                found.update({(queue.queue_id, one.queue_offset): one.body[:6] for one in pulled.messages})
                offset = pulled.next_offset
    return found


def test_backup_while_writing(tmp_path: Path) -> None:
    place, restored = tmp_path / "backup", tmp_path / "restored"
    with LocalCluster(data=tmp_path / "data", settings=SMALL) as cluster:
        store = tmp_path / "data" / cluster.broker_name(0)
        cluster.create_topic(TOPIC, 4)
        with sync.Admin(cluster.namesrv) as admin:
            admin.groups.create("billing")
        with sync.LitePullConsumer(cluster.namesrv, group="billing") as puller, Writer(cluster.namesrv) as writer:
            puller.commit({MessageQueue(TOPIC, cluster.broker_name(0), 0): 7})
            saved = store / "config" / "consumerOffset.json"
            wait_until(lambda: saved.exists() and "orders@billing" in saved.read_text())
            writer.wait_for(1500)
            first = json.loads(aerobee("store", "backup", str(store), "--to", str(place), "--json").stdout)
            assert first["linked"] >= 1 and first["mark"] > 1 << 20
            seen = len(writer.receipts)
            newest = max(first["mark"], int(writer.receipts[seen - 1].offset_id[16:], 16))
            # The log is synced twice a second, if the disk keeps up.
            wait_until(lambda: len(writer.receipts) > seen + 600 and synced(store) > newest)
            second = json.loads(aerobee("store", "backup", str(store), "--to", str(place), "--json").stdout)
            writer.wait_for(len(writer.receipts) + 50)
        assert second["kept"] >= first["linked"] and second["mark"] > first["mark"]
        said = aerobee("store", "verify", str(place)).stdout
        assert "every file is as it was" in said
        whole = bodies(cluster.namesrv)
        offsets = {receipt.message_id: receipt for receipt in writer.receipts}
        below = {
            (one.queue_id, one.queue_offset) for one in offsets.values() if int(one.offset_id[16:], 16) < second["mark"]
        }
    assert len(below) > seen
    again = restored / "broker-a"
    aerobee("store", "restore", str(place), "--to", str(again))
    with LocalCluster(data=restored, settings=SMALL) as cluster:
        found = bodies(cluster.namesrv)
        # Every message below the mark is there, and nothing that never was.
        assert below <= found.keys()
        assert {key: whole[key] for key in found} == found
        ends = {queue: 1 + max(offset for one, offset in found if one == queue) for queue in range(4)}
        with sync.Admin(cluster.namesrv) as admin:
            assert {one.queue_id: one.consumer_offset for one in admin.groups.lag("billing").queues}[0] == 7
            assert admin.messages.find(TOPIC, key="k3").messages[0].body[:6] == b"000003"
        with sync.Producer(cluster.namesrv) as producer:
            for queue, end in ends.items():
                where = MessageQueue(TOPIC, cluster.broker_name(0), queue)
                assert producer.send(TOPIC, b"after", queue=where).queue_offset == end
    assert aerobee("store", "verify", str(again)).exit_code == 0
    # The backup shares nothing with the store that was restored from it.
    assert "every file is as it was" in aerobee("store", "verify", str(place)).stdout


@pytest.fixture
def stopped(tmp_path: Path) -> Path:
    """Return the store of a broker that was stopped, with some messages."""
    with LocalCluster(data=tmp_path / "data", settings=SMALL) as cluster:
        cluster.create_topic(TOPIC, 1)
        with sync.Producer(cluster.namesrv) as producer:
            for number in range(900):
                producer.send(TOPIC, b"%06d" % number + bytes(2000))
        return tmp_path / "data" / cluster.broker_name(0)


def test_a_stopped_store_is_kept_to_its_end(stopped: Path, tmp_path: Path) -> None:
    place = tmp_path / "backup"
    made = json.loads(aerobee("store", "backup", str(stopped), "--to", str(place), "--copy", "--json").stdout)
    assert made["linked"] == 0 and made["copied"] >= 2
    aerobee("store", "restore", str(place), "--to", str(tmp_path / "again" / "broker-a"))
    with LocalCluster(data=tmp_path / "again", settings=SMALL) as cluster:
        assert len(bodies(cluster.namesrv)) == 900


def test_damage_is_named_and_never_restored(stopped: Path, tmp_path: Path) -> None:
    place, target = tmp_path / "backup", tmp_path / "target"
    aerobee("store", "backup", str(stopped), "--to", str(place), "--copy")
    segment = min((place / "commitlog").iterdir())
    data = bytearray(segment.read_bytes())
    data[5000] ^= 1
    segment.write_bytes(data)
    told = aerobee("store", "verify", str(place), expected=1).stdout
    assert f"commitlog/{segment.name} has other content" in told
    refused = aerobee("store", "restore", str(place), "--to", str(target), expected=1)
    assert "has other content" in refused.stderr
    assert not (target / "commitlog").exists()
    segment.unlink()
    assert "is missing" in aerobee("store", "verify", str(place), expected=1).stdout


def test_what_cannot_be_a_place_is_refused(stopped: Path, tmp_path: Path) -> None:
    full = tmp_path / "full"
    full.mkdir()
    (full / "mine").write_text("x")
    for place in (stopped, stopped / "inside", stopped.parent, full):
        assert "error: " in aerobee("store", "backup", str(stopped), "--to", str(place), expected=1).stderr
    # The same store under another name.
    (tmp_path / "link").symlink_to(stopped)
    inside = stopped / "config" / "inside"
    refused = aerobee("store", "backup", str(tmp_path / "link"), "--to", str(inside), expected=1)
    assert "lie in each other" in refused.stderr and not inside.exists()
    assert (full / "mine").read_text() == "x"
    place = tmp_path / "backup"
    aerobee("store", "backup", str(stopped), "--to", str(place))
    assert "not an empty" in aerobee("store", "restore", str(place), "--to", str(full), expected=1).stderr
    assert aerobee("store", "restore", str(full), "--to", str(tmp_path / "x"), expected=2)
    other = tmp_path / "other"
    shutil.copytree(stopped, other)
    assert (
        "needs a directory of its own" in aerobee("store", "backup", str(other), "--to", str(place), expected=1).stderr
    )


@pytest.mark.parametrize("path", ["../outside", "/etc/passwd", "config/../../x", "", "commitlog//x"])
def test_a_manifest_leads_nowhere_else(stopped: Path, tmp_path: Path, path: str) -> None:
    place = tmp_path / "backup"
    aerobee("store", "backup", str(stopped), "--to", str(place))
    manifest = json.loads((place / "backup.json").read_text())
    manifest["files"][-1]["restored"] = path
    (place / "backup.json").write_text(json.dumps(manifest))
    assert aerobee("store", "restore", str(place), "--to", str(tmp_path / "x"), expected=1)
    assert not (tmp_path / "x").exists()
    (place / "backup.json").write_text("[" * 100_000)
    assert "cannot be read" in aerobee("store", "verify", str(place), expected=1).stderr


def put_users(directory: Path) -> None:
    (directory / "users.json").touch(0o600)
    (directory / "users.json").write_text(json.dumps({"joe": secret_for("joe")}))


def test_secrets_stay_behind_unless_asked_for(stopped: Path, tmp_path: Path) -> None:
    put_users(stopped / "config")
    one, two = tmp_path / "one", tmp_path / "two"
    assert "users.json were left out" in aerobee("store", "backup", str(stopped), "--to", str(one)).stderr
    assert not list(one.rglob("users.json"))
    aerobee("store", "backup", str(stopped), "--to", str(two), "--with-secrets")
    assert [path.stat().st_mode & 0o077 for path in two.rglob("users.json")] == [0]


def test_what_a_backup_that_was_cut_off_has_left_is_gone(stopped: Path, tmp_path: Path) -> None:
    """It was made with secrets, and killed before it was whole; the next one is made without."""
    put_users(stopped / "config")
    place = tmp_path / "backup"
    left = place / "state-1" / "config"
    left.mkdir(parents=True)
    put_users(left)
    aerobee("store", "backup", str(stopped), "--to", str(place))
    assert not list(place.rglob("users.json"))
    assert "every file is as it was" in aerobee("store", "verify", str(place)).stdout


def test_two_backups_into_one_place_are_refused(stopped: Path, tmp_path: Path) -> None:
    place = tmp_path / "backup"
    aerobee("store", "backup", str(stopped), "--to", str(place))
    held = InlineDisk().lock(str(place / "lock"))
    try:
        told = aerobee("store", "backup", str(stopped), "--to", str(place), expected=1).stderr
        assert "another backup" in told
    finally:
        held.release()
    aerobee("store", "backup", str(stopped), "--to", str(place))
    assert "every file is as it was" in aerobee("store", "verify", str(place)).stdout
