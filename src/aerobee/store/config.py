"""The settings of the store, under RocketMQ's keys and with the defaults of its MessageStoreConfig (5.5.0).

One default differs, on purpose: `enabledAppendPropCRC` is on, so that records carry a checksum of the whole.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from aerobee.config.setting import INT_MAX, LONG_MAX, Settings, setting
from aerobee.hot.log.layout import UNIT_SIZE, UNITS_PER_FILE
from aerobee.model.numbers import INT32_MAX, int_or

_DELAY_UNITS_MS: Final = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}

_NO_POOL: Final = "No effect: the log is written by pwrite, there is no second buffer to commit from."
_NO_WARM: Final = "No effect: blocks are reserved ahead and files are not written through a mapping."
_ONE_WRITER: Final = "No effect: the store has a single writer and takes no put lock."
_NO_EXT: Final = "No effect: filter bit maps are not kept."
# The text of settings that promise safety by replicas.
ONE_BROKER: Final = (
    "Without coordinatorAddr any other value than the default is refused: nothing counts who is in sync."
)


class FlushDiskType(enum.Enum):
    """When a message counts as stored."""

    ASYNC_FLUSH = "ASYNC_FLUSH"
    SYNC_FLUSH = "SYNC_FLUSH"


class BrokerRole(enum.Enum):
    """The part a broker plays in its group."""

    ASYNC_MASTER = "ASYNC_MASTER"
    SYNC_MASTER = "SYNC_MASTER"
    SLAVE = "SLAVE"


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreConfig(Settings):
    """Every setting of the store."""

    # Where things are
    store_path_root_dir: str = setting(
        "~/store", java="storePathRootDir", doc="Root directory of the store; a leading ~ is the user's home."
    )
    store_path_commit_log: str | None = setting(
        None, java="storePathCommitLog", doc="Directory of the commit log; empty means `commitlog` under the root."
    )

    # Sizes of files
    mapped_file_size_commit_log: int = setting(
        1024 * 1024 * 1024,
        java="mappedFileSizeCommitLog",
        aliases=("mapedFileSizeCommitLog",),
        minimum=4096,
        doc="Bytes of one commit log segment.",
    )
    mapped_file_size_consume_queue: int = setting(
        UNITS_PER_FILE * UNIT_SIZE,
        java="mappedFileSizeConsumeQueue",
        aliases=("mapedFileSizeConsumeQueue",),
        minimum=UNIT_SIZE,
        maximum=INT_MAX - UNIT_SIZE,
        doc="Bytes of one consume queue file, rounded up to whole 20-byte units.",
    )
    enable_consume_queue_ext: bool = setting(
        False, java="enableConsumeQueueExt", doc="Keep filter bit maps beside the queues. Not built: true is refused."
    )
    mapped_file_size_consume_queue_ext: int = setting(
        48 * 1024 * 1024,
        java="mappedFileSizeConsumeQueueExt",
        effect=_NO_EXT,
        aliases=("mapedFileSizeConsumeQueueExt",),
        minimum=256,
        doc="Bytes of one consume queue extension file.",
    )
    bit_map_length_consume_queue_ext: int = setting(
        64, java="bitMapLengthConsumeQueueExt", effect=_NO_EXT, maximum=8 * 32_000, doc="Bits of a filter bit map."
    )

    # Flushing the log
    flush_disk_type: FlushDiskType = setting(
        FlushDiskType.ASYNC_FLUSH,
        java="flushDiskType",
        doc="SYNC_FLUSH acknowledges a message once synced to disk, ASYNC_FLUSH once written.",
    )
    flush_interval_commit_log_ms: int = setting(
        500,
        java="flushIntervalCommitLog",
        minimum=1,
        reloadable=True,
        doc="Milliseconds between flushes of the commit log.",
    )
    flush_commit_log_timed: bool = setting(
        True,
        java="flushCommitLogTimed",
        reloadable=True,
        doc="Flush by the interval alone; false flushes also as soon as enough pages were written.",
    )
    flush_commit_log_least_pages: int = setting(
        4,
        java="flushCommitLogLeastPages",
        reloadable=True,
        doc="Pages of 4 KiB that must be waiting before a flush happens.",
    )
    flush_commit_log_thorough_interval_ms: int = setting(
        10_000,
        java="flushCommitLogThoroughInterval",
        reloadable=True,
        doc="Milliseconds after which whatever waits is flushed, however little.",
    )
    sync_flush_timeout_ms: int = setting(
        5000,
        java="syncFlushTimeout",
        minimum=1,
        reloadable=True,
        doc="Milliseconds a send waits for its flush before it is answered FLUSH_DISK_TIMEOUT.",
    )
    put_message_timeout_ms: int = setting(
        8000,
        java="putMessageTimeout",
        effect="No effect, as in Apache: a put waits for the disk alone, syncFlushTimeout at most.",
        minimum=1,
        doc="Milliseconds a put may take in all.",
    )
    commit_interval_commit_log_ms: int = setting(
        200,
        java="commitIntervalCommitLog",
        effect=_NO_POOL,
        doc="Milliseconds between commits of the transient pool.",
    )
    commit_commit_log_least_pages: int = setting(
        4,
        java="commitCommitLogLeastPages",
        effect=_NO_POOL,
        doc="Pages that must be waiting before the transient pool is committed.",
    )
    commit_commit_log_thorough_interval_ms: int = setting(
        200,
        java="commitCommitLogThoroughInterval",
        effect=_NO_POOL,
        doc="Milliseconds after which the transient pool is committed, however little waits.",
    )
    transient_store_pool_enable: bool = setting(
        False, java="transientStorePoolEnable", effect=_NO_POOL, doc="Write through a pool of direct buffers."
    )
    transient_store_pool_size: int = setting(
        5, java="transientStorePoolSize", effect=_NO_POOL, doc="Buffers of that pool."
    )
    fast_fail_if_no_buffer_in_store_pool: bool = setting(
        False,
        java="fastFailIfNoBufferInStorePool",
        effect=_NO_POOL,
        doc="Refuse a put when that pool has no buffer left.",
    )
    use_reentrant_lock_when_put_message: bool = setting(
        True,
        java="useReentrantLockWhenPutMessage",
        effect=_ONE_WRITER,
        doc="Use a mutex instead of a spin lock around a put.",
    )
    warm_mapped_file_enable: bool = setting(
        False,
        java="warmMapedFileEnable",
        aliases=("warmMappedFileEnable",),
        effect=_NO_WARM,
        doc="Touch every page of a new segment.",
    )
    flush_least_pages_when_warm_mapped_file: int = setting(
        1024 // 4 * 16,
        java="flushLeastPagesWhenWarmMapedFile",
        aliases=("flushLeastPagesWhenWarmMappedFile",),
        effect=_NO_WARM,
        doc="Pages touched between two flushes while warming.",
    )

    # Flushing what is derived
    flush_interval_consume_queue_ms: int = setting(
        1000,
        java="flushIntervalConsumeQueue",
        minimum=1,
        reloadable=True,
        doc="Milliseconds between flushes of the consume queues.",
    )
    flush_consume_queue_least_pages: int = setting(
        2,
        java="flushConsumeQueueLeastPages",
        effect="No effect: a round flushes whatever waits.",
        doc="Pages of a queue that must be waiting before it is flushed.",
    )
    flush_consume_queue_thorough_interval_ms: int = setting(
        60_000,
        java="flushConsumeQueueThoroughInterval",
        reloadable=True,
        doc="Milliseconds after which every queue is flushed and the checkpoint written.",
    )
    flush_delay_offset_interval_ms: int = setting(
        10_000,
        java="flushDelayOffsetInterval",
        minimum=1,
        maximum=LONG_MAX,
        doc="Milliseconds between saves of the delay levels' progress.",
    )

    # Messages
    max_message_size: int = setting(
        4 * 1024 * 1024,
        java="maxMessageSize",
        minimum=1,
        maximum=16 * 1024 * 1024,
        reloadable=True,
        doc="Largest message body in bytes.",
    )
    message_delay_level: str = setting(
        "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h",
        java="messageDelayLevel",
        doc="The delay of each level from 1 on; units s, m, h, d.",
    )
    timer_wheel_enable: bool = setting(
        True, java="timerWheelEnable", doc="Serve messages with a delivery time of their own."
    )
    timer_precision_ms: int = setting(
        1_000,
        java="timerPrecisionMs",
        minimum=100,
        maximum=1_000,
        doc="Slot of delivery times: 100, 200, 500 or 1000. A message is never early and at most this late.",
    )
    timer_max_delay_s: int = setting(
        3 * 86_400, java="timerMaxDelaySec", reloadable=True, doc="Seconds of the longest delay a message may ask for."
    )
    timer_roll_window_slots: int = setting(
        2 * 86_400,
        java="timerRollWindowSlot",
        minimum=1,
        doc="A timed message is stored again after this many slots, so that its record outlives retention.",
    )
    enabled_append_prop_crc: bool = setting(
        True,
        java="enabledAppendPropCRC",
        doc="Write a checksum of the whole record into the property `__CRC32#` (Apache's default is false).",
    )
    force_verify_prop_crc: bool = setting(
        False, java="forceVerifyPropCRC", doc="Treat a record without that checksum as damaged."
    )
    check_crc_on_recover: bool = setting(
        True, java="checkCRCOnRecover", doc="Check the checksums of the records that recovery reads."
    )
    put_msg_index_high_water: int = setting(
        600_000,
        java="putMsgIndexHightWater",
        effect="No effect: messages are dispatched with the write that stores them.",
        aliases=("putMsgIndexHighWater",),
        minimum=1,
        doc="Messages that may wait for dispatch before puts are slowed.",
    )
    max_transfer_bytes_on_message_in_memory: int = setting(
        256 * 1024,
        java="maxTransferBytesOnMessageInMemory",
        minimum=1,
        reloadable=True,
        doc="Largest pull answer in bytes when the messages are in memory.",
    )
    max_transfer_count_on_message_in_memory: int = setting(
        32,
        java="maxTransferCountOnMessageInMemory",
        minimum=1,
        reloadable=True,
        doc="Most messages of a pull answer when they are in memory.",
    )
    max_transfer_bytes_on_message_in_disk: int = setting(
        64 * 1024,
        java="maxTransferBytesOnMessageInDisk",
        minimum=1,
        reloadable=True,
        doc="Largest pull answer in bytes when the messages must be read from disk.",
    )
    max_transfer_count_on_message_in_disk: int = setting(
        8,
        java="maxTransferCountOnMessageInDisk",
        minimum=1,
        reloadable=True,
        doc="Most messages of a pull answer when they must be read from disk.",
    )
    access_message_in_memory_max_ratio: int = setting(
        40,
        java="accessMessageInMemoryMaxRatio",
        maximum=100,
        reloadable=True,
        doc="Percent of the machine's memory. So much of the newest log counts as being in memory.",
    )
    pull_batch_max_message_count: int = setting(
        160,
        java="pullBatchMaxMessageCount",
        effect="No effect, as in Apache: the limits of one transfer count.",
        minimum=1,
        doc="Most messages one pull may ask for.",
    )
    max_filter_message_size: int = setting(
        16_000,
        java="maxFilterMessageSize",
        minimum=20,
        reloadable=True,
        doc="Bytes of consume queue that one filtered pull looks through.",
    )

    # Index
    message_index_enable: bool = setting(True, java="messageIndexEnable", doc="Build the index of message keys.")
    message_index_safe: bool = setting(
        False,
        java="messageIndexSafe",
        effect="No effect: the index always has a position of its own, from which it is continued.",
        doc="Let recovery also consider how far the index has come.",
    )
    max_hash_slot_num: int = setting(
        5_000_000, java="maxHashSlotNum", minimum=1, maximum=500_000_000, doc="Hash slots of one index file."
    )
    max_index_num: int = setting(
        20_000_000, java="maxIndexNum", minimum=2, maximum=100_000_000, doc="Entries of one index file."
    )
    max_msgs_num_batch: int = setting(
        64, java="maxMsgsNumBatch", minimum=1, reloadable=True, doc="Most messages that a query by key answers with."
    )
    default_query_max_num: int = setting(
        32,
        java="defaultQueryMaxNum",
        minimum=1,
        reloadable=True,
        doc="Messages that a query by unique key answers with.",
    )

    # Retention
    file_reserved_time_hours: int = setting(
        72, java="fileReservedTime", reloadable=True, doc="Hours a segment is kept after its last message."
    )
    log_max_bytes: int = setting(
        0, java="logMaxBytes", maximum=LONG_MAX, reloadable=True, own=True,
        doc="The oldest segments are deleted while the log is larger, whatever their age and the hour; 0: any size.",
    )  # fmt: skip
    delete_when: str = setting(
        "04",
        java="deleteWhen",
        reloadable=True,
        doc="Hours of the day, separated by semicolons, in which expired segments are deleted.",
    )
    disk_max_used_space_ratio: int = setting(
        75,
        java="diskMaxUsedSpaceRatio",
        minimum=10,
        maximum=95,
        clamp=True,
        reloadable=True,
        doc="Percent of disk in use above which expired segments are deleted at any hour.",
    )
    disk_space_clean_forcibly_ratio: int = setting(
        85,
        java="diskSpaceCleanForciblyRatio",
        minimum=30,
        maximum=85,
        clamp=True,
        reloadable=True,
        doc="Percent of disk in use above which the oldest segments are deleted even if not expired.",
    )
    disk_space_warning_level_ratio: int = setting(
        90,
        java="diskSpaceWarningLevelRatio",
        minimum=35,
        maximum=90,
        clamp=True,
        reloadable=True,
        doc="Percent of disk in use above which messages are refused.",
    )
    clean_file_forcibly_enable: bool = setting(
        True,
        java="cleanFileForciblyEnable",
        reloadable=True,
        doc="Allow the deletion of segments that are not expired when the disk is nearly full.",
    )
    archive_path: str | None = setting(
        None,
        java="archivePath",
        own=True,
        doc="Path of an archive. Only segments it holds, verified, are deleted. Else a full disk refuses messages.",
    )
    clean_resource_interval_ms: int = setting(
        10_000, java="cleanResourceInterval", minimum=1, doc="Milliseconds between looks at what may be deleted."
    )
    delete_commit_log_files_interval_ms: int = setting(
        100,
        java="deleteCommitLogFilesInterval",
        reloadable=True,
        doc="Milliseconds between the deletion of two segments.",
    )
    delete_consume_queue_files_interval_ms: int = setting(
        100,
        java="deleteConsumeQueueFilesInterval",
        effect="No effect: they are unlinked together.",
        doc="Milliseconds between the deletion of two consume queue files.",
    )
    delete_file_batch_max: int = setting(
        10, java="deleteFileBatchMax", minimum=1, reloadable=True, doc="Most segments deleted in one round."
    )
    destroy_mapped_file_interval_forcibly_ms: int = setting(
        120_000,
        java="destroyMapedFileIntervalForcibly",
        aliases=("destroyMappedFileIntervalForcibly",),
        effect="No effect: a deleted file stays readable until its readers close it.",
        doc="Milliseconds a deleted file waits for its readers.",
    )
    redelete_hanged_file_interval_ms: int = setting(
        120_000,
        java="redeleteHangedFileInterval",
        effect="No effect: unlinking does not wait for readers, so no file hangs.",
        doc="Milliseconds between attempts to delete a file that readers held.",
    )

    # Recovery
    max_recovery_commitlog_files: int = setting(
        30,
        java="maxRecoveryCommitlogFiles",
        minimum=1,
        effect="No effect: recovery starts from the checkpoint's offset, however many files that is.",
        doc="Most segments that recovery reads.",
    )
    check_commit_log_offset_on_recover: bool = setting(
        False,
        java="checkCommitLogOffsetOnRecover",
        effect="No effect: recovery always checks that a record names its own offset.",
        doc="Check that a recovered record names its own offset.",
    )

    # Replication
    broker_role: BrokerRole = setting(
        BrokerRole.ASYNC_MASTER,
        java="brokerRole",
        doc="ASYNC_MASTER, SYNC_MASTER (a send waits for inSyncReplicas) or SLAVE (with a brokerId above 0).",
    )
    ha_listen_port: int | None = setting(
        None,
        java="haListenPort",
        minimum=0,
        maximum=65535,
        doc="Port that slaves connect to; 0 is a free port. Empty is listenPort + 1 where the broker has slaves "
        "(SYNC_MASTER, or totalReplicas above 1), and no port where it has none.",
    )
    ha_send_heartbeat_interval_ms: int = setting(
        5000, java="haSendHeartbeatInterval", minimum=1, doc="Milliseconds between heartbeats of replication."
    )
    ha_housekeeping_interval_ms: int = setting(
        20_000,
        java="haHousekeepingInterval",
        minimum=1,
        doc="Milliseconds of silence after which a replication connection is closed.",
    )
    ha_transfer_batch_size: int = setting(
        32 * 1024,
        java="haTransferBatchSize",
        minimum=1,
        maximum=4 * 1024 * 1024,
        doc="Bytes sent to a slave at once. A single record may be larger.",
    )
    ha_master_address: str | None = setting(
        None,
        java="haMasterAddress",
        doc="Address of the master's HA port; empty means the name server tells. The name server still tells where "
        "the master itself is.",
    )
    ha_max_gap_not_in_sync: int = setting(
        256 * 1024 * 1024,
        java="haMaxGapNotInSync",
        minimum=1,
        doc="Bytes a slave may be behind and still be shown as in sync.",
    )
    slave_timeout_ms: int = setting(
        3000, java="slaveTimeout", minimum=1, doc="Milliseconds a send waits for its replicas."
    )
    total_replicas: int = setting(
        1, java="totalReplicas", minimum=1, maximum=100, doc="Brokers of the group, the master included."
    )
    in_sync_replicas: int = setting(
        1,
        java="inSyncReplicas",
        minimum=1,
        maximum=100,
        doc="Brokers, the master included, that must hold a SYNC_MASTER's message before it is acknowledged.",
    )
    min_in_sync_replicas: int = setting(
        1,
        java="minInSyncReplicas",
        minimum=1,
        maximum=100,
        doc=f"Fewest in sync that still allow a send. {ONE_BROKER}",
    )

    # Others
    store_type: str = setting("default", java="storeType", doc="Only `default` (files); RocksDB is refused.")
    os_page_cache_busy_time_out_ms: int = setting(
        1000,
        java="osPageCacheBusyTimeOutMills",
        minimum=1,
        maximum=LONG_MAX,
        reloadable=True,
        doc="Milliseconds an append may take before new sends are answered busy.",
    )
    read_uncommitted: bool = setting(
        False,
        java="readUnCommitted",
        effect="No effect: readers never see what is not yet safe.",
        doc="Dispatch beyond the confirmed offset.",
    )
    disk_fall_recorded: bool = setting(
        True,
        java="diskFallRecorded",
        effect="No effect: the queues are asked for it on demand.",
        doc="Record how far behind the log's end each pull reads.",
    )

    def __post_init__(self) -> None:
        Settings.__post_init__(self)
        # RocketMQ: MessageStoreConfig.getMappedFileSizeConsumeQueue rounds up to whole units.
        units = -(-self.mapped_file_size_consume_queue // UNIT_SIZE)
        object.__setattr__(self, "mapped_file_size_consume_queue", units * UNIT_SIZE)

    def relations(self) -> Iterator[str]:
        """Yield a sentence for each value that cannot be honoured or that contradicts another."""
        if not self.store_path_root_dir.strip():
            # The store would lie in the current directory, among whatever is there.
            yield "storePathRootDir: it names no directory"
        if self.enable_consume_queue_ext:
            yield "enableConsumeQueueExt: filter bit maps are not built. Take the key out; filters read the messages"
        if self.max_message_size >= self.mapped_file_size_commit_log:
            # A record never crosses a segment's end, so one that is larger could never be written.
            yield (
                f"maxMessageSize: {self.max_message_size} does not fit into a segment "
                f"(mappedFileSizeCommitLog {self.mapped_file_size_commit_log})"
            )
        if self.store_path_commit_log is not None and "," in self.store_path_commit_log:
            yield f"storePathCommitLog: {self.store_path_commit_log!r} names several directories, only one is supported"
        if self.in_sync_replicas > self.total_replicas:
            yield f"inSyncReplicas: {self.in_sync_replicas} exceeds totalReplicas {self.total_replicas}"
        if self.min_in_sync_replicas > self.total_replicas:
            yield f"minInSyncReplicas: {self.min_in_sync_replicas} exceeds totalReplicas {self.total_replicas}"
        if self.store_type != "default":
            yield f"storeType: {self.store_type!r} is not supported, only 'default' is"
        try:
            parse_delay_levels(self.message_delay_level)
        except ValueError as error:
            yield f"messageDelayLevel: {error}"
        if self.timer_precision_ms not in (100, 200, 500, 1000):
            yield f"timerPrecisionMs: {self.timer_precision_ms} is none of 100, 200, 500, 1000"
        try:
            parse_hours(self.delete_when)
        except ValueError as error:
            yield f"deleteWhen: {error}"

    @property
    def sync_flush(self) -> bool:
        """Tell whether a send waits for its flush."""
        return self.flush_disk_type is FlushDiskType.SYNC_FLUSH

    @property
    def delay_levels_ms(self) -> tuple[int, ...]:
        """Return the delay of each level; level 1 is the first."""
        return parse_delay_levels(self.message_delay_level)

    @property
    def delete_hours(self) -> frozenset[int]:
        """Return the hours of the day in which expired segments are deleted."""
        return parse_hours(self.delete_when)


def parse_delay_levels(text: str) -> tuple[int, ...]:
    """Return levels such as `1s 5s 1m` in milliseconds. RocketMQ: ScheduleMessageService.parseDelayLevel."""
    levels = []
    for word in text.split():
        number, unit = word[:-1], word[-1]
        count = int_or(number, None, 0, INT32_MAX) if number.isdecimal() else None
        if unit not in _DELAY_UNITS_MS or count is None:
            raise ValueError(f"{word!r} is not a number (at most {INT32_MAX}) followed by s, m, h or d")
        levels.append(count * _DELAY_UNITS_MS[unit])
    if not levels:
        raise ValueError("no level is named")
    return tuple(levels)


def parse_hours(text: str) -> frozenset[int]:
    """Return hours of the day such as `04;16`. RocketMQ: UtilAll.isItTimeToDo."""
    hours = set()
    for word in text.split(";"):
        hour = int_or(word.strip(), None, 0, 23)
        if hour is None:
            raise ValueError(f"{word!r} is not an hour from 0 to 23")
        hours.add(hour)
    return frozenset(hours)
