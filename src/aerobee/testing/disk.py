"""A disk in memory that knows what a power cut would leave, and fails when told to.

Contents are durable after `sync`, names after `sync_dir`; a failed sync forgets (see `platter`). `crash` and `kill`
give the disk that the next start finds, and leave this one as it is: one history serves for many images.
"""

from __future__ import annotations

import errno as errnos
import os
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

from aerobee.errors import DiskFullError, StoreClosedError, StoreLockedError
from aerobee.runtime.seams import File, Timers
from aerobee.runtime.shortage import is_passing
from aerobee.testing.crash import FIXED_MODES, CrashMode, NamesMode, choose_survivors
from aerobee.testing.faults import DiskCall, DiskFaults, Fault, FaultKind, error_of
from aerobee.testing.platter import Change, Directory, Inode, Node
from aerobee.testing.tree import Tree, os_error

ENDLESS = 1 << 60
SyncDone = Callable[[OSError | None], None]
ReadDone = Callable[[bytes | OSError], None]


class CrashImage(NamedTuple):
    """A disk after a power cut, and what makes it again: `disk.crash(mode, seed)`."""

    mode: CrashMode
    seed: int
    disk: RecordingDisk


class CopiedSlices:
    """A view whose slices are copies, as those of a mapped file."""

    def __init__(self, view: memoryview) -> None:
        self._view = view

    def __getitem__(self, part: slice, /) -> bytes:
        return bytes(self._view[part])


class RecordingFile(File):
    """An open file of a RecordingDisk."""

    def __init__(self, disk: RecordingDisk, path: str, inode: Inode, is_writable: bool) -> None:
        self.path = path
        self._disk = disk
        self._inode = inode
        self._is_writable = is_writable
        self._is_closed = False
        self._view: memoryview | None = None

    def size(self) -> int:
        return self.inode().size

    def write(self, offset: int, data: bytes | bytearray | memoryview) -> None:
        self._disk.write_inode(self.inode(writing=True), self.path, offset, data)

    def read(self, offset: int, size: int) -> bytes:
        return self._disk.read_inode(self.inode(), self.path, offset, size)

    def next_data(self, offset: int) -> int:
        while (data := self.read(offset, 65536)) and not data.strip(b"\0"):
            offset += len(data)
        return offset + len(data) - len(data.lstrip(b"\0"))

    def view(self) -> memoryview:
        inode = self.inode()
        if self._view is None:
            self._view = inode.view()
            inode.views += 1
        return self._view

    def mapped(self) -> CopiedSlices:
        return CopiedSlices(self.view())

    def reserve(self, offset: int, size: int) -> None:
        self._disk.reserve_inode(self.inode(writing=True), self.path, offset, size)

    def truncate(self, size: int) -> None:
        self._disk.truncate_inode(self.inode(writing=True), self.path, size)

    def sync(self) -> None:
        self._disk.sync_inode(self.inode(), self.path)

    def close(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            if self._view is not None:
                self._view = None
                self._inode.views -= 1

    def inode(self, *, writing: bool = False) -> Inode:
        if self._is_closed or (writing and not self._is_writable):
            raise os_error(errnos.EBADF, self.path)
        return self._inode


class RecordingLock:
    """A lock of the running process; no image has it."""

    def __init__(self, held: dict[Inode, None], inode: Inode) -> None:
        self._held = held
        self._inode = inode

    def release(self) -> None:
        self._held.pop(self._inode, None)


class _Submitted(NamedTuple):
    """A sync or read that is not performed yet."""

    kind: str
    perform: Callable[[], None]


class RecordingDisk:
    """The Disk of fault tests and simulations. `existing` names directories that are there, durably, from
    the start.

    `free_bytes` (None: endless) is what is left: allocating beyond it is DiskFullError, unlinking gives back.
    `after_call` is called with each DiskCall that was performed, failed ones that may have changed something
    included; it may take images.
    """

    def __init__(self, *, seed: int = 0, existing: Sequence[str] = ("/store",), free_bytes: int | None = None) -> None:
        self.seed = seed
        self.calls = 0
        self.counts: dict[str, int] = {}
        self.trace: list[DiskCall] = []
        self.after_call: Callable[[DiskCall], None] | None = None
        self.free_bytes = free_bytes
        # What used_ratio answers, where set.
        self.used_share: float | None = None
        self._tree = Tree()
        # Files that may have changes, in the order they were first changed.
        self._changed: dict[Inode, None] = {}
        self._faults = DiskFaults()
        self._locks: dict[Inode, None] = {}
        self._submitted: deque[_Submitted] = deque()
        self._completion: Callable[[_Submitted], None] | None = None
        self._is_closed = False
        for path in existing:
            self._tree.make_dirs(path)
        self.sync_everything()

    # --- the seam

    def open(self, path: str, *, create: bool = False, write: bool = True) -> RecordingFile:
        self._enter("open", path)
        parent, name = self._tree.parent(path)
        node = parent.names.get(name) if name else parent
        if isinstance(node, Directory):
            raise os_error(errnos.EISDIR, path)
        if node is None:
            if not create:
                raise os_error(errnos.ENOENT, path)
            node = Inode()
            self._tree.change(f"create {path}", (parent, name, node))
        self._leave()
        return RecordingFile(self, path, node, write)

    def exists(self, path: str) -> bool:
        return self._tree.find(path) is not None

    def is_dir(self, path: str) -> bool:
        return isinstance(self._tree.find(path), Directory)

    def listdir(self, path: str) -> list[str]:
        node = self._tree.find(path)
        if isinstance(node, Inode):
            raise os_error(errnos.ENOTDIR, path)
        return sorted(node.names) if node is not None else []

    def make_dirs(self, path: str) -> None:
        self._enter("make_dirs", path)
        self._tree.make_dirs(path)
        self._leave()

    def rename(self, source: str, target: str) -> None:
        self._enter("rename", source)
        old_parent, old_name = self._tree.parent(source)
        new_parent, new_name = self._tree.parent(target)
        node = old_parent.names.get(old_name)
        if node is None:
            raise os_error(errnos.ENOENT, source)
        replaced = new_parent.names.get(new_name)
        if replaced is node:
            return
        if isinstance(replaced, Directory) and (isinstance(node, Inode) or replaced.names):
            raise os_error(errnos.EISDIR if isinstance(node, Inode) else errnos.ENOTEMPTY, target)
        self._tree.change(f"rename {source} {target}", (new_parent, new_name, node), (old_parent, old_name, None))
        self._give_back(replaced)
        self._leave()

    def unlink(self, path: str) -> None:
        self._enter("unlink", path)
        parent, name = self._tree.parent(path)
        node = parent.names.get(name)
        if node is None:
            raise os_error(errnos.ENOENT, path)
        if isinstance(node, Directory):
            raise os_error(errnos.EISDIR, path)
        self._tree.change(f"unlink {path}", (parent, name, None))
        self._give_back(node)
        self._leave()

    def remove_dir(self, path: str) -> None:
        self._enter("remove_dir", path)
        parent, name = self._tree.parent(path)
        node = parent.names.get(name)
        if not isinstance(node, Directory):
            raise os_error(errnos.ENOENT if node is None else errnos.ENOTDIR, path)
        if node.names:
            raise os_error(errnos.ENOTEMPTY, path)
        self._tree.change(f"remove_dir {path}", (parent, name, None))
        self._leave()

    def sync_dir(self, path: str) -> None:
        fault = self._enter("sync_dir", path, raises=False)
        node = self._tree.find(path)
        if not isinstance(node, Directory):
            raise os_error(errnos.ENOENT if node is None else errnos.ENOTDIR, path)
        if (
            fault is not None
            and fault.what is FaultKind.ERROR
            and is_passing(error := error_of(fault, "sync_dir", path))
        ):
            raise error  # the directory could not be opened: no sync was begun
        try:
            if fault is None or fault.what is not FaultKind.LIE:
                self._tree.settle(node, is_durable=fault is None)
            if fault is not None and fault.what is FaultKind.ERROR:
                raise error_of(fault, "sync_dir", path)
        finally:
            self._leave()

    def used_ratio(self, path: str) -> float:
        if self.used_share is not None:
            return self.used_share
        if self._tree.find(path) is None:
            raise os_error(errnos.ENOENT, path)
        if self.free_bytes is None:
            return 0.0
        used = sum(inode.extents.total() for _, inode in self._tree.files())
        return used / max(1, used + self.free_bytes)

    def space(self, path: str) -> tuple[int, int]:
        if self._tree.find(path) is None:
            raise os_error(errnos.ENOENT, path)
        if self.free_bytes is None:
            return ENDLESS, ENDLESS
        return self.free_bytes + sum(inode.extents.total() for _, inode in self._tree.files()), self.free_bytes

    def lock(self, path: str) -> RecordingLock:
        self._enter("lock", path)
        parent, name = self._tree.parent(path)
        node = parent.names.get(name)
        if isinstance(node, Directory):
            raise os_error(errnos.EISDIR, path)
        if node is None:
            node = Inode()
            self._tree.change(f"create {path}", (parent, name, node))
        if node in self._locks:
            raise StoreLockedError(f"{path} is held by this process")
        self._locks[node] = None
        self._write(node, 0, b"lock")
        self._leave()
        return RecordingLock(self._locks, node)

    def sync(self, files: Sequence[File], done: SyncDone) -> None:
        """Sync what was written before this call, and no more."""
        seq_end = self._tree.seq
        try:
            inodes = [(_of_ours(file).inode(), file.path) for file in files]
        except OSError as error:
            failure = error
            self._submit("sync", lambda: done(failure))
            return
        self._submit("sync", lambda: done(self._sync_all(inodes, seq_end)))

    def read_cached(self, file: File, offset: int, size: int) -> bytes | None:
        """Return None: nothing is in memory, so whoever reads cold goes the whole way."""
        return None

    def read(self, file: File, offset: int, size: int, done: ReadDone) -> None:
        try:
            inode = _of_ours(file).inode()
        except OSError as error:
            failure = error
            self._submit("read", lambda: done(failure))
            return
        self._submit("read", lambda: done(self._outcome_of_read(inode, file.path, offset, size)))

    def close(self) -> None:
        self._is_closed = True
        self.run_pending()

    # --- when syncs and reads complete

    def complete_inline(self) -> None:
        """Call `done` before `sync` and `read` return. This is the state at the start."""
        self._completion = None

    def complete_queued(self) -> None:
        """Let `done` wait for `run_pending`."""
        self._completion = self._submitted.append

    def complete_by(self, timers: Timers, delay_s: Callable[[], float]) -> None:
        """Call `done` after a delay; requests of one kind stay in order."""
        queues: dict[str, deque[Callable[[], None]]] = {"sync": deque(), "read": deque()}

        def run_next(kind: str) -> None:
            queue = queues[kind]
            queue[0]()
            queue.popleft()
            if queue:
                timers.call_later(delay_s(), lambda: run_next(kind))

        def submit(submitted: _Submitted) -> None:
            queue = queues[submitted.kind]
            queue.append(submitted.perform)
            if len(queue) == 1:
                timers.call_later(delay_s(), lambda: run_next(submitted.kind))

        self._completion = submit

    @property
    def pending_count(self) -> int:
        """Return how many wait for `run_pending`."""
        return len(self._submitted)

    def run_pending(self, count: int | None = None) -> int:
        """Perform this many in the order submitted; all, and those they lead to, where None. Return how many it was."""
        performed = 0
        while self._submitted and (count is None or performed < count):
            self._submitted.popleft().perform()
            performed += 1
        return performed

    # --- faults

    def fail(
        self,
        nth: int,
        kind: str | None = None,
        *,
        errno: int = errnos.EIO,
        times: int | None = 1,
        path: str | None = None,
        partial_bytes: int = 0,
    ) -> Fault:
        """Make the nth call from now (1 is the next) of this kind (None: any) fail, and `times` - 1 behind it (None:
        all behind it).

        With `path` only calls count whose path contains it. A failing write leaves `partial_bytes` of its data.
        """
        return self._arm(nth, kind, FaultKind.ERROR, times, errno, partial_bytes, path)

    def flip_read(self, nth: int, *, bit: int = 0, times: int | None = 1, path: str | None = None) -> Fault:
        """Make the nth read return this bit wrong (counted from its first byte, modulo its length)."""
        return self._arm(nth, "read", FaultKind.FLIP, times, 0, bit, path)

    def short_read(self, nth: int, *, size: int = 0, times: int | None = 1, path: str | None = None) -> Fault:
        """Make the nth read return at most `size` bytes, though the file has more."""
        return self._arm(nth, "read", FaultKind.SHORT, times, 0, size, path)

    def lie_about_sync(self, nth: int, *, times: int | None = 1, path: str | None = None) -> Fault:
        """Make the nth sync succeed without making anything durable; the changes wait for the next."""
        return self._arm(nth, "sync", FaultKind.LIE, times, 0, 0, path)

    def heal(self) -> None:
        """Forget every fault."""
        self._faults.armed.clear()

    def rot(self, path: str, offset: int, mask: int = 1) -> None:
        """Flip bits of one byte for good, in memory, in views and on the platter."""
        node = self._tree.find(path)
        if not isinstance(node, Inode) or not 0 <= offset < node.size:
            raise ValueError(f"no byte {offset} in {path}")
        node.flip(offset, mask)

    # --- images

    def unsynced(self) -> list[Change]:
        """Return every change that a power cut may take, in the order made."""
        for inode in [inode for inode in self._changed if not inode.changes]:
            del self._changed[inode]
        changes: list[Change] = list(self._tree.changes)
        for inode in self._changed:
            changes += inode.changes
        changes.sort(key=lambda change: change.seq)
        return changes

    def crash(self, mode: CrashMode, seed: int | None = None, *, names: NamesMode = NamesMode.SAME) -> RecordingDisk:
        """Return the disk after a power cut now. Without a seed, the disk's own decides."""
        survivors = choose_survivors(self.unsynced(), mode, self.seed if seed is None else seed, names)
        return self.crash_keeping(survivors.kept, survivors.torn)

    def crash_keeping(self, kept: Collection[int], torn: Mapping[int, bytes] | None = None) -> RecordingDisk:
        """Return the disk after a power cut that just these changes (their `seq`, see `unsynced`) survive.

        Of those in `torn`, only the bytes survive where the 512-byte mask is not zero.
        """
        return self._image(self._tree.after_cut(kept, torn or {}))

    def crash_images(
        self, seed: int = 0, *, per_mode: int = 1, modes: Sequence[CrashMode] = tuple(CrashMode)
    ) -> Iterator[CrashImage]:
        """Return an image for each mode, `per_mode` for those that depend on a seed; where nothing is unsynced, just
        one.
        """
        changes = self.unsynced()
        if not changes:
            yield CrashImage(CrashMode.NONE, seed, self.crash_keeping(()))
            return
        for mode in modes:
            for number in range(1 if mode in FIXED_MODES else per_mode):
                survivors = choose_survivors(changes, mode, seed + number)
                yield CrashImage(mode, seed + number, self.crash_keeping(survivors.kept, survivors.torn))

    def kill(self) -> RecordingDisk:
        """Return the disk after the process died: everything written is there, and what was not synced still is not."""
        tree, copies = self._tree.after_kill()
        image = self._image(tree)
        image._changed = {copies[inode]: None for inode in self._changed if inode in copies}
        return image

    def contents(self) -> dict[str, tuple[int, bytes]]:
        """Return every file by path: its length, and its bytes without the zeros at the end. For comparing disks."""
        return {
            path: (inode.size, bytes(inode.memory(0)[: inode.size]).rstrip(b"\0")) for path, inode in self._tree.files()
        }

    def put(self, path: str, data: bytes) -> None:
        """Put a file there, durably, with its directories. It does not count as a call."""
        self._tree.make_dirs(path.rpartition("/")[0] or "/")
        parent, name = self._tree.parent(path)
        inode = Inode()
        self._tree.change(f"create {path}", (parent, name, inode))
        self._write(inode, 0, data)
        self.sync_everything()

    def sync_everything(self) -> None:
        """Make everything durable. It does not count as a call."""
        for inode in self._changed:
            inode.sync(self._tree.seq)
        self._changed.clear()
        self._tree.settle_all()

    def export(self, directory: str) -> None:
        """Write every file below a real directory: for a look at an image with other tools."""
        for path, inode in self._tree.files():
            target = directory + path
            os.makedirs(os.path.dirname(target), exist_ok=True)
            with open(target, "wb") as out:
                out.write(bytes(inode.memory(0)[: inode.size]))
                out.truncate(inode.size)

    # --- what files ask

    def write_inode(self, inode: Inode, path: str, offset: int, data: bytes | bytearray | memoryview) -> None:
        fault = self._enter("write", path, offset, len(data), raises=False)
        try:
            if fault is not None:
                if fault.amount:
                    self._write(inode, offset, memoryview(data)[: fault.amount])
                raise error_of(fault, "write", path)
            self._allocate(inode, path, offset, offset + len(data))
            self._write(inode, offset, data)
        finally:
            self._leave()

    def read_inode(self, inode: Inode, path: str, offset: int, size: int) -> bytes:
        fault = self._enter("read", path, offset, size)
        data = inode.read(offset, size)
        if fault is not None and data:
            if fault.what is FaultKind.SHORT:
                data = data[: fault.amount]
            else:
                wrong = bytearray(data)
                at, bit = divmod(fault.amount % (len(data) * 8), 8)
                wrong[at] ^= 1 << bit
                data = bytes(wrong)
        self._leave()
        return data

    def reserve_inode(self, inode: Inode, path: str, offset: int, size: int) -> None:
        self._enter("reserve", path, offset, size)
        self._allocate(inode, path, offset, offset + size)
        if offset + size > inode.size:
            self._truncate(inode, offset + size)
        self._leave()

    def truncate_inode(self, inode: Inode, path: str, size: int) -> None:
        self._enter("truncate", path, size)
        self._truncate(inode, size)
        self._leave()

    def sync_inode(self, inode: Inode, path: str, seq_end: int | None = None) -> None:
        fault = self._enter("sync", path, raises=False)
        try:
            if fault is None:
                inode.sync(self._tree.seq if seq_end is None else seq_end)
            elif fault.what is FaultKind.ERROR:
                inode.forget()
                raise error_of(fault, "sync", path)
        finally:
            self._leave()

    # --- inside

    def _enter(self, kind: str, path: str, offset: int = 0, size: int = 0, *, raises: bool = True) -> Fault | None:
        """Count the call. Where a fault has nothing to leave behind, it is raised here."""
        self.calls += 1
        self.counts[kind] = self.counts.get(kind, 0) + 1
        self.trace.append(DiskCall(self.calls, kind, path, offset, size))
        fault = self._faults.meet(kind, path) if self._faults.armed else None
        if fault is not None and raises and fault.what is FaultKind.ERROR:
            raise error_of(fault, kind, path)
        return fault

    def _leave(self) -> None:
        if self.after_call is not None:
            self.after_call(self.trace[-1])

    def _arm(
        self,
        nth: int,
        kind: str | None,
        what: FaultKind,
        times: int | None,
        errno: int,
        amount: int,
        path: str | None,
    ) -> Fault:
        return self._faults.arm(Fault(nth, kind, what, times, errno, amount, path))

    def _submit(self, kind: str, perform: Callable[[], None]) -> None:
        if self._is_closed:
            raise StoreClosedError("the disk is closed")
        if self._completion is None:
            perform()
        else:
            self._completion(_Submitted(kind, perform))

    def _sync_all(self, inodes: Sequence[tuple[Inode, str]], seq_end: int) -> OSError | None:
        try:
            for inode, path in inodes:
                self.sync_inode(inode, path, seq_end)
        except OSError as error:
            return error
        return None

    def _outcome_of_read(self, inode: Inode, path: str, offset: int, size: int) -> bytes | OSError:
        try:
            return self.read_inode(inode, path, offset, size)
        except OSError as error:
            return error

    def _write(self, inode: Inode, offset: int, data: bytes | bytearray | memoryview) -> None:
        self._tree.seq = inode.write(offset, data, self._tree.seq)
        self._changed[inode] = None

    def _truncate(self, inode: Inode, size: int) -> None:
        self._tree.seq = inode.truncate(size, self._tree.seq)
        freed = inode.extents.cut(size)
        if self.free_bytes is not None:
            self.free_bytes += freed
        self._changed[inode] = None

    def _allocate(self, inode: Inode, path: str, start: int, end: int) -> None:
        ranges = inode.extents.ranges
        if ranges and ranges[0][0] <= start and end <= ranges[0][1]:
            return
        if self.free_bytes is not None:
            missing = inode.extents.missing(start, end)
            if missing > self.free_bytes:
                raise DiskFullError(f"no space to write {path}", hint="free space on the disk")
            self.free_bytes -= missing
        inode.extents.add(start, end)

    def _give_back(self, node: Node | None) -> None:
        if self.free_bytes is not None and isinstance(node, Inode):
            self.free_bytes += node.extents.cut(0)

    def _image(self, tree: Tree) -> RecordingDisk:
        image = RecordingDisk(seed=self.seed, existing=(), free_bytes=self.free_bytes)
        image._tree = tree
        image.used_share = self.used_share
        return image


def _of_ours(file: File) -> RecordingFile:
    assert isinstance(file, RecordingFile)
    return file
