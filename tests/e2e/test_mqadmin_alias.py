"""`aerobee mqadmin` as scripts use it: the bytes of Apache's tool, and exit codes that tell the truth."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from aerobee.cli.main import main
from aerobee.cli.mqadmin.command import COMMANDS, EXIT_VARIABLE
from aerobee.cli.mqadmin.elsewhere import ELSEWHERE
from aerobee.testing.cluster import LocalCluster
from aerobee.testing.commands import aerobee
from aerobee.testing.mqadmincases import CASES, CaseValues, masked, place_of, prepare

ROOT = Path(__file__).parents[2]
GOLDEN = ROOT / "tests" / "golden" / "data" / "mqadmin"


@pytest.fixture(scope="module")
def stand() -> Iterator[tuple[LocalCluster, CaseValues]]:
    with LocalCluster(cluster="C") as cluster, prepare(cluster) as prepared:
        yield cluster, place_of(cluster, prepared)


def run(cluster: LocalCluster, *words: str) -> Result:
    result = CliRunner().invoke(main, ["mqadmin", *words, "-n", cluster.namesrv])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


def test_mqadmin_alias_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each command prints what Apache's mqadmin printed about a cluster in the same state."""
    monkeypatch.chdir(tmp_path)
    kept = [case.file for case in CASES if case.kept]
    assert sorted(kept) == sorted(path.name for path in GOLDEN.iterdir())
    # The commands change the cluster, so a second try needs a new one.
    with LocalCluster(cluster="C") as cluster, prepare(cluster) as prepared:
        place = place_of(cluster, prepared)
        for case in CASES:
            words = [word.format(**place.words()) for word in case.words.split("|")]
            text = masked(run(cluster, *words).stdout, loose=case.loose)
            if case.kept:
                assert text == (GOLDEN / case.file).read_text(), case.words


def test_mqadmin_alias_exit(stand: tuple[LocalCluster, CaseValues], monkeypatch: pytest.MonkeyPatch) -> None:
    cluster, place = stand
    failures = {
        ("brokerStatus", "-b", "127.0.0.1:1"): 3,
        ("topicRoute", "-t", "nope"): 1,
        ("deleteTopic", "-c", "NOPE", "-t", "Orders"): 1,
        ("updateTopicPerm", "-b", "127.0.0.1:1", "-t", "Orders", "-p", "6"): 1,
        ("consumerConnection", "-g", "nobody"): 1,
        ("consumerProgress", "-g", "nobody"): 1,
        ("queryMsgByUniqueKey", "-t", "Orders", "-i", "0" * 32): 1,
        ("queryMsgByOffset", "-t", "Orders", "-b", place.name, "-i", "0", "-o", "999"): 1,
        ("updateBrokerConfig", "-c", "C", "-k", "nonsense", "-v", "1"): 1,
        ("deleteExpiredCommitLog", "-c", "NOPE"): 1,
    }
    for words, status in failures.items():
        result = run(cluster, *words)
        assert (result.exit_code, words) == (status, words)
        assert "Traceback" not in result.stderr
    assert "Orders" in run(cluster, "topicList").stdout.split()
    wrong = {
        ("topicRoute",): "Missing required option: t",
        ("updateTopic", "-t", "x"): "Missing required option: [-b",
        ("topicRoute", "-t"): "Missing argument for option: t",
        ("topicRoute", "-t", "x", "-z"): "Unrecognized option: -z",
        ("brokerStatus", "-b", "x", "-c", "y"): "already been selected",
        ("updateTopic", "-c", "C", "-t", "x", "-r", "many"): "-r many is not a number",
        ("nonsense",): "The sub command nonsense not exist.",
        ("setCommitLogReadAheadMode",): "a thread of its own",
    }
    for words, told in wrong.items():
        result = run(cluster, *words)
        assert result.exit_code == 2 and told in result.output, (words, result.output)
    nobody = aerobee("mqadmin", "topicList", "-n", "127.0.0.1:1")
    assert nobody.returncode == 3 and "no name server answers" in nobody.stderr
    monkeypatch.setenv(EXIT_VARIABLE, "0")
    for words in failures:
        assert run(cluster, *words).exit_code == 0, words
    # Apache's ends with a failure for wrong options only.
    assert run(cluster, "topicRoute").exit_code == 2


@pytest.mark.parametrize("words", ["-tOrders", "--topic=Orders", "--topic Orders", "--top Orders", "-topic Orders"])
def test_options_are_read_as_apaches_parser_reads_them(stand: tuple[LocalCluster, CaseValues], words: str) -> None:
    assert run(stand[0], "topicClusterList", *words.split()).stdout == "C\n"


def test_help_names_every_twin(stand: tuple[LocalCluster, CaseValues]) -> None:
    text = CliRunner().invoke(main, ["mqadmin"]).stdout
    assert text.startswith("The most commonly used mqadmin commands are:\n")
    assert set(re.findall(r"^   (\w+)", text, re.MULTILINE)) == set(COMMANDS)
    one = CliRunner().invoke(main, ["mqadmin", "help", "topicroute"]).stdout
    assert one.startswith("usage: mqadmin topicRoute") and "-t,--topic <arg>" in one
    assert CliRunner().invoke(main, ["mqadmin", "topicRoute", "-h"]).stdout == one


def test_the_keys_of_tools_yml_sign_what_is_sent(tmp_path: Path) -> None:
    from aerobee.cli.mqadmin.command import tools_credentials

    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "tools.yml").write_text("# keys\naccessKey: rocketmq2\nsecretKey: '12345678' # secret\n")
    found = tools_credentials({"ROCKETMQ_HOME": str(tmp_path)})
    assert found is not None and (found.access_key, found.secret_key) == ("rocketmq2", "12345678")
    assert tools_credentials({}) is None


def test_all_96_sub_commands_are_on_the_page() -> None:
    page = (ROOT / "docs" / "mqadmin.md").read_text()
    rows = dict(re.findall(r"^\| `(\w+)` \| (\w+) \|", page, re.MULTILINE))
    assert len(rows) == 96
    assert {name for name, twin in rows.items() if twin == "yes"} == set(COMMANDS)
    assert {name for name, twin in rows.items() if twin == "no"} == set(ELSEWHERE)
