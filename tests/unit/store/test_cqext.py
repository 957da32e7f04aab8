import pytest

from aerobee.errors import CorruptLogError, InvalidArgumentError
from aerobee.store.cqext import ConsumeQueueExt, ExtUnit, decorate, is_address, undecorate
from aerobee.testing.disk import RecordingDisk

BASE = 1_700_000_000_000
DIRECTORY = "/store/consumequeue_ext/TopicA/0"
# Written by Apache's ConsumeQueueExt (5.5.0, files of 256 bytes): 14 units, every third without a bit map.
UNITS = [ExtUnit(i * 7 - 3, BASE + i, bytes([1, 2, 3, 4, 5, 6, 7, i]) if i % 3 else b"") for i in range(14)]
ADDRESSES = [
    -9223372036854775808,
    -9223372036854775788,
    -9223372036854775760,
    -9223372036854775732,
    -9223372036854775712,
    -9223372036854775684,
    -9223372036854775656,
    -9223372036854775636,
    -9223372036854775608,
    -9223372036854775580,
    -9223372036854775552,
    -9223372036854775524,
    -9223372036854775496,
    -9223372036854775476,
]
FILES = {
    "00000000000000000000": bytes.fromhex(
        "0014fffffffffffffffd0000018bcfe568000000001c00000000000000040000018bcfe568010008"
        "0102030405060701001c000000000000000b0000018bcfe568020008010203040506070200140000"
        "0000000000120000018bcfe568030000001c00000000000000190000018bcfe56804000801020304"
        "05060704001c00000000000000200000018bcfe56805000801020304050607050014000000000000"
        "00270000018bcfe568060000001c000000000000002e0000018bcfe5680700080102030405060707"
        "001c00000000000000350000018bcfe56808000801020304050607080014000000000000003c0000"
        "018bcfe568090000ffff"
    ),
    "00000000000000000256": bytes.fromhex(
        "001c00000000000000430000018bcfe5680a0008010203040506070a001c000000000000004a0000"
        "018bcfe5680b0008010203040506070b001400000000000000510000018bcfe5680c0000001c0000"
        "0000000000580000018bcfe5680d0008010203040506070d"
    ),
}


def opened(disk: RecordingDisk) -> ConsumeQueueExt:
    ext = ConsumeQueueExt(disk, "/store", "TopicA", 0, 256)
    ext.recover()
    return ext


def filled() -> tuple[RecordingDisk, ConsumeQueueExt]:
    disk = RecordingDisk()
    ext = opened(disk)
    assert [ext.put(unit) for unit in UNITS] == ADDRESSES
    return disk, ext


def test_bytes_and_addresses_are_apaches() -> None:
    disk, _ = filled()
    assert disk.listdir(DIRECTORY) == list(FILES)
    for name, content in FILES.items():
        assert disk.open(f"{DIRECTORY}/{name}").read(0, 1000) == content.ljust(256, b"\0")


def test_reads_what_apache_wrote_and_goes_on() -> None:
    disk = RecordingDisk()
    for name, content in FILES.items():
        disk.put(f"{DIRECTORY}/{name}", content.ljust(256, b"\0"))
    ext = opened(disk)
    assert [ext.get(address) for address in ADDRESSES] == UNITS
    assert ext.put(UNITS[0]) == ADDRESSES[-1] + 28
    assert ext.get(ADDRESSES[-1] + 28) == UNITS[0]


def test_addresses_are_no_tags_codes() -> None:
    assert is_address(decorate(0)) and is_address(decorate(2**40))
    for tags_code in (0, 1, -1, 2**31 - 1, -(2**31)):
        assert not is_address(tags_code)
    assert undecorate(decorate(12345)) == 12345


def test_what_is_not_there() -> None:
    _, ext = filled()
    assert ext.get(5) is None
    assert ext.get(ext.max_address) is None
    assert ext.get(decorate(10**6)) is None


def test_too_large_for_a_file_is_left_to_the_plain_code() -> None:
    _, ext = filled()
    assert ext.put(ExtUnit(1, BASE, bytes(240))) is None


@pytest.mark.parametrize("keep", range(1, 15))
def test_cut_after_a_unit_survives_a_restart(keep: int) -> None:
    disk, ext = filled()
    ext.truncate_after(ADDRESSES[keep - 1])
    for held in (ext, opened(disk)):
        assert [held.get(address) for address in ADDRESSES] == UNITS[:keep] + [None] * (14 - keep)
    again = opened(disk)
    assert [again.put(unit) for unit in UNITS[keep:]] == ADDRESSES[keep:]


def test_cut_all_and_old_files_go() -> None:
    disk, ext = filled()
    assert ext.truncate_before(ADDRESSES[11]) == 1
    assert ext.min_address == decorate(256)
    assert ext.get(ADDRESSES[0]) is None
    assert ext.get(ADDRESSES[12]) == UNITS[12]
    ext.truncate_all()
    assert disk.listdir(DIRECTORY) == []


def test_a_gap_or_a_wrong_length_is_reported_and_removed() -> None:
    disk, ext = filled()
    for unit in UNITS:
        ext.put(unit)
    disk.unlink(f"{DIRECTORY}/00000000000000000256")
    assert "nothing between 0 and 512" in opened(disk).problems[0]
    assert disk.listdir(DIRECTORY) == ["00000000000000000000"]
    disk.open(f"{DIRECTORY}/00000000000000000000").truncate(100)
    assert "100 bytes long" in opened(disk).problems[0]


def test_rot_is_found() -> None:
    disk, ext = filled()
    disk.rot(f"{DIRECTORY}/00000000000000000000", 39, 4)
    with pytest.raises(CorruptLogError, match="byte 20"):
        ext.get(ADDRESSES[1])


def test_files_to_sync_and_names_that_lead_out() -> None:
    _, ext = filled()
    assert len(ext.flush()) == 2
    assert ext.flush() == []
    with pytest.raises(InvalidArgumentError):
        ConsumeQueueExt(RecordingDisk(), "/store", "../../x", 0, 256)
