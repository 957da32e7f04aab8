import pytest

from aerobee.config.apachekeys import APACHE_KEYS
from aerobee.config.loader import Source, load
from aerobee.config.setting import settings_of
from aerobee.errors import ConfigError
from aerobee.store.config import BrokerRole, FlushDiskType, StoreConfig, parse_delay_levels

# Every key of seed note 000, in its (4.x) spelling, with the value it states.
NOTE_000 = {
    "storePathRootDir": "/data/store",
    "storePathCommitLog": "/data/store/commitlog",
    "mapedFileSizeCommitLog": "1073741824",
    "mapedFileSizeConsumeQueue": "6000000",
    "enableConsumeQueueExt": "false",
    "mappedFileSizeConsumeQueueExt": "50331648",
    "bitMapLengthConsumeQueueExt": "64",
    "flushIntervalCommitLog": "500",
    "commitIntervalCommitLog": "200",
    "useReentrantLockWhenPutMessage": "false",
    "flushCommitLogTimed": "false",
    "flushIntervalConsumeQueue": "1000",
    "cleanResourceInterval": "10000",
    "deleteCommitLogFilesInterval": "100",
    "deleteConsumeQueueFilesInterval": "100",
    "destroyMapedFileIntervalForcibly": "120000",
    "redeleteHangedFileInterval": "120000",
    "deleteWhen": "04",
    "diskMaxUsedSpaceRatio": "75",
    "fileReservedTime": "72",
    "putMsgIndexHightWater": "600000",
    "maxMessageSize": "4194304",
    "checkCRCOnRecover": "true",
    "flushCommitLogLeastPages": "4",
    "commitCommitLogLeastPages": "4",
    "flushLeastPagesWhenWarmMapedFile": "4096",
    "flushConsumeQueueLeastPages": "2",
    "flushCommitLogThoroughInterval": "10000",
    "commitCommitLogThoroughInterval": "200",
    "flushConsumeQueueThoroughInterval": "60000",
}
# Where 5.5.0 (and we) differ from the note.
CHANGED = {"useReentrantLockWhenPutMessage", "flushCommitLogTimed", "storePathRootDir", "storePathCommitLog"}


def test_every_key_of_the_note_is_honoured() -> None:
    loaded = load([StoreConfig], Source("note", NOTE_000))
    assert set(loaded.origins) == {key.replace("mapedFileSize", "mappedFileSize") for key in NOTE_000}
    assert loaded.get(StoreConfig).flush_commit_log_timed is False
    for key, text in NOTE_000.items():
        if key not in CHANGED:
            assert load([StoreConfig], Source("note", {key: text})).configs == (StoreConfig(),), key


def test_every_key_is_one_of_apaches() -> None:
    for one in settings_of(StoreConfig):
        assert one.own or APACHE_KEYS[one.java] == "MessageStoreConfig", one.java


def test_derived_values() -> None:
    config = StoreConfig()
    assert config.delay_levels_ms[:3] == (1000, 5000, 10_000)
    assert config.delay_levels_ms[-1] == 7_200_000
    assert len(config.delay_levels_ms) == 18
    assert config.delete_hours == {4}
    assert StoreConfig(delete_when="4; 16").delete_hours == {4, 16}
    assert not config.sync_flush
    assert StoreConfig(flush_disk_type=FlushDiskType.SYNC_FLUSH).sync_flush
    assert config.broker_role is BrokerRole.ASYNC_MASTER
    assert parse_delay_levels("1d 2h") == (86_400_000, 7_200_000)


def test_queue_files_hold_whole_units() -> None:
    assert StoreConfig(mapped_file_size_consume_queue=21).mapped_file_size_consume_queue == 40
    assert StoreConfig(mapped_file_size_consume_queue=6_000_000).mapped_file_size_consume_queue == 6_000_000


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("maxMessageSize", "2000000000"),
        ("mappedFileSizeCommitLog", "100000"),
        ("messageDelayLevel", "1s 5x"),
        ("messageDelayLevel", ""),
        ("messageDelayLevel", "s"),
        ("deleteWhen", "24"),
        ("deleteWhen", "four"),
        ("storeType", "defaultRocksDB"),
        ("inSyncReplicas", "2"),
        ("minInSyncReplicas", "2"),
        ("flushDiskType", "SYNC"),
        ("flushIntervalCommitLog", "0"),
        ("mappedFileSizeCommitLog", "2147483648"),
        ("maxIndexNum", "1"),
    ],
)
def test_what_cannot_be(key: str, text: str) -> None:
    with pytest.raises(ConfigError, match=r"maxMessageSize|" + key):
        load([StoreConfig], Source("x", {key: text}))


def test_ratios_are_clamped_as_apache_does() -> None:
    config = StoreConfig(
        disk_max_used_space_ratio=99, disk_space_clean_forcibly_ratio=99, disk_space_warning_level_ratio=99
    )
    ratios = (
        config.disk_max_used_space_ratio,
        config.disk_space_clean_forcibly_ratio,
        config.disk_space_warning_level_ratio,
    )
    assert ratios == (95, 85, 90)


def test_filter_bit_maps_are_refused_in_words() -> None:
    with pytest.raises(ConfigError, match="enableConsumeQueueExt: filter bit maps are not built"):
        load([StoreConfig], Source("broker.conf", {"enableConsumeQueueExt": "true"}))
