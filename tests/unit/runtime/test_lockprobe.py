import os
import subprocess
import sys
from pathlib import Path

import pytest

from aerobee.errors import StoreLockedError
from aerobee.runtime.disk import InlineDisk
from aerobee.runtime.lockprobe import lock_holder

HOLD = """
import sys
from aerobee.runtime.disk import InlineDisk
lock = InlineDisk().lock(sys.argv[1])
print("held", flush=True)
sys.stdin.read()
"""


def test_nobody_holds_a_file_that_is_not_there_and_it_is_not_made(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    assert lock_holder(str(path)) is None
    assert not path.exists()


def test_a_lock_of_this_process_is_seen_and_survives_the_question(tmp_path: Path) -> None:
    path = str(tmp_path / "lock")
    held = InlineDisk().lock(path)
    assert lock_holder(path) == os.getpid()
    assert _other_can_lock(path) is False
    held.release()
    assert lock_holder(path) is None
    assert _other_can_lock(path) is True


def _other_can_lock(path: str) -> bool:
    code = "import sys\nfrom aerobee.runtime.disk import InlineDisk\nInlineDisk().lock(sys.argv[1])"
    return subprocess.run([sys.executable, "-c", code, path], capture_output=True, check=False).returncode == 0


def test_a_lock_of_another_process_is_seen_by_its_id(tmp_path: Path) -> None:
    path = str(tmp_path / "lock")
    with subprocess.Popen([sys.executable, "-c", HOLD, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        assert lock_holder(path) == holder.pid
        with pytest.raises(StoreLockedError):
            InlineDisk().lock(path)
        holder.communicate()
    assert lock_holder(path) is None
