"""The recording disk against a model that is too simple to be wrong: whole copies of files at each sync."""

from __future__ import annotations

from hypothesis import example, given, settings
from hypothesis import strategies as st

from aerobee.testing.crash import CrashMode
from aerobee.testing.disk import RecordingDisk
from aerobee.testing.platter import SECTOR

SIZE_MAX = 4 * SECTOR
NAMES = ("/store/a", "/store/b")

steps = st.lists(
    st.one_of(
        st.tuples(
            st.just("write"),
            st.sampled_from(NAMES),
            st.integers(0, SIZE_MAX - 200),
            st.binary(min_size=1, max_size=200),
        ),
        st.tuples(st.just("truncate"), st.sampled_from(NAMES), st.integers(0, SIZE_MAX), st.just(b"")),
        st.tuples(st.sampled_from(["sync", "fail"]), st.sampled_from(NAMES), st.just(0), st.just(b"")),
        st.tuples(st.just("kill"), st.just(""), st.just(0), st.just(b"")),
    ),
    max_size=25,
)


def _apply(data: bytearray, kind: str, offset: int, content: bytes) -> None:
    if kind == "write":
        data.extend(bytes(max(0, offset + len(content) - len(data))))
        data[offset : offset + len(content)] = content
    else:
        del data[offset:]
        data.extend(bytes(offset - len(data)))


def _contents(disk: RecordingDisk, name: str) -> bytes:
    file = disk.open(name)
    return file.read(0, SIZE_MAX)


@settings(max_examples=300, deadline=None)
@given(steps, st.integers(0, 1 << 20))
@example(
    # What a failed sync forgets was cut before: it does not come back when the cut is durable.
    [
        ("write", "/store/b", 0, b"\x01"),
        ("truncate", "/store/b", 0, b""),
        ("fail", "/store/b", 0, b""),
        ("sync", "/store/b", 0, b""),
        ("kill", "", 0, b""),
        ("write", "/store/b", 1, b"\x00"),
    ],
    0,
)
def test_seen_durable_and_crashed_contents(steps: list[tuple[str, str, int, bytes]], seed: int) -> None:
    disk = RecordingDisk()
    for name in NAMES:
        disk.put(name, b"")
    seen = {name: bytearray() for name in NAMES}
    durable = {name: b"" for name in NAMES}
    history: dict[str, list[bytes]] = {name: [b""] for name in NAMES}
    has_failed = False
    for kind, name, offset, content in steps:
        if kind == "kill":
            disk = disk.kill()
            continue
        file = disk.open(name)
        if kind == "sync":
            file.sync()
            durable[name] = bytes(seen[name])
        elif kind == "fail":
            has_failed = True
            disk.fail(1, "sync")
            done: list[OSError | None] = []
            disk.sync([file], done.append)
            assert isinstance(done[0], OSError)
        else:
            getattr(file, kind)(*((offset, content) if kind == "write" else (offset,)))
            _apply(seen[name], kind, offset, content)
            history[name].append(bytes(seen[name]))
        file.close()
    for name in NAMES:
        assert _contents(disk, name) == seen[name]
    if has_failed:
        return
    none, everything = disk.crash(CrashMode.NONE), disk.crash(CrashMode.ALL)
    for name in NAMES:
        assert _contents(none, name) == durable[name]
        assert _contents(everything, name) == seen[name]
    for mode in (CrashMode.RANDOM, CrashMode.PREFIX, CrashMode.SUFFIX):
        image = disk.crash(mode, seed)
        for name in NAMES:
            _require_versions(_contents(image, name), history[name])


def _require_versions(found: bytes, versions: list[bytes]) -> None:
    """Each sector is, as far as the file reaches, one that the file once had (or zeros behind a lost
    write)."""
    for at in range(0, len(found), SECTOR):
        end = min(at + SECTOR, len(found))
        possible = {version[at:end].ljust(end - at, b"\0") for version in versions} | {bytes(end - at)}
        assert found[at:end] in possible
