"""Our mqadmin beside Apache's against the same cluster: the same words of the command line, the same text on stdout.

Masked is only what two runs of one tool do not share: times of the clock, ids of clients and of messages sent by a run.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from click.testing import CliRunner

from aerobee import sync
from aerobee.cli.main import main
from aerobee.cli.mqadmin.command import COMMANDS
from aerobee.testing import apache
from aerobee.testing.cluster import LocalCluster
from aerobee.testing.javasession import PATIENT, JavaSession
from aerobee.testing.mqadmincases import CASES, Case, CaseValues, masked, place_of, prepare

GOLDEN = Path(__file__).parents[1] / "golden" / "data" / "mqadmin"
_TRACE = re.compile(
    r"(\tat |\t\.\.\. |Caused by: |org\.apache\.rocketmq\S*Exception|For more information|"
    r"See https\S+ for further details\.$)"
)


@dataclass
class Stand:
    cluster: LocalCluster
    session: JavaSession
    place: CaseValues
    consumer: sync.PushConsumer
    producer: sync.Producer


@pytest.fixture(scope="module")
def stand(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stand]:
    reason = apache.unavailable()
    if reason:
        pytest.skip(reason)
    work = tmp_path_factory.mktemp("twins")
    with (
        LocalCluster(brokers=2, namesrvs=2, cluster="C", settings=PATIENT) as cluster,
        JavaSession(work / "session", cluster.namesrv) as session,
        prepare(cluster) as prepared,
    ):
        yield Stand(cluster, session, place_of(cluster, prepared), prepared.consumer, prepared.producer)


def ours(stand: Stand, words: list[str]) -> str:
    result = CliRunner().invoke(main, ["mqadmin", *words, "-n", stand.cluster.namesrv])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.stdout


@pytest.mark.parametrize("case", CASES, ids=[case.file for case in CASES])
def test_the_same_text(stand: Stand, case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    words = [word.format(**stand.place.words()) for word in case.words.split("|")]
    theirs = stand.session.mqadmin(*words)
    if case.again:
        for again in case.again:
            ours(stand, [word.format(**stand.place.words()) for word in again.split("|")])
    mine = ours(stand, words)
    assert masked(mine, loose=case.loose) == masked(without_traces(theirs), loose=case.loose)


def without_traces(text: str) -> str:
    """Return the text without Java's stack traces, which go to stderr, and without the frame in a track."""
    text = re.sub(r", org\.apache\.rocketmq\.[\w.$]+\(\w+\.java:\d+\)", "", text)
    return "".join(line for line in text.splitlines(keepends=True) if not _TRACE.match(line))


def test_every_twin_is_compared() -> None:
    endless = {"clusterRT"}
    with_access_control = {name for name in COMMANDS if name.endswith(("User", "Acl"))}
    assert {case.words.split("|")[0] for case in CASES} | endless | with_access_control == set(COMMANDS)


def test_the_golden_files_are_made_by_apaches_tool(tmp_path: Path) -> None:
    """With AEROBEE_RECORD=1 the files are written. They belong to a cluster of one broker."""
    reason = apache.unavailable()
    if reason:
        pytest.skip(reason)
    with (
        LocalCluster(cluster="C", settings=PATIENT) as cluster,
        JavaSession(tmp_path / "session", cluster.namesrv) as session,
        prepare(cluster) as prepared,
    ):
        place = place_of(cluster, prepared)
        for case in CASES:
            words = [word.format(**place.words()) for word in case.words.split("|")]
            text = masked(without_traces(session.mqadmin(*words)), loose=case.loose)
            file = GOLDEN / case.file
            if case.kept and os.environ.get("AEROBEE_RECORD"):
                GOLDEN.mkdir(exist_ok=True)
                file.write_text(text)
            assert not case.kept or file.read_text() == text, case.words
