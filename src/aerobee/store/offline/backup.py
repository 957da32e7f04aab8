"""Backups of a store: taken while a broker writes it, checked, and restored.

A backup is a directory that this module owns:

    backup.json            what belongs to it: each file with its size and SHA-256, and the mark where the log ends
    lock                   held while a backup is made
    commitlog/<offset>     whole segments; a later backup into the same directory keeps them, and gives one that was
                           written anew another name: <offset>.<n>
    state-<n>/config/...   the state files; state-<n>/<offset>  the last segment, up to the mark

`backup.json` is replaced last. So a backup that stops half-way leaves the one before it as it was.

Only what cannot be built from the log is kept: queues, index and timers are built again at the first start. State is
copied before the mark is read, so that no consumer's offset is beyond the log.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from aerobee.errors import StoreError, StoreLockedError
from aerobee.model.fields import list_of, map_of, str_of, whole_of
from aerobee.runtime.seams import DirLock, Disk, File
from aerobee.store.copies import MANIFEST, RESTORING
from aerobee.store.diskrules import sync_directory, sync_file
from aerobee.store.durablemark import DurableMark
from aerobee.store.offline.directory import StoreDirectory
from aerobee.store.offline.inspect import inspect
from aerobee.store.offline.problems import CannotLookError, Progress
from aerobee.store.readonly import REPLICA_FILE
from aerobee.store.segment import SegmentFile, parse_segment_name, segment_name

FORMAT: Final = 1
_LOCK: Final = "lock"
_CHUNK: Final = 1 << 20
_MANIFEST_MAX: Final = 64 << 20
_STEADY_TRIES: Final = 50
_TAIL_BLOCK: Final = 64 << 10
_TAIL_BLOCKS: Final = 2
# What must not change between the copy of the state and the mark: the log would tell of other topics than the state.
_STEADY: Final = ("topics.json", "subscriptionGroup.json", "deletedTopics.json")
# A restored store must not take itself for what it was copied from: the mark of the disk, the identity of a replica.
_LEFT_OUT: Final = ("durableMark", "replica")
SECRETS: Final = ("users.json", "acls.json")

# Makes a second name for a file and returns True, or returns False where the file system cannot.
Link = Callable[[str, str], bool]


class BackupError(StoreError):
    """A backup cannot be made, is damaged, or cannot be restored."""


@dataclass(frozen=True, slots=True)
class BackedUpFile:
    """One file of a backup. `path` is below the backup, `restored` below the store, `tail` the hash of its end."""

    path: str
    restored: str
    size: int
    sha256: str
    tail: str = ""

    def to_json(self) -> dict[str, object]:
        value = {"path": self.path, "restored": self.restored, "size": self.size, "sha256": self.sha256}
        return {**value, "tail": self.tail} if self.tail else value


@dataclass(frozen=True, slots=True)
class BackupManifest:
    """What a backup holds. The log is that from `log_start` to `mark`."""

    made_ms: int
    source: str
    release: str
    turn: int
    log_start: int
    mark: int
    segment_size: int
    files: tuple[BackedUpFile, ...]
    left_out: tuple[str, ...] = ()

    def encode(self) -> bytes:
        value = {
            "format": FORMAT, "madeMs": self.made_ms, "source": self.source, "release": self.release,
            "turn": self.turn, "logStart": self.log_start, "mark": self.mark, "segmentSize": self.segment_size,
            "leftOut": list(self.left_out), "files": [one.to_json() for one in self.files],
        }  # fmt: skip
        return json.dumps(value, indent=1).encode()

    @property
    def size(self) -> int:
        return sum(one.size for one in self.files)


@dataclass(slots=True)
class BackupReport:
    """What a backup did."""

    manifest: BackupManifest
    linked: int = 0
    copied: int = 0
    kept: int = 0
    bytes_copied: int = 0
    secrets_left_out: tuple[str, ...] = ()


@dataclass(slots=True)
class BackupCheck:
    """What a look at a backup found."""

    manifest: BackupManifest
    problems: list[str] = field(default_factory=list)
    bytes_read: int = 0


def read_manifest(disk: Disk, place: str) -> BackupManifest | None:
    """Return what a backup holds, or None where there is none. Raise BackupError where it cannot be read."""
    path = f"{place}/{MANIFEST}"
    try:
        file = disk.open(path, write=False)
    except (FileNotFoundError, NotADirectoryError):
        return None
    try:
        data = json.loads(file.read(0, min(file.size(), _MANIFEST_MAX)))
        if data["format"] != FORMAT:
            raise BackupError(f"{path} has format {data['format']}", hint="use the version of Aerobee that made it")
        files = tuple(_kept(one) for one in list_of(data, "files"))
        return BackupManifest(
            whole_of(data["madeMs"]), str_of(data, "source"), str_of(data, "release"), whole_of(data["turn"]),
            whole_of(data["logStart"]), whole_of(data["mark"]), whole_of(data["segmentSize"]), files,
            tuple(str(one) for one in list_of(data, "leftOut")),
        )  # fmt: skip
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise BackupError(f"{path} cannot be read: {error}", hint="the backup before it may be whole") from None
    finally:
        file.close()


def _kept(value: Any) -> BackedUpFile:
    data: Mapping[str, Any] = map_of({"file": value}, "file")
    size = whole_of(data["size"])
    tail = str_of(data, "tail") if "tail" in data else ""
    one = BackedUpFile(str_of(data, "path"), str_of(data, "restored"), size, str_of(data, "sha256"), tail)
    for path in (one.path, one.restored):
        # The manifest may come from anywhere: no name of it leads out of the directory.
        if not path or path.startswith("/") or "\\" in path or any(part in ("", ".", "..") for part in path.split("/")):
            raise ValueError(f"{path!r} is not a path inside a backup")
    return one


# ---- make ----


class _Maker:
    def __init__(self, store: StoreDirectory, place: str, link: Link, progress: Progress) -> None:
        self.store = store
        self.disk = store.disk
        self.place = place
        # A replica that gives up the end of its log writes into the segment, and so into every other name of it.
        self.link: Link = (lambda source, target: False) if store.disk.exists(f"{store.root}/{REPLICA_FILE}") else link
        self.progress = progress
        self.before = read_manifest(self.disk, place)
        self.turn = self.before.turn + 1 if self.before is not None else 1
        self.state = f"state-{self.turn}"
        self.known = {one.restored: one for one in self.before.files} if self.before is not None else {}
        self.linked = self.copied = self.kept = self.bytes_copied = 0

    def whole_segment(self, segment: SegmentFile) -> BackedUpFile | None:
        """Keep a segment that is full. Return None where retention has deleted it meanwhile."""
        restored = path = f"commitlog/{segment_name(segment.start)}"
        known = self.known.get(restored)
        try:
            # A replica that gave up the end of its log writes the rest of the segment anew, under the same name.
            tail = self._tail(segment.path)
            if known is not None and (known.size, known.tail) == (segment.size, tail):
                if self._has(f"{self.place}/{known.path}", segment.size):
                    self.kept += 1
                    return known
            if known is not None and known.path == path:
                # Until this backup counts, the one before it needs its own.
                path = f"{path}.{self.turn}"
            target = f"{self.place}/{path}"
            if self.disk.exists(target):
                self.disk.unlink(target)
            if self.link(segment.path, target):
                self.linked += 1
                return BackedUpFile(path, restored, segment.size, self._digest(target), tail)
            return BackedUpFile(path, restored, segment.size, self._copy(segment.path, target, segment.size), tail)
        except FileNotFoundError:
            return None

    def _tail(self, path: str) -> str:
        """Return the hash of the last two blocks that are not empty: what was written anew differs there."""
        file = self.disk.open(path, write=False)
        try:
            digest, found, end = hashlib.sha256(), 0, file.size()
            while end > 0 and found < _TAIL_BLOCKS:
                start = max(0, end - _TAIL_BLOCK)
                block = file.read(start, end - start)
                if block.count(0) != len(block):
                    digest.update(block)
                    found += 1
                end = start
            return digest.hexdigest()
        finally:
            file.close()

    def _has(self, path: str, size: int) -> bool:
        try:
            file = self.disk.open(path, write=False)
        except FileNotFoundError:
            return False
        try:
            return file.size() == size
        finally:
            file.close()

    def _digest(self, path: str) -> str:
        file = self.disk.open(path, write=False)
        try:
            digest = hashlib.sha256()
            for chunk in _chunks(file, file.size()):
                digest.update(chunk)
                self.progress(len(chunk), 0)
            return digest.hexdigest()
        finally:
            file.close()

    def _copy(self, source: str, target: str, size: int) -> str:
        """Copy the first `size` bytes. The copy is synced, and nobody sees it under its name before that."""
        read = self.disk.open(source, write=False)
        try:
            digest = copy_into(self.disk, read, target, size, lambda done: self.progress(done, 0))
        finally:
            read.close()
        self.copied += 1
        self.bytes_copied += size
        return digest

    def part_of_segment(self, segment: SegmentFile, end: int) -> BackedUpFile:
        """Keep the last segment up to the mark."""
        name = segment_name(segment.start)
        path = f"{self.state}/{name}"
        digest = self._copy(segment.path, f"{self.place}/{path}", end - segment.start)
        return BackedUpFile(path, f"commitlog/{name}", end - segment.start, digest)

    def configs(self, with_secrets: bool) -> tuple[dict[str, bytes], list[str]]:
        """Return the state files, and the secrets that were left out."""
        found: dict[str, bytes] = {}
        left_out = []
        root = self.store.path("config")
        for name in self.disk.listdir(root):
            stem = name.removesuffix(".bak")
            if stem in _LEFT_OUT or stem.startswith("replica.") or name.endswith(".tmp"):
                continue
            if stem in SECRETS and not with_secrets:
                left_out.append(name)
                continue
            if not self.disk.is_dir(f"{root}/{name}") and self.disk.exists(f"{root}/{name}"):
                found[name] = self.store.read(f"{root}/{name}")
        return found, left_out


def make_backup(
    store: StoreDirectory,
    place: str,
    *,
    now_ms: int,
    release: str,
    link: Link,
    with_secrets: bool = False,
    progress: Progress = lambda done, total: None,
) -> BackupReport:
    """Back up a store into `place`, which is empty or holds an earlier backup of the same store.

    A running store is kept up to what was synced when its state was read; a stopped one up to its end.
    """
    disk = store.disk
    place = place.rstrip("/") or "/"
    _require_place(store, place)
    _make_durably(disk, place)
    lock: DirLock | None = None
    try:
        lock = disk.lock(f"{place}/{_LOCK}")
    except StoreLockedError:
        raise BackupError(f"another backup into {place} is running", hint="wait until it is done") from None
    except OSError as error:
        # File systems of other machines may have no locks.
        if error.errno not in (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP):
            raise
    try:
        return _made(store, place, now_ms, release, link, with_secrets, progress)
    finally:
        if lock is not None:
            lock.release()


def _made(
    store: StoreDirectory, place: str, now_ms: int, release: str, link: Link, with_secrets: bool, progress: Progress
) -> BackupReport:
    disk = store.disk
    maker = _Maker(store, place, link, progress)
    _require_same_store(maker)
    # Left by a backup that did not end: it may hold secrets that this one leaves out.
    if disk.exists(f"{place}/{maker.state}"):
        _remove_tree(disk, f"{place}/{maker.state}")
    disk.make_dirs(f"{place}/commitlog")
    disk.make_dirs(f"{place}/{maker.state}/config")
    whole: dict[int, BackedUpFile] = {}

    def keep_whole(below: int) -> None:
        for segment in store.list_files(store.log_directory):
            if segment.end <= below and segment.start not in whole:
                kept = maker.whole_segment(segment)
                if kept is not None:
                    whole[segment.start] = kept

    # Most of the log, while the broker goes on.
    keep_whole(_synced(store) if store.is_live else 0)
    configs, left_out, mark = _steady_state(maker, with_secrets)
    keep_whole(mark)
    segments = store.list_files(store.log_directory)
    parts = [maker.part_of_segment(one, mark) for one in segments if one.start < mark < one.end]
    starts = {one.start for one in segments}
    log = [whole[start] for start in sorted(whole) if start in starts] + parts
    first = min((parse_segment_name(one.restored.rpartition("/")[2]) or 0 for one in log), default=mark)
    files = [*log, *(_write_config(maker, name, data) for name, data in sorted(configs.items()))]
    size = max((segment.size for segment in segments), default=0)
    manifest = BackupManifest(now_ms, store.root, release, maker.turn, first, mark, size, tuple(files), tuple(left_out))
    _require_no_gap(manifest)
    _publish(maker, manifest)
    return BackupReport(manifest, maker.linked, maker.copied, maker.kept, maker.bytes_copied, tuple(left_out))


def _require_place(store: StoreDirectory, place: str) -> None:
    if place == store.root or place.startswith(store.root + "/") or store.root.startswith(place + "/"):
        raise BackupError(f"{place} and the store {store.root} lie in each other", hint="name another directory")
    disk = store.disk
    if disk.exists(place) and not disk.is_dir(place):
        raise BackupError(f"{place} is not a directory")
    if disk.listdir(place) and not disk.exists(f"{place}/{MANIFEST}"):
        ours = all(name in ("commitlog", _LOCK) or name.startswith("state-") for name in disk.listdir(place))
        if not ours:
            raise BackupError(
                f"{place} holds other files", hint="name an empty directory, or that of an earlier backup"
            )


def _require_same_store(maker: _Maker) -> None:
    before = maker.before
    if before is not None and before.source != maker.store.root:
        raise BackupError(
            f"{maker.place} holds a backup of {before.source}", hint="each store needs a directory of its own"
        )


def _synced(store: StoreDirectory) -> int:
    """Return how far the log is synced now, as the running broker notes it."""
    mark = DurableMark(store.disk, store.path("config"))
    mark.peek()
    return mark.offset


def _steady_state(maker: _Maker, with_secrets: bool) -> tuple[dict[str, bytes], list[str], int]:
    """Return the state files and a mark that fit each other: no topic came or went between the two."""
    store = maker.store
    if not store.is_live:
        configs, left_out = maker.configs(with_secrets)
        return configs, left_out, inspect(store, maker.progress).log_end
    if not any(store.mark_slots):
        raise BackupError(
            f"{store.root} is in use by a broker that does not note how far the log is synced",
            hint="stop that broker first",
        )
    for _ in range(_STEADY_TRIES):
        configs, left_out = maker.configs(with_secrets)
        mark = _synced(store)
        root = store.path("config")
        if all(configs.get(name, b"") == store.read(f"{root}/{name}") for name in _STEADY):
            return configs, left_out, mark
    raise BackupError(f"topics or groups of {store.root} change all the time", hint="try again when they rest")


def _write_config(maker: _Maker, name: str, data: bytes) -> BackedUpFile:
    path = f"{maker.state}/config/{name}"
    file = maker.disk.open(f"{maker.place}/{path}", create=True)
    try:
        file.truncate(0)
        if data:
            file.write(0, data)
        sync_file(file)
    finally:
        file.close()
    return BackedUpFile(path, f"config/{name}", len(data), hashlib.sha256(data).hexdigest())


def _require_no_gap(manifest: BackupManifest) -> None:
    at = manifest.log_start
    for one in manifest.files:
        start = parse_segment_name(one.restored.rpartition("/")[2])
        if one.restored.startswith("commitlog/"):
            if start != at:
                raise BackupError(f"the log has no segment at {at}", hint="`aerobee store verify` tells more")
            at += one.size
    if at != manifest.mark:
        raise BackupError(f"the log ends at {at}, not at its mark {manifest.mark}", hint="try again")


def _publish(maker: _Maker, manifest: BackupManifest) -> None:
    """Make the backup the one that counts. Then remove what belonged only to the one before."""
    disk, place = maker.disk, maker.place
    for directory in (f"{place}/commitlog", f"{place}/{maker.state}/config", f"{place}/{maker.state}", place):
        sync_directory(disk, directory)
    temporary = f"{place}/{MANIFEST}.tmp"
    file = disk.open(temporary, create=True)
    try:
        file.truncate(0)
        file.write(0, manifest.encode())
        sync_file(file)
    finally:
        file.close()
    disk.rename(temporary, f"{place}/{MANIFEST}")
    sync_directory(disk, place)
    wanted = {one.path for one in manifest.files}
    for name in disk.listdir(f"{place}/commitlog"):
        if f"commitlog/{name}" not in wanted:
            disk.unlink(f"{place}/commitlog/{name}")
    for name in disk.listdir(place):
        if name.startswith("state-") and name != maker.state:
            _remove_tree(disk, f"{place}/{name}")


def _remove_tree(disk: Disk, path: str) -> None:
    for name in disk.listdir(path):
        inner = f"{path}/{name}"
        if disk.is_dir(inner):
            _remove_tree(disk, inner)
        else:
            disk.unlink(inner)
    disk.remove_dir(path)


# ---- check ----


def verify_backup(disk: Disk, place: str, progress: Progress = lambda done, total: None) -> BackupCheck:
    """Compare every file of a backup with its SHA-256."""
    place = place.rstrip("/") or "/"
    check = BackupCheck(_required(disk, place))
    try:
        _require_no_gap(check.manifest)
    except BackupError as error:
        check.problems.append(error.message)
    for one in check.manifest.files:
        problem = _problem_of(disk, place, one, check, progress)
        if problem is not None:
            check.problems.append(f"{one.path} {problem}")
    return check


def _required(disk: Disk, place: str) -> BackupManifest:
    manifest = read_manifest(disk, place)
    if manifest is None:
        raise CannotLookError(f"{place} holds no backup ({MANIFEST} is not there)")
    return manifest


def _problem_of(disk: Disk, place: str, one: BackedUpFile, check: BackupCheck, progress: Progress) -> str | None:
    try:
        file = disk.open(f"{place}/{one.path}", write=False)
    except (FileNotFoundError, IsADirectoryError):
        return "is missing"
    try:
        if file.size() != one.size:
            return f"has {file.size()} bytes instead of {one.size}"
        digest = hashlib.sha256()
        for chunk in _chunks(file, one.size):
            digest.update(chunk)
            check.bytes_read += len(chunk)
            progress(check.bytes_read, check.manifest.size)
        return None if digest.hexdigest() == one.sha256 else "has other content than when it was made"
    finally:
        file.close()


# ---- restore ----


def restore_backup(
    disk: Disk, place: str, target: str, progress: Progress = lambda done, total: None
) -> BackupManifest:
    """Make a store of a backup in an empty directory. The broker that starts on it builds queues and index again.

    Raise BackupError where a file is not as it was; what was restored is then left without a log that a broker takes.
    """
    place, target = place.rstrip("/") or "/", target.rstrip("/") or "/"
    manifest = _required(disk, place)
    _require_no_gap(manifest)
    if disk.exists(target) and (not disk.is_dir(target) or disk.listdir(target)):
        raise BackupError(f"{target} is not an empty directory", hint="move it away first: nothing is overwritten")
    if target.startswith(place + "/"):
        raise BackupError(f"{target} lies in the backup {place}", hint="name a directory outside of it")
    _make_durably(disk, target)
    disk.make_dirs(f"{target}/config")
    # The log gets its name at the end: a store that was restored half-way must not start as one that is empty.
    unfinished = f"{target}/{RESTORING}"
    disk.make_dirs(unfinished)
    sync_directory(disk, target)
    done = 0
    for one in manifest.files:
        is_log = one.restored.startswith("commitlog/")
        path = f"{unfinished}/{one.restored.removeprefix('commitlog/')}" if is_log else f"{target}/{one.restored}"
        disk.make_dirs(path.rpartition("/")[0])
        _restore_file(disk, f"{place}/{one.path}", path, one, manifest.segment_size if is_log else one.size)
        done += one.size
        progress(done, manifest.size)
    _write_abort(disk, target)
    sync_directory(disk, f"{target}/config")
    sync_directory(disk, unfinished)
    disk.rename(unfinished, f"{target}/commitlog")
    sync_directory(disk, target)
    return manifest


def _restore_file(disk: Disk, source: str, path: str, one: BackedUpFile, length: int) -> None:
    try:
        read = disk.open(source, write=False)
    except FileNotFoundError:
        raise BackupError(f"{source} is missing") from None
    try:
        if read.size() != one.size:
            raise BackupError(f"{source} has {read.size()} bytes instead of {one.size}")
        if copy_into(disk, read, path, one.size, lambda done: None, length) != one.sha256:
            raise BackupError(f"{source} has other content than when it was made", hint="restore another backup")
    finally:
        read.close()


def _write_abort(disk: Disk, target: str) -> None:
    """Say that the store was not stopped in order, so that its broker recovers it."""
    file = disk.open(f"{target}/abort", create=True)
    try:
        sync_file(file)
    finally:
        file.close()


# ---- files ----


def _make_durably(disk: Disk, path: str) -> None:
    """Make a directory and those above it. What is written into it must not vanish with its name in a power cut."""
    parts = path.split("/")
    above = ["/".join(parts[:count]) or "/" for count in range(1, len(parts))]
    changed = [parent for parent, child in zip(above, [*above[1:], path], strict=True) if not disk.exists(child)]
    disk.make_dirs(path)
    for parent in changed:
        # To make a directory inside, nobody needs the right to read.
        with contextlib.suppress(PermissionError):
            disk.sync_dir(parent)


def _chunks(file: File, size: int) -> Iterator[bytes]:
    at = 0
    while at < size:
        chunk = file.read(at, min(_CHUNK, size - at))
        if not chunk:
            raise BackupError(f"{file.path} became shorter while it was read")
        yield chunk
        at += len(chunk)


def copy_into(
    disk: Disk, source: File, path: str, size: int, told: Callable[[int], None], length: int | None = None
) -> str:
    """Copy the first bytes of a file, make the copy `length` long, sync it, and return the SHA-256 of the bytes."""
    digest = hashlib.sha256()
    file = disk.open(path, create=True)
    try:
        file.truncate(0)
        file.truncate(size if length is None else length)
        at = 0
        for chunk in _chunks(source, size):
            digest.update(chunk)
            if chunk.count(0) != len(chunk):
                file.write(at, chunk)
            at += len(chunk)
            told(len(chunk))
        sync_file(file)
    finally:
        file.close()
    return digest.hexdigest()
