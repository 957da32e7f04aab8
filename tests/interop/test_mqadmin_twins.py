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
from aerobee.cli.mqadmin.elsewhere import ELSEWHERE
from aerobee.cli.mqadmin.users import COMMANDS as USER_COMMANDS
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
    # These need users, or are endless: test_mqadmin_users.py compares them.
    elsewhere = {"clusterRT", *USER_COMMANDS}
    assert {case.words.split("|")[0] for case in CASES} | elsewhere == set(COMMANDS)


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


# What has no twin: Apache's command line against our servers, and a part of what it prints.
NO_REPLICAS = "this broker has no replicas"
COLD = "there is no flow control of cold reads"
REST = {
    "updateTopicList": ("-c|C|-f|{topics}", "success, please check the result later"),
    "updateSubGroupList": ("-c|C|-f|{groups}", "success, please check the result later"),
    "setConsumeMode": ("-c|C|-t|Orders|-g|billing|-m|PULL", "success"),
    "sendMsgStatus": ("-b|broker-a|-c|2", "SEND_OK"),
    "allocateMQ": ("-t|Orders|-i|1,2", '"queueId":1'),
    "checkMsgSendRT": ("-t|Orders|-a|2", "Avg RT:"),
    "queryCq": ("-t|Orders|-q|0|-i|0|-c|1|-b|{a}", "physicOffset="),
    "exportMetadata": ("-c|C|-f|{exports}", "metadata.json success"),
    "exportConfigs": ("-c|C|-f|{exports}", "configs.json success"),
    "exportMetrics": ("-c|C|-f|{exports}", "metrics.json success"),
    "exportPopRecord": ("-b|{a}", "Export broker records"),
    "resetMasterFlushOffset": ("-b|{a}|-o|0", "replicas agree by themselves"),
    "checkRocksdbCqWriteProgress": ("-c|C", "there is no RocksDB store"),
    "rocksDBConfigToJson": ("-c|C|-t|topics", "there is no RocksDB store"),
    "switchTimerEngine": ("-c|C|-e|F", "RocksDB timers do not exist"),
    "getBrokerEpoch": ("-c|C", NO_REPLICAS),
    "getSyncStateSet": ("-a|{a}|-b|broker-a", NO_REPLICAS),
    "getControllerMetaData": ("-a|{a}", NO_REPLICAS),
    "getControllerConfig": ("-a|{a}", NO_REPLICAS),
    "updateControllerConfig": ("-a|{a}|-k|a|-v|b", "there is no controller"),
    "electMaster": ("-a|{a}|-b|1|-bn|broker-a|-c|C", NO_REPLICAS),
    "cleanBrokerMetadata": ("-a|{a}|-bn|broker-a|-b|5|-c|C", NO_REPLICAS),
    "getColdDataFlowCtrInfo": ("-b|{a}", COLD),
    "updateColdDataFlowCtrGroupConfig": ("-b|{a}|-g|g|-v|1", COLD),
    "removeColdDataFlowCtrGroupConfig": ("-b|{a}|-g|g", COLD),
    "setCommitLogReadAheadMode": ("-b|{a}|-m|0", "there is no read mode"),
    "addBroker": ("-c|{a}|-b|/x", "there is no broker container"),
    "removeBroker": ("-c|{a}|-b|C:broker-a:0", "there is no broker container"),
    "updateStaticTopic": ("-c|C|-t|S|-qn|2", "a broker serves no static topics"),
    "getBrokerLiteInfo": ("-b|{a}", "lite topics do not exist"),
    "getParentTopicInfo": ("-p|Orders", "[broker-a] error."),
    "getLiteTopicInfo": ("-p|Orders|-l|x", "[broker-a] error."),
    "getLiteClientInfo": ("-p|Orders|-g|g|-c|x", "[broker-a] error."),
    "getLiteGroupInfo": ("-p|Orders|-g|g", "[broker-a] error."),
    "triggerLiteDispatch": ("-p|Orders|-g|g|-b|broker-a", "error"),
}
# They need no server, run for ever, or need what `updateStaticTopic` makes.
NOT_RUN = {"exportMetadataInRocksDB", "dumpCompactionLog", "startMonitoring", "remappingStaticTopic"}


def test_every_sub_command_is_run() -> None:
    assert set(REST) | NOT_RUN == set(ELSEWHERE)


@pytest.mark.parametrize("name", REST)
def test_the_rest_of_apaches_sub_commands(stand: Stand, name: str, tmp_path: Path) -> None:
    (tmp_path / "topics.json").write_text('[{"topicName":"L1"},{"topicName":"L2"}]')
    (tmp_path / "groups.json").write_text('[{"groupName":"l1"},{"groupName":"l2"}]')
    values = {name: tmp_path / f"{name}.json" for name in ("topics", "groups")}
    words, expected = REST[name]
    text = stand.session.mqadmin(
        name, *(word.format(a=stand.place.a, exports=tmp_path, **values) for word in words.split("|"))
    )
    assert expected in text, text
