"""Our mqadmin beside Apache's against one secure cluster: the commands about users and rights, and the endless one.

Both tools run on the same cluster with TLS and users. Before each command the cluster is brought into the same state.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from click.testing import CliRunner

from aerobee.cli.main import main
from aerobee.cli.mqadmin.users import COMMANDS
from aerobee.testing import apache
from aerobee.testing.cluster import LocalCluster
from aerobee.testing.javasession import PATIENT, JavaSession
from aerobee.testing.mqadmincases import masked
from aerobee.testing.waiting import wait_until

# How a stack trace goes on, which Apache's tool prints to stderr and the session in between.
_TRACE = re.compile(r"(\s+at |\s+\.\.\. |Caused by: |org\.apache\.rocketmq\S*Exception|For more information)")
ACL = "-s User:alice -r Topic:orders,Group:billing -a Pub,Sub"
MADE = "createUser -b {a} -u alice -p alicesecret"
GRANTED = f"createAcl -b {{a}} {ACL} -d Allow"


@dataclass(frozen=True)
class Case:
    """One command line. `before` leads to the state in which it is run; users that it names are removed first."""

    words: str
    before: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return re.sub(r"[{}]", "", self.words)


CASES = (
    Case("createUser -c C -u alice -p alicesecret"),
    Case("createUser -b {a} -u alice -p alicesecret -t Super"),
    Case("createUser -b {a} -u alice -p alicesecret", (MADE,)),
    Case("createUser -c NOPE -u alice -p alicesecret"),
    Case("updateUser -c C -u alice -p changed", (MADE, MADE.replace("{a}", "{b}"))),
    Case("updateUser -b {a} -u alice -s disable", (MADE,)),
    Case("updateUser -b {a} -u alice -t Super", (MADE,)),
    Case("updateUser -b {a} -u alice -p changed"),
    Case("getUser -b {a} -u alice", (MADE,)),
    Case("getUser -c C -u alice", (MADE,)),
    Case("getUser -b {a} -u alice"),
    Case("listUser -b {a} -f ali", (MADE, "createUser -b {a} -u alina -p alinasecret -t Super")),
    Case("listUser -c C -f ali", (MADE,)),
    Case("listUser -b {a} -f nobody"),
    Case("deleteUser -c C -u alice", (MADE,)),
    Case("deleteUser -b {a} -u alice"),
    Case("copyUser -f {a} -t {b} -u alice", (MADE,)),
    Case("copyUser -f {a} -t {b} -u alice,alina", (MADE, "createUser -b {a} -u alina -p alinasecret")),
    Case("copyUser -f {a} -t {b}", (MADE,)),
    Case(f"createAcl -c C {ACL} -d Allow", (MADE, MADE.replace("{a}", "{b}"))),
    Case(f"createAcl -b {{a}} {ACL} -i 10.0.0.0/8,127.0.0.1 -d Deny", (MADE,)),
    Case(f"createAcl -b {{a}} {ACL} -d Allow"),
    Case("createAcl -b {a} -s User:alice -r Topic:* -a All -d Allow", (MADE,)),
    Case("updateAcl -b {a} -s User:alice -r Topic:orders -a Pub -d Deny", (MADE, GRANTED)),
    Case("getAcl -b {a} -s User:alice", (MADE, GRANTED)),
    Case("getAcl -c C -s User:alice", (MADE, GRANTED)),
    Case("getAcl -b {a} -s User:alice", (MADE,)),
    Case("listAcl -b {a} -s alice", (MADE, GRANTED)),
    Case("listAcl -b {a} -s alice -r Group", (MADE, GRANTED)),
    Case("listAcl -b {a} -s nobody"),
    Case("deleteAcl -b {a} -s User:alice -r Topic:orders", (MADE, GRANTED)),
    Case("deleteAcl -c C -s User:alice", (MADE, GRANTED, MADE.replace("{a}", "{b}"), GRANTED.replace("{a}", "{b}"))),
    Case("copyAcl -f {a} -t {b} -s User:alice", (MADE, GRANTED, MADE.replace("{a}", "{b}"))),
    Case("copyAcl -f {a} -t {b}", (MADE, GRANTED, MADE.replace("{a}", "{b}"))),
)


@dataclass
class Stand:
    cluster: LocalCluster
    session: JavaSession
    home: Path
    system: dict[str, str]

    def words(self, text: str) -> list[str]:
        values = {"a": self.cluster.broker_address(0), "b": self.cluster.broker_address(1)}
        return [word.format(**values) for word in text.split()]

    def ours(self, text: str) -> str:
        security = self.cluster.security
        assert security is not None
        variables = {"ROCKETMQ_HOME": str(self.home), "AEROBEE_TLS": "true", "AEROBEE_TLS_CA": str(security.ca)}
        words = ["mqadmin", *self.words(text), "-n", self.cluster.namesrv]
        result = CliRunner().invoke(main, words, env=variables)
        assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
        return result.stdout

    def theirs(self, text: str) -> str:
        told = self.session.mqadmin(*self.words(text))
        return "".join(line for line in told.splitlines(keepends=True) if not _TRACE.match(line))

    def lead_to(self, case: Case) -> None:
        """Bring both brokers into the state in which the command is run."""
        for name in ("alice", "alina"):
            for broker in ("{a}", "{b}"):
                self.ours(f"deleteUser -b {broker} -u {name}")
        for text in case.before:
            assert "success" in self.ours(text), text


@pytest.fixture(scope="module")
def stand(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stand]:
    reason = apache.unavailable()
    if reason:
        pytest.skip(reason)
    work = tmp_path_factory.mktemp("users")
    with LocalCluster(brokers=2, cluster="C", secure=True, settings=PATIENT) as cluster:
        security = cluster.security
        assert security is not None
        conf = work / "home" / "conf"
        conf.mkdir(parents=True)
        keys = f"accessKey: {security.admin.access_key}\nsecretKey: {security.admin.secret_key}\n"
        (conf / "tools.yml").touch(0o600)
        (conf / "tools.yml").write_text(keys)
        system = {
            "tls.enable": "true", "tls.test.mode.enable": "false", "tls.client.authServer": "true",
            "tls.client.trustCertPath": str(security.ca), "tls.config.file": str(work / "none.properties"),
            "rocketmq.home.dir": str(work / "home"),
        }  # fmt: skip
        with JavaSession(work / "session", cluster.namesrv, system=system) as session:
            yield Stand(cluster, session, work / "home", system)


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_the_same_text_about_users_and_rights(stand: Stand, case: Case) -> None:
    stand.lead_to(case)
    theirs = stand.theirs(case.words)
    stand.lead_to(case)
    # Apache's tool always prints passwords.
    secrets = " --show-secrets" if case.words.split()[0] in ("getUser", "listUser") else ""
    assert compared(stand.ours(case.words + secrets)) == compared(theirs)


def compared(text: str) -> list[str]:
    """Return the lines that are not empty, without what two runs do not share."""
    return [line.rstrip() for line in masked(text).splitlines() if line.strip()]


def test_every_command_about_users_is_compared() -> None:
    assert {case.words.split()[0] for case in CASES} == set(COMMANDS)


def test_the_endless_command_prints_the_same_rows(stand: Stand, tmp_path: Path) -> None:
    """Test 30, clusterRT: Apache's tool is ended when it has measured each broker once."""
    rows = 3  # the head, and one for each broker
    words = ["clusterRT", "-a", "2", "-i", "60", "-n", stand.cluster.namesrv]
    main_class = "org.apache.rocketmq.tools.command.MQAdminStartup"
    with apache.JavaProcess(apache.driver_classpath(), main_class, words, tmp_path / "rt", system=stand.system) as tool:

        def measured() -> list[str]:
            lines = compared(masked(tool.output.read_text(errors="replace"), loose=True))
            return [line for line in lines if re.match(r"#Cluster Name|C  ", line)]

        wait_until(lambda: len(measured()) >= rows, lambda: tool.output.read_text(errors="replace"))
        theirs = measured()[:rows]
    mine = compared(masked(stand.ours("clusterRT -a 2 -i 0"), loose=True))
    assert sorted(mine) == sorted(theirs)
