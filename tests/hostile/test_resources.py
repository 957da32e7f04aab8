"""Resources run out and come back: descriptors, disk space. Real processes, raw frames, a small real file system."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import select
import shutil
import signal
import socket
import stat
import struct
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from aerobee.testing.waiting import wait_until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="limits and mounts are Linux's")

SUCCESS = 0
SERVICE_NOT_AVAILABLE = 14
PULL_NOT_FOUND = 19
SEND_MESSAGE_V2 = 310
PULL_MESSAGE = 11
UPDATE_BROKER_CONFIG = 25
GET_BROKER_RUNTIME_INFO = 28
READY_S = 60.0


class Peer:
    """A raw connection: one JSON frame out, one in."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=30)
        self._opaque = 0

    def call(self, code: int, fields: Mapping[str, str] | None = None, body: bytes = b"") -> tuple[int, str, bytes]:
        """Ask; code, remark and body of the answer."""
        self._opaque += 1
        header = {"code": code, "language": "JAVA", "version": 495, "opaque": self._opaque, "flag": 0}
        data = json.dumps({**header, "extFields": dict(fields or {})}).encode()
        self._socket.sendall(struct.pack(">II", 4 + len(data) + len(body), len(data)) + data + body)
        size = int.from_bytes(self._exactly(4), "big")
        frame = self._exactly(size)
        length = int.from_bytes(frame[:4], "big") & 0xFFFFFF
        answer = json.loads(frame[4 : 4 + length])
        return answer["code"], answer.get("remark") or "", frame[4 + length :]

    def _exactly(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            part = self._socket.recv(size - len(data))
            if not part:
                raise ConnectionResetError("the server closed the connection")
            data += part
        return data

    def send(self, body: bytes, topic: str = "T") -> tuple[int, str]:
        fields = {
            "a": "P", "b": topic, "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "1700000000000", "h": "0",
            "i": "KEYS\x01k\x02", "j": "0", "k": "false", "l": "0", "m": "false",
        }  # fmt: skip
        code, remark, _ = self.call(SEND_MESSAGE_V2, fields, body)
        return code, remark

    def pull(self, offset: int, topic: str = "T") -> tuple[int, bytes]:
        fields = {
            "consumerGroup": "G", "topic": topic, "queueId": "0", "queueOffset": str(offset), "maxMsgNums": "32",
            "sysFlag": "4", "commitOffset": "0", "suspendTimeoutMillis": "0", "subscription": "*", "subVersion": "0",
        }  # fmt: skip
        code, _, body = self.call(PULL_MESSAGE, fields)
        return code, body

    def pull_all(self, topic: str = "T", first: int = 0) -> int:
        """How many messages can be read from `first` on."""
        offset = first
        while True:
            code, body = self.pull(offset, topic)
            if code != SUCCESS:
                assert code == PULL_NOT_FOUND, code
                return offset - first
            at = 0
            while at < len(body):
                at += int.from_bytes(body[at : at + 4], "big")
                offset += 1

    def close(self) -> None:
        self._socket.close()


class Broker:
    """A broker process of its own; stopped or killed by whoever leaves the `with`."""

    def __init__(self, directory: Path, log: Path, *, descriptors: int = 0, **settings: str) -> None:
        words = [f"{key}={value}" for key, value in {"listenPort": "0", "brokerIP1": "127.0.0.1", **settings}.items()]
        self.log = log
        self._peers: list[Peer] = []

        def limited() -> None:
            os.umask(0)
            if descriptors:
                resource.setrlimit(resource.RLIMIT_NOFILE, (descriptors, descriptors))

        with log.open("ab") as sink:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "aerobee.testing.serve", "broker", f"storePathRootDir={directory}", *words],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=sink,
                preexec_fn=limited,
            )
        assert self._process.stdout is not None
        is_ready, _, _ = select.select([self._process.stdout], [], [], READY_S)
        line = self._process.stdout.readline().decode() if is_ready else ""
        if not line.startswith("ready "):
            self._kill()
            raise AssertionError(f"the broker did not start:\n{self.log_text()}")
        self.port = int(line.rpartition(":")[2])

    def peer(self) -> Peer:
        """A connection that is closed with the broker."""
        self._peers.append(Peer(self.port))
        return self._peers[-1]

    def log_text(self) -> str:
        return self.log.read_text(errors="replace")

    def open_files(self) -> int:
        return len(os.listdir(f"/proc/{self._process.pid}/fd"))

    def stop(self) -> int:
        """SIGTERM; the exit code."""
        self._process.send_signal(signal.SIGTERM)
        code = self._process.wait(60)
        self._kill()
        return code

    def _kill(self) -> None:
        self._process.kill()
        self._process.wait()
        for peer in self._peers:
            peer.close()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()

    def __enter__(self) -> Broker:
        return self

    def __exit__(self, *_: object) -> None:
        self._kill()


SMALL = {
    "mappedFileSizeCommitLog": str(16 << 20), "mappedFileSizeConsumeQueue": "6000", "maxHashSlotNum": "1000",
    "maxIndexNum": "4000", "flushIntervalConsumeQueue": "50", "brokerFastFailureEnable": "false",
}  # fmt: skip


def test_a_crowd_of_idle_connections_takes_nothing_from_the_store(tmp_path: Path) -> None:
    """Finding 6: at 256 descriptors, 300 idle connections fenced the store for good, without a line in the log."""
    with Broker(tmp_path / "store", tmp_path / "log", descriptors=256, **SMALL) as broker:
        first = broker.peer()
        assert first.send(b"before")[0] == SUCCESS
        crowd: list[socket.socket] = []
        for _ in range(300):
            one = socket.socket()
            one.connect(("127.0.0.1", broker.port))
            crowd.append(one)
        # Rounds of flushing, each with a checkpoint to replace, and new queue files of new topics.
        stored, checkpoints = 1, set[int]()
        while len(checkpoints) < 4:
            for topic in ("T", f"crowded-{stored % 50}"):
                code, remark = first.send(b"meanwhile", topic)
                assert code == SUCCESS, remark
            stored += 1
            checkpoints.add((tmp_path / "store" / "checkpoint").stat().st_mtime_ns)
        assert broker.open_files() < 256
        assert first.pull_all() == stored
        refused = sum(bool(select.select([one], [], [], 0)[0]) and one.recv(1) == b"" for one in crowd)
        assert 100 < refused < 280, refused  # some were let in, the rest closed at once
        for one in crowd:
            one.close()

        def is_served() -> bool:
            with contextlib.suppress(ConnectionError):
                one = Peer(broker.port)
                code = one.send(b"after")[0]
                one.close()
                return code == SUCCESS
            return False

        wait_until(is_served)
        assert first.pull_all() == stored + 1
        assert "fenced" not in broker.log_text()
        assert "there are too many connections" in broker.log_text()
        assert broker.stop() == 0
    assert not (tmp_path / "store" / "abort").exists()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 64 MB."""
    directory = tmp_path / "disk"
    directory.mkdir()
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64m", "none", str(directory)], capture_output=True, check=False
    ) if shutil.which("mount") else None  # fmt: skip
    if made is None or made.returncode:
        pytest.skip("file systems may not be mounted here")
    try:
        yield directory
    finally:
        subprocess.run(["umount", str(directory)], check=True)


def fill(peer: Peer, size: int = 200_000) -> tuple[int, str]:
    """Send until it is refused: how many were stored, and the answer's words."""
    stored = 0
    while True:
        code, remark = peer.send(bytes([stored % 251 + 1]) * size)
        if code != SUCCESS:
            assert code == SERVICE_NOT_AVAILABLE, (code, remark)
            return stored, remark
        stored += 1


def test_a_small_disk_takes_messages_until_it_is_full_and_again_when_space_returns(
    small_disk: Path, tmp_path: Path
) -> None:
    """Finding 14: with segments of 1 GiB every send was refused at 0 % used, and a stop filled the disk to the brim."""
    filler = small_disk / "filler"
    filler.write_bytes(bytes(20 << 20))
    settings = {"cleanResourceInterval": "200", "brokerFastFailureEnable": "false"}
    with Broker(small_disk / "store", tmp_path / "log", **settings) as broker:
        peer = broker.peer()
        stored, remark = fill(peer)
        assert "disk is full" in remark
        assert 30 << 20 < stored * 200_000 < 44 << 20
        assert peer.pull_all() == stored  # readers go on
        filler.unlink()
        wait_until(lambda: peer.send(b"space is back")[0] == SUCCESS)
        stored += 1
        again, _ = fill(peer)
        stored += again
        assert again * 200_000 > 10 << 20
        for number in range(200):
            peer.send(b"x", f"more-{number}")  # refused: nothing may eat what a stop needs
        assert peer.pull_all() == stored
        assert broker.stop() == 0
    for _ in range(2):
        with Broker(small_disk / "store", tmp_path / "log", **settings) as broker:
            peer = broker.peer()
            assert peer.pull_all() == stored
            assert broker.stop() == 0
    assert "fenced" not in (tmp_path / "log").read_text()


def test_a_disk_that_others_filled_to_the_last_byte_is_told_and_recovered_from(
    small_disk: Path, tmp_path: Path
) -> None:
    settings = {"cleanResourceInterval": "200", **SMALL}
    with Broker(small_disk / "store", tmp_path / "log", **settings) as broker:
        peer = broker.peer()
        assert peer.send(b"first")[0] == SUCCESS
        with contextlib.suppress(OSError), (small_disk / "filler").open("wb", buffering=0) as filler:
            while True:
                filler.write(bytes(65536))
        stored, remark = fill(peer)
        assert "disk" in remark
        stored += 1
        assert peer.pull_all() == stored
        (small_disk / "filler").unlink()
        wait_until(lambda: peer.send(b"again")[0] == SUCCESS)
        assert peer.pull_all() == stored + 1
        assert broker.stop() == 0
    assert "fenced" not in (tmp_path / "log").read_text()


def test_what_forced_cleaning_removes_is_said_loudly(small_disk: Path, tmp_path: Path) -> None:
    settings = {**SMALL, "mappedFileSizeCommitLog": str(8 << 20), "cleanResourceInterval": "100"}
    with Broker(small_disk / "store", tmp_path / "log", **settings) as broker:
        peer = broker.peer()

        def is_cleaned() -> bool:
            for _ in range(20):
                peer.send(bytes(200_000))
            return not (small_disk / "store" / "commitlog" / f"{0:020d}").exists()

        wait_until(is_cleaned)
        line = next(line for line in broker.log_text().splitlines() if "deleted to make room" in line)
        assert " WARN " in line
        assert f"{0:020d}" in line
        assert f"end_offset={8 << 20}" in line
        assert "cleanFileForciblyEnable" in line
        assert "of the disk is in use" in line
        assert broker.stop() == 0


def test_what_a_broker_makes_is_its_owners_alone(tmp_path: Path) -> None:
    """Finding 13. The umask of these brokers is 0."""
    own = tmp_path / "made-by-the-user"
    own.mkdir(mode=0o755)
    own.chmod(0o755)
    for root in (own, tmp_path / "a" / "b" / "store"):
        with Broker(root, tmp_path / "log", **SMALL) as broker:
            assert broker.peer().send(b"secret")[0] == SUCCESS
            assert broker.stop() == 0
    assert stat.S_IMODE(own.stat().st_mode) == 0o755
    made = [tmp_path / "a", *own.rglob("*"), *(tmp_path / "a").rglob("*")]
    assert len(made) > 30
    wrong = [
        (path, oct(mode))
        for path in made
        if (mode := stat.S_IMODE(path.stat().st_mode)) != (0o700 if path.is_dir() else 0o600)
    ]
    assert wrong == []


@pytest.mark.parametrize("command", ["broker", "namesrv", "up"])
@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("aclEnable=true", "does nothing any more"),
        ("authorizationEnabled = TRUE", "authorizationEnabled needs authenticationEnabled=true"),
        ("authenticationWhitelist=10", "10 may not be left unchecked"),
        ("authenticationProvider=org.example.Mine", "no Java class is run here"),
        ("authSecretsKeyFile=/etc/key", "passwords are not encrypted"),
    ],
)
def test_security_key_stops_the_start(command: str, setting: str, words: str, tmp_path: Path) -> None:
    """Test 1 of the study: a security key that is not understood must not leave a server open."""
    conf = tmp_path / "server.conf"
    conf.write_text(setting + "\n")
    given = ["-c", str(conf)]
    if command == "up":
        given = ["--set", setting.replace(" ", "")]
    if command != "namesrv":  # whatever happens, not in the home of whoever runs this
        given += ["--set", f"storePathRootDir={tmp_path / 'store'}"]
    done = subprocess.run(
        [sys.executable, "-m", "aerobee", command, *given], capture_output=True, text=True, timeout=20, check=False
    )
    assert done.returncode == 2, done
    assert setting.partition("=")[0].strip() in done.stderr
    assert words in " ".join(done.stderr.split())


def test_access_control_cannot_be_switched_on_over_the_wire(tmp_path: Path) -> None:
    with Broker(tmp_path / "store", tmp_path / "log", **SMALL) as broker:
        peer = broker.peer()
        code, remark, _ = peer.call(UPDATE_BROKER_CONFIG, body=b"aclEnable=true\n")
        assert code != SUCCESS
        assert "does nothing any more" in remark
        for body in (b"authenticationEnabled=true\n", b"authorizationEnabled=false\n"):
            code, remark, _ = peer.call(UPDATE_BROKER_CONFIG, body=body)
            assert code != SUCCESS
            assert "read at the start only" in remark
