from aerobee.store.rocksdb import rocksdb_with_data
from aerobee.testing.disk import RecordingDisk


def test_empty_database_that_apache_always_makes_is_no_data() -> None:
    disk = RecordingDisk()
    assert rocksdb_with_data(disk, "/store") is None
    for name in ("CURRENT", "IDENTITY", "MANIFEST-000005", "OPTIONS-000009"):
        disk.put(f"/store/rocksdbstore/{name}", b"x")
    disk.put("/store/rocksdbstore/000004.log", b"")
    assert rocksdb_with_data(disk, "/store") is None


def test_a_table_or_a_written_log_is() -> None:
    for path in ("/store/rocksdbstore/000006.sst", "/store/consumequeue_rocksdb/000004.log"):
        disk = RecordingDisk()
        disk.put(path, b"x")
        assert rocksdb_with_data(disk, "/store") == path.rpartition("/")[0]
