"""One flipped bit: found, contained, never served. `make bit-flips` does ten thousand."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from aerobee._pure import is_compiled
from aerobee.hot.log.record import VERIFY_NONE, decode_record
from aerobee.store import reads, statefile
from aerobee.store.offline.directory import look_at
from aerobee.store.offline.verify import verify
from aerobee.store.reads import Reads
from aerobee.testing.bitflips import BitFlipError, run_seed, summary
from aerobee.testing.clock import VirtualClock
from aerobee.testing.crashcheck import read_all
from aerobee.testing.disk import RecordingDisk
from aerobee.testing.recordcases import draft_of
from aerobee.testing.storeshapes import ROOT, Shape

FIRST = f"{ROOT}/commitlog/00000000000000000000"


def test_three_hundred_flips(capsys: pytest.CaptureFixture[str]) -> None:
    tally = run_seed(9000, 100)
    for seed in (9001, 9002):
        tally.add(run_seed(seed, 100))
    assert tally.flips == 300 == tally.detected.total() + tally.meaningless.total()
    assert {"commitlog", "consumequeue", "index", "checkpoint", "topics.json"} <= set(tally.detected)
    with capsys.disabled():
        print("\n" + summary(tally).partition("\n")[0])


def unsealed() -> Shape:
    return Shape(
        sync_flush=True,
        segment_size=16384,
        units_per_file=16,
        with_index=False,
        late_syncs=False,
        queue_count=1,
        topic_count=1,
        with_crc=False,
    )


def test_of_an_unsealed_record_every_bit_of_the_body_counts() -> None:
    """As Apache writes them by default: only the body has a checksum. Its neighbours stay readable."""
    shape, clock, base = unsealed(), VirtualClock(), RecordingDisk()
    store = shape.store(base, clock)
    store.open()
    drafts = [draft_of(b"body number %d" % number, properties={"UNIQ_KEY": f"{number}"}) for number in range(3)]
    for draft in drafts:
        store.append([draft])
    sound = read_all(store, b"orders", 0)
    store.close()
    hit = drafts[1].physical_offset
    body_at = sound[1].index(b"body number")
    for position in range(body_at, body_at + len(drafts[1].body)):
        for bit in range(8):
            disk = base.kill()
            disk.rot(FIRST, hit + position, 1 << bit)
            problem = verify(look_at(disk.kill(), ROOT, config=shape.config())).findings.problems[0]
            assert problem.path == "commitlog/" + FIRST.rpartition("/")[2]
            after = shape.store(disk, clock)
            after.open()
            assert read_all(after, b"orders", 0) == [sound[0], sound[2]]
            assert len(after.damages) == 1


def test_of_an_unsealed_record_no_bit_takes_a_neighbour_along() -> None:
    """What its checksum does not cover may be served as it is now; sizes and places are still compared."""
    shape, clock, base = unsealed(), VirtualClock(), RecordingDisk()
    store = shape.store(base, clock)
    store.open()
    for number in range(3):
        store.append([draft_of(b"body number %d" % number, properties={"UNIQ_KEY": f"{number}"})])
    sound = read_all(store, b"orders", 0)
    store.close()
    start = len(sound[0])
    for position in range(start, start + len(sound[1])):
        disk = base.kill()
        disk.rot(FIRST, position, 1 << position % 8)
        after = shape.store(disk, clock)
        after.open()
        served = read_all(after, b"orders", 0)
        assert [record for record in served if record in sound] == [sound[0], sound[2]]
        assert all(decode_record(record, 0).body == b"body number 1" for record in served if record not in sound)


def serve_unread(patch: pytest.MonkeyPatch) -> None:
    """Serve records without a look at their checksums."""
    patch.setattr(reads, "check_record", lambda data, pos, physical, verify: len(data))


def serve_anything(patch: pytest.MonkeyPatch) -> None:
    """Serve whatever a unit points at."""
    patch.setattr(Reads, "_is_right", lambda self, *_: True)


def believe_state(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(statefile, "unseal", lambda content: content.rstrip())
    patch.setattr("aerobee.store.offline.checkstate.unseal", lambda content: content)


def start_without_checksums(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("aerobee.store.opening._verify_level", lambda config: VERIFY_NONE)
    patch.setattr(reads, "check_record", lambda data, pos, physical, verify: len(data))
    patch.setattr("aerobee.store.lookup.check_record", lambda data, pos, physical, verify: len(data))


def cut_at_rot(patch: pytest.MonkeyPatch) -> None:
    """End the log at the first bad record. RocketMQ: CommitLog.recoverAbnormally."""
    patch.setattr("aerobee.store.recovery._take_damage", lambda *_: False)


@pytest.mark.skipif(is_compiled(), reason="compiled classes call each other past what is planted")
@pytest.mark.parametrize("bug", [serve_unread, serve_anything, believe_state, start_without_checksums, cut_at_rot])
def test_a_planted_bug_is_found(bug: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch) -> None:
    bug(monkeypatch)
    with pytest.raises(BitFlipError):
        for seed in (4, 5, 6, 7):  # the first is a killed store: its tail is looked at again
            run_seed(seed, 150)
