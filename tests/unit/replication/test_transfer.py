"""What a follower and a master do with each other's words and frames."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from aerobee.errors import RemoteProtocolError
from aerobee.replication.epochs import Epochs
from aerobee.replication.frames import Begin, Data, Hello, Welcome
from aerobee.replication.transfer import (
    FollowerTransfer,
    LogsPartError,
    MasterLog,
    dialect_for,
    first_record_size,
    is_proof,
    parting_point,
    proof_of,
    whole_records,
    why_not_begun,
    why_refused,
)
from aerobee.replication.values import Epoch, GroupState, GroupView, ReplicaMember

A, B = "a" * 32, "b" * 32


def epochs(*pairs: tuple[int, int]) -> Epochs:
    return Epochs(Epoch(number=number, start=start) for number, start in pairs)


LOG = MasterLog(
    cluster="c", group="g", id=1, epoch=3, epochs=epochs((1, 0), (3, 100)), start=0, end=300, confirmed=250,
    segment_size=1024, release="",
)  # fmt: skip
HELLO = Hello(cluster="c", group="g", id=2, incarnation=B, epoch=3, epochs=[(1, 0)], start=0, end=90, segment_size=1024)
VIEW = GroupView(
    state=GroupState(),
    members={
        2: ReplicaMember(id=2, incarnation=B, address="", ha_address=""),
        3: ReplicaMember(id=3, incarnation=A, address="", ha_address="", learner=True),
    },
)
WELCOME = Welcome(id=1, epoch=3, epochs=[(1, 0), (3, 100)], start=0, end=300, confirmed=250)


# ---- the handshake


def test_a_member_is_welcome() -> None:
    assert why_refused(HELLO, LOG, VIEW) is None


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"group": "other"}, "stranger"),
        ({"cluster": "other"}, "stranger"),
        ({"segment_size": 2048}, "stranger"),
        ({"epoch": 4}, "stale"),
        ({"id": 9}, "wrong"),
        ({"id": 1}, "wrong"),
        ({"incarnation": A}, "wrong"),
        ({"learner": True}, "wrong"),
        ({"id": 3, "incarnation": A}, "wrong"),
        ({"start": 91}, "wrong"),
    ],
)
def test_others_are_refused(change: dict[str, object], reason: str) -> None:
    refusal = why_refused(msgspec.structs.replace(HELLO, **change), LOG, VIEW)
    assert refusal is not None and refusal.reason == reason


@pytest.mark.parametrize(
    ("own", "end", "point"),
    [
        (((1, 0),), 90, 90),
        (((1, 0),), 150, 100),  # what a deposed master wrote behind the next epoch goes
        (((1, 0), (2, 80)), 150, 80),
        (((1, 0), (3, 100)), 300, 300),
        ((), 0, 0),
    ],
)
def test_a_log_is_cut_where_it_parts(own: tuple[tuple[int, int], ...], end: int, point: int) -> None:
    assert parting_point(epochs(*own), 0, end, 0, WELCOME) == point
    hello = msgspec.structs.replace(HELLO, epochs=list(own), end=end)
    assert why_not_begun(Begin(epoch=3, written=point, stored=point), hello, LOG) is None


def test_a_log_is_never_cut_below_what_is_confirmed() -> None:
    with pytest.raises(LogsPartError, match="confirmed up to 120"):
        parting_point(epochs((1, 0)), 0, 150, 120, WELCOME)


def test_an_empty_log_begins_at_the_master_s_first_record() -> None:
    later = msgspec.structs.replace(WELCOME, start=2048, end=4096)
    assert parting_point(Epochs(), 0, 0, 0, later) == 2048
    with pytest.raises(LogsPartError, match="begins at 2048"):
        parting_point(epochs((1, 0)), 0, 90, 90, later)


@pytest.mark.parametrize("end", [90, 2048, 3000])
def test_a_log_that_ends_before_the_master_s_first_record_is_behind(end: int) -> None:
    """The master has dropped the epochs before its first record, so there is nothing to compare."""
    later = msgspec.structs.replace(WELCOME, epochs=[(3, 2000)], start=2048, end=4096)
    with pytest.raises(LogsPartError, match=f"ends at {end} .* begins at 2048"):
        parting_point(epochs((1, 0)), 0, end, 60, later)


@pytest.mark.parametrize("written", [0, 89, 91, 300, 1 << 40])
def test_a_follower_is_not_believed_to_be_elsewhere(written: int) -> None:
    refusal = why_not_begun(Begin(epoch=3, written=written, stored=0), HELLO, LOG)
    assert refusal is not None and refusal.reason == "wrong"


def test_a_follower_of_another_epoch_does_not_begin() -> None:
    refusal = why_not_begun(Begin(epoch=2, written=90, stored=90), HELLO, LOG)
    assert refusal is not None and refusal.reason == "stale"


def test_a_follower_behind_the_first_record_is_told_so() -> None:
    refusal = why_not_begun(Begin(epoch=3, written=90, stored=90), HELLO, replace(LOG, start=128))
    assert refusal is not None and refusal.reason == "behind"


def test_a_list_of_epochs_without_sense_ends_the_connection() -> None:
    with pytest.raises(RemoteProtocolError, match="no sense"):
        parting_point(epochs((1, 0)), 0, 90, 0, msgspec.structs.replace(WELCOME, epochs=[(3, 0), (1, 5)]))


def test_a_proof_needs_the_secret_and_both_nonces() -> None:
    proof = proof_of(b"secret", "begin", "n1", "n2", 2)
    assert is_proof(b"secret", proof, "begin", "n1", "n2", 2)
    assert not is_proof(b"other", proof, "begin", "n1", "n2", 2)
    assert not is_proof(b"secret", proof, "begin", "n1", "n3", 2)
    assert not is_proof(b"secret", proof, "welcome", "n1", "n2", 2)
    assert not is_proof(b"secret", "", "begin", "n1", "n2", 2)
    assert is_proof(b"", "", "begin")


def test_versions_meet_at_the_older_one() -> None:
    assert dialect_for(1) == 1
    assert dialect_for(9) == 1
    assert dialect_for(0) is None


# ---- the stream


def test_frames_continue_the_log() -> None:
    transfer = FollowerTransfer(3, 90)
    own = epochs((1, 0))
    taken = transfer.take(Data(90, 1, 95, 1, b"x" * 10), own, 90)
    assert (taken.new_epoch, taken.confirmed) == (None, 95)
    assert transfer.take(Data(100, 3, 99, 1, b"y"), own, 100).new_epoch == 3
    assert transfer.take(Data(100, 3, 400, 1, b""), own, 100) == transfer.take(Data(100, 3, 100, 1, b""), own, 100)


@pytest.mark.parametrize(
    "data",
    [
        Data(89, 1, 0, 1, b"x"),
        Data(91, 1, 0, 1, b"x"),
        Data(0, 1, 0, 1, b"x"),
        Data(90, 4, 0, 1, b"x"),
        Data(90, 0, 0, 1, b"x"),
    ],
)
def test_a_frame_that_does_not_fit_ends_the_connection(data: Data) -> None:
    with pytest.raises(RemoteProtocolError):
        FollowerTransfer(3, 90).take(data, epochs((1, 0)), 90)


def test_an_empty_log_acknowledges_where_it_begins() -> None:
    ack = FollowerTransfer(3, 2048).ack(0, 0, 5)
    assert (ack.written, ack.stored) == (2048, 2048)


def test_what_is_written_and_not_yet_synced_is_not_acknowledged() -> None:
    ack = FollowerTransfer(3, 474).ack(948, 0, 5)
    assert (ack.written, ack.stored) == (948, 0)


def test_frames_end_at_whole_records() -> None:
    records = (10).to_bytes(4, "big") + bytes(6) + (8).to_bytes(4, "big") + bytes(4)
    assert whole_records(records) == 18
    assert whole_records(records[:-1]) == 10
    assert whole_records(records[:9]) == 0
    assert whole_records(bytes(20)) == 0
    assert first_record_size(records) == 10
    assert first_record_size(b"\xff\xff\xff\xff") == 0
