"""The HA protocol as Apache's brokers speak it. `record_ha.py` recorded the bytes."""

from __future__ import annotations

from pathlib import Path

import pytest

from aerobee.replication.classic.frames import (
    ClassicWords,
    LearnerWords,
    MasterWords,
    Reports,
    encode_head,
    encode_report,
)
from aerobee.replication.classic.incoming import IncomingRecords

DATA = Path(__file__).parent / "data" / "ha"


def learner() -> LearnerWords:
    return LearnerWords(99)


@pytest.mark.parametrize(("name", "make"), [("classic", ClassicWords), ("controlled", learner)])
@pytest.mark.parametrize("size", [1, 13, 4096])
def test_a_masters_bytes_become_its_log(name: str, make: type[MasterWords], size: int) -> None:
    sent, log = (DATA / f"{name}-master.bin").read_bytes(), (DATA / f"{name}-log.bin").read_bytes()
    words, incoming, stored = make(), IncomingRecords(0, 1 << 20), b""
    heartbeats = 0
    for at in range(0, len(sent), size):
        for transfer in words.feed(sent[at : at + size]):
            heartbeats += not transfer.data
            stored += incoming.feed(transfer.offset, transfer.data)
    assert stored == log
    assert heartbeats >= 1


def test_our_master_writes_the_same_heads() -> None:
    sent, log = (DATA / "classic-master.bin").read_bytes(), (DATA / "classic-log.bin").read_bytes()
    assert sent.startswith(encode_head(0, len(log)) + log + encode_head(len(log), 0))


def test_a_learners_master_tells_its_epochs() -> None:
    words = learner()
    words.feed((DATA / "controlled-master.bin").read_bytes())
    assert words.epochs == [(1, 0)]


def test_a_slaves_bytes_are_reports() -> None:
    said = (DATA / "classic-slave.bin").read_bytes()
    offsets = Reports().feed(said)
    assert offsets[0] == 0, "an empty slave says where its log ends"
    assert offsets[-1] == int((DATA / "classic-slave-end.txt").read_text())
    assert offsets == sorted(offsets)
    assert said == b"".join(encode_report(offset) for offset in offsets)
