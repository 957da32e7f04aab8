"""A truncation at any step of a power cut: the log ends where it was cut or where it ended before, nothing returns."""

from __future__ import annotations

import pytest

from aerobee.testing.clock import VirtualClock
from aerobee.testing.crash import CrashMode
from aerobee.testing.crashcheck import read_all
from aerobee.testing.crashrun import CrashRun
from aerobee.testing.disk import RecordingDisk
from aerobee.testing.faults import DiskCall
from aerobee.testing.recordcases import draft_of
from aerobee.testing.storeshapes import Shape


def runs(first_seed: int, images: int) -> tuple[int, int]:
    """Return images and truncations of runs that cut often."""
    found = truncations = 0
    seed = first_seed
    while found < images:
        outcome = CrashRun(seed, cutting=True).run()
        found += outcome.images
        truncations += outcome.truncations
        seed += 1
    return found, truncations


def test_no_record_comes_back(capsys: pytest.CaptureFixture[str]) -> None:
    images, truncations = runs(40_000, 600)
    assert truncations > 5
    with capsys.disabled():
        print(f"\n{images} images of {truncations} truncations: 0 records came back")


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_no_record_comes_back_in_ten_thousand_images(capsys: pytest.CaptureFixture[str]) -> None:
    images, truncations = runs(50_000, 10_000)
    with capsys.disabled():
        print(f"\n{images} images of {truncations} truncations: 0 records came back")


def test_a_cut_at_the_edge_of_a_segment_outlives_a_kill_and_then_a_power_cut() -> None:
    """The kill leaves the segment unlinked but not synced; the next start must see to that."""
    shape = Shape(
        sync_flush=True,
        segment_size=4096,
        units_per_file=5,
        with_index=False,
        late_syncs=False,
        queue_count=1,
        topic_count=1,
    )
    clock, disk = VirtualClock(), RecordingDisk()
    store = shape.store(disk, clock)
    store.open()
    for number in range(4):
        store.append([draft_of(bytes([number]) * 3000, properties={"UNIQ_KEY": f"{number}"})])
    images: list[RecordingDisk] = []

    def after_call(call: DiskCall) -> None:
        if call.kind == "unlink" and "commitlog" in call.path:
            images.append(disk.kill())

    disk.after_call = after_call
    store.truncate(8192)
    assert len(images) == 2
    for image in images:
        killed = shape.store(image, clock)
        killed.open()
        assert killed.log_end == 8192
        for mode in (CrashMode.NONE, CrashMode.ALL):
            again = shape.store(image.crash(mode), clock)
            again.open()
            assert again.log_end == 8192
            assert len(read_all(again, b"orders", 0)) == 2
