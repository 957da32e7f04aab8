"""Power cuts and kills at every step of seeded runs. `make crash-images` does the same forty times as long."""

from __future__ import annotations

import pytest

from aerobee.testing.crashimages import run_seed
from aerobee.testing.crashrun import CrashRun, CrashRunError
from aerobee.testing.manyruns import run_until
from aerobee.testing.storeshapes import Shape

IMAGES = 5000
FIRST_SEED = 20_000


@pytest.mark.timeout(600)
def test_nothing_acknowledged_is_lost_in_five_thousand_images(capsys: pytest.CaptureFixture[str]) -> None:
    found = run_until(
        run_seed,
        lambda outcome: outcome.images,
        IMAGES,
        what="crash images",
        first_seed=FIRST_SEED,
        processes=2,
    )
    images = sum(outcome.images for outcome in found)
    assert images >= IMAGES
    assert sum(outcome.truncations for outcome in found) > 10
    assert sum(outcome.deletions for outcome in found) > 10
    with capsys.disabled():
        print(f"\n{images} images, 0 acknowledged lost, recovery idempotent")


def test_an_image_can_be_made_again() -> None:
    whole = CrashRun(3)
    assert whole.run() == CrashRun(3, only=50).run()
    assert whole.images > 50


def test_the_shapes_cover_what_they_should() -> None:
    shapes = [CrashRun(seed).shape for seed in range(60)]
    for values in (
        {shape.sync_flush for shape in shapes},
        {shape.with_index for shape in shapes},
        {shape.late_syncs for shape in shapes},
    ):
        assert values == {True, False}
    assert {shape.segment_size for shape in shapes} >= {4096, 65536}


@pytest.mark.parametrize("sync_flush", [True, False])
def test_an_unsealed_log_loses_nothing_acknowledged(sync_flush: bool) -> None:
    """Without the whole-record checksum a tear inside a record may go unseen (Apache's default); sectors that
    are lost whole, from the end on, are found by lengths and zeros."""
    shape = Shape(
        sync_flush=sync_flush,
        segment_size=8192,
        units_per_file=16,
        with_index=True,
        late_syncs=True,
        queue_count=2,
        topic_count=2,
        with_crc=False,
    )
    assert CrashRun(7, shape=shape, orderly=True).run().images > 100


def test_a_broken_promise_names_the_image(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aerobee.testing.crashcheck._check_queues", _fail)
    with pytest.raises(CrashRunError, match=r"--seed 5 --image 1 .*after call DiskCall\(.*some promise"):
        CrashRun(5).run()


def _fail(*_: object) -> None:
    raise AssertionError("some promise")
