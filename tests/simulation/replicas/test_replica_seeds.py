"""Seeds of the simulation of replicas: no promise is broken, and a seed is the same run each time."""

from __future__ import annotations

import msgspec
import pytest

from aerobee.replication import link, transfer
from aerobee.replication.frames import DIALECT, WordsKind, encode_words
from aerobee.testing.simulation.replicas.run import run_replicas

# What these seeds found first: see the names of the bugs from 33 on in planted.py, and the commit messages.
_FOUND = {
    55: "a change of the set from an earlier life made a process lead its old epoch",
    625: "an epoch without records barred its replica from following",
    12: "an empty log was taken for a lost one",
    738: "a master that failed left the set to a member that was gone",
    2439: "a torn record of a follower was taken for a whole one",
    10480: "a follower that had synced nothing acknowledged what it had at its handshake",
    2737: "a late request of a replica was taken for another process",
    104183: "a log that a power cut had emptied did not begin where the master's did",
    104300: "queues that were being built again at a stop missed messages after the next start",
    104401: "a master that stopped left the set to a member that was gone",
    2901: "a master that failed left the set to a member that was dead behind a cut",
}


@pytest.mark.timeout(300)
@pytest.mark.parametrize("first", range(0, 60, 20))
def test_no_promise_is_broken(first: int) -> None:
    for seed in range(first, first + 20):
        assert run_replicas(seed).problems == [], f"make simulate SEEDS={seed} ARGS=--bare-replicas"


@pytest.mark.parametrize("seed", _FOUND)
def test_what_a_seed_found_stays_mended(seed: int) -> None:
    assert run_replicas(seed).problems == []


@pytest.mark.parametrize("seed", [0, 1])
def test_a_seed_is_one_run(seed: int) -> None:
    one, other = run_replicas(seed), run_replicas(seed)
    assert (one.digest, one.events) == (other.digest, other.events)
    assert one.counts["acknowledged"] > 0


def test_a_newer_follower_speaks_the_dialect_of_its_master(monkeypatch: pytest.MonkeyPatch) -> None:
    """During a rolling upgrade the followers come first: they offer the next version, and are answered in this one."""

    def newer(kind: WordsKind, body: msgspec.Struct, version: int = DIALECT + 1) -> bytes:
        return encode_words(kind, body, version)

    monkeypatch.setattr(link, "encode_words", newer)
    monkeypatch.setattr(link, "DIALECT", DIALECT + 1)
    outcome = run_replicas(3)
    assert outcome.problems == []
    assert outcome.counts["acknowledged"] > 0


def test_a_newer_master_answers_in_the_dialect_of_its_follower(monkeypatch: pytest.MonkeyPatch) -> None:
    answered: list[int | None] = []
    choose = transfer.dialect_for

    def noting(theirs: int) -> int | None:
        answered.append(choose(theirs))
        return answered[-1]

    monkeypatch.setattr(transfer, "DIALECT", DIALECT + 1)
    monkeypatch.setattr("aerobee.replication.feed.dialect_for", noting)
    outcome = run_replicas(3)
    assert outcome.problems == []
    assert set(answered) == {DIALECT}


def test_a_master_that_is_two_versions_ahead_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transfer, "DIALECT", DIALECT + 2)
    monkeypatch.setattr(transfer, "DIALECT_OLDEST", DIALECT + 1)
    assert transfer.dialect_for(DIALECT) is None
    assert any("do not become level" in problem for problem in run_replicas(3).problems)
