"""What is a shortage, what is damage; rights of what is made; the limit of open files."""

from __future__ import annotations

import errno
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from aerobee.errors import DiskFullError, StoreFencedError
from aerobee.runtime.disk import InlineDisk
from aerobee.runtime.files import RealFile
from aerobee.runtime.shortage import descriptor_limit, descriptors_in_use, is_passing
from aerobee.runtime.smallfile import replace_small


@pytest.mark.parametrize("number", sorted(errno.errorcode))
def test_only_a_lack_of_descriptors_memory_or_space_passes(number: int) -> None:
    # ENOSPC is named by the disk before anybody asks; from a sync it is as final as any other failure.
    assert is_passing(OSError(number, "x")) == (number in (errno.EMFILE, errno.ENFILE, errno.ENOMEM))


def test_what_is_no_system_error() -> None:
    assert is_passing(DiskFullError("full"))
    for error in (StoreFencedError("x"), ValueError("x"), OSError("no number"), None):
        assert not is_passing(error)


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such limit")
def test_the_limit_is_raised_to_what_the_system_allows() -> None:
    code = (
        "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (100, 300))\n"
        "from aerobee.runtime.shortage import raise_descriptor_limit\n"
        "print(raise_descriptor_limit(), raise_descriptor_limit(), resource.getrlimit(resource.RLIMIT_NOFILE))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "300 300 (300, 300)"


def test_what_is_in_use_is_counted() -> None:
    limit, before = descriptor_limit(), descriptors_in_use()
    assert limit is None or 0 < before < limit
    fd = os.open(os.devnull, os.O_RDONLY)
    try:
        assert before == 0 or descriptors_in_use() == before + 1
    finally:
        os.close(fd)


@pytest.mark.skipif(sys.platform == "win32", reason="rights of POSIX")
@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
def test_what_is_made_is_its_owners_alone_and_what_is_there_stays(tmp_path: Path, umask: int) -> None:
    there = tmp_path / "there"
    there.mkdir()
    there.chmod(0o750)
    before = os.umask(umask)
    try:
        disk = InlineDisk()
        disk.make_dirs(f"{there}/a/b//c/")
        disk.make_dirs(f"{there}/a/b/c")
        disk.open(f"{there}/a/file", create=True).close()
        disk.lock(f"{there}/a/lock").release()
        replace_small(f"{there}/small/offsets.json", b"{}")
    finally:
        os.umask(before)
    assert stat.S_IMODE(there.stat().st_mode) == 0o750
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in there.rglob("*")}
    assert modes == {"a": 0o700, "b": 0o700, "c": 0o700, "file": 0o600, "lock": 0o600, "small": 0o700,
                     "offsets.json": 0o600}  # fmt: skip
    with pytest.raises(FileExistsError):
        disk.make_dirs(f"{there}/a/file")
    with pytest.raises(NotADirectoryError):
        disk.make_dirs(f"{there}/a/file/below")


def test_a_failed_sync_names_its_file(tmp_path: Path) -> None:
    reading, writing = os.pipe()  # cannot be synced
    os.close(reading)
    file = RealFile(str(tmp_path / "log"), writing)
    try:
        with pytest.raises(OSError, match="log") as caught:
            file.sync()
        assert caught.value.filename == str(tmp_path / "log")
    finally:
        file.close()


def test_space_is_that_of_the_file_system(tmp_path: Path) -> None:
    total, free = InlineDisk().space(str(tmp_path))
    assert 0 <= free <= total
    with pytest.raises(FileNotFoundError):
        InlineDisk().space(str(tmp_path / "none"))
