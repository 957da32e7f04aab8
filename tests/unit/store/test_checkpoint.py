from hypothesis import given
from hypothesis import strategies as st

from aerobee.errors import StoreError
from aerobee.store.checkpoint import FILE_SIZE, Checkpoint, CheckpointFile, decode_checkpoint
from aerobee.testing.disk import RecordingDisk

PATH = "/store/checkpoint"
SAMPLE = Checkpoint(
    physic_msg_timestamp=1700000000001,
    logics_msg_timestamp=1700000000002,
    index_msg_timestamp=1700000000003,
    master_flushed_offset=4,
    confirm_phy_offset=5,
    logics_physical_offset=6,
)
# Written by Apache's StoreCheckpoint (5.5.0) with the same values.
APACHE = bytes.fromhex(
    "0000018bcfe568010000018bcfe568020000018bcfe56803000000000000000400000000000000050000000000000006"
)


def test_bytes_are_apaches() -> None:
    disk = RecordingDisk()
    disk.make_dirs("/store")
    CheckpointFile(disk, PATH).save(SAMPLE)
    assert disk.open(PATH).read(0, 10_000) == APACHE.ljust(FILE_SIZE, b"\0")


def test_reads_what_apache_wrote() -> None:
    disk = RecordingDisk()
    disk.put(PATH, APACHE.ljust(FILE_SIZE, b"\0"))
    opened = CheckpointFile(disk, PATH)
    assert opened.existed
    assert opened.value == SAMPLE
    assert opened.problems == []


def test_a_new_store_has_none() -> None:
    opened = CheckpointFile(RecordingDisk(), PATH)
    assert not opened.existed
    assert opened.value == Checkpoint()
    assert opened.problems == []


def test_every_crash_leaves_the_old_or_the_new() -> None:
    old = SAMPLE
    new = Checkpoint(logics_physical_offset=0xFFFF_FFFF, physic_msg_timestamp=9, confirm_phy_offset=2**40)
    points = 0
    for nth in range(1, 30):
        disk = RecordingDisk()
        disk.make_dirs("/store")
        disk.sync_everything()
        file = CheckpointFile(disk, PATH)
        file.save(old)
        disk.fail(nth, times=None)
        try:
            file.save(new)
            done = True
        except (OSError, StoreError):
            done = False
        disk.heal()
        for image in disk.crash_images(nth, per_mode=4):
            found = CheckpointFile(image.disk, PATH)
            assert found.value == new if done else found.value in (old, new), (nth, image.mode)
            assert found.problems == []
            points += 1
        if done:
            break
    else:
        raise AssertionError("the save never ran to its end")
    assert points > 20


def test_a_save_off_the_thread() -> None:
    disk = RecordingDisk()
    disk.make_dirs("/store")
    disk.complete_queued()
    file = CheckpointFile(disk, PATH)
    told: list[object] = []
    file.submit(Checkpoint(confirm_phy_offset=1), told.append)
    file.submit(Checkpoint(confirm_phy_offset=2), told.append)
    file.submit(SAMPLE, told.append)
    assert told == []
    disk.run_pending()
    assert told == [None, None, None]
    assert CheckpointFile(disk, PATH).value == SAMPLE


def test_short_and_negative_values_count_as_nothing() -> None:
    value, problems = decode_checkpoint(APACHE[:20])
    assert value.physic_msg_timestamp == SAMPLE.physic_msg_timestamp
    assert value.logics_physical_offset == 0
    assert "20 bytes" in problems[0]
    rotten = bytearray(APACHE)
    rotten[40] |= 0x80
    value, problems = decode_checkpoint(bytes(rotten))
    assert value.logics_physical_offset == 0
    assert "byte 40" in problems[0]


@given(st.binary(max_size=60))
def test_no_bytes_give_a_negative_offset(data: bytes) -> None:
    value, _ = decode_checkpoint(data)
    assert value.logics_physical_offset >= 0
    assert value.confirm_phy_offset >= -1
