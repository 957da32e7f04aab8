"""Every command of the runbook, of backup, install and upgrade is run as it stands, in the order of its page."""

from __future__ import annotations

import re
import shlex
import string
from pathlib import Path

import pytest
from click.testing import CliRunner

from aerobee import MessageQueue, sync
from aerobee.cli.main import main
from aerobee.testing.cluster import LocalCluster
from aerobee.testing.clusterkit import fill

PAGES = Path(__file__).parents[2] / "docs" / "operations"
RUN = ("install.md", "runbook.md", "upgrade.md", "backup.md")
# Commands of the pages that talk to no cluster.
ALONE = ("store", "broker", "namesrv")


def commands(page: str) -> list[str]:
    blocks = re.findall(r"^```sh\n(.*?)^```", (PAGES / page).read_text(), re.MULTILINE | re.DOTALL)
    return [line for block in blocks for line in block.splitlines() if line]


def test_every_command_of_a_block_is_ours() -> None:
    for page in RUN:
        assert commands(page), page
        for line in commands(page):
            assert line.startswith("aerobee "), (page, line)


@pytest.mark.parametrize("page", RUN)
def test_the_commands_of_the_page(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    data = tmp_path / "data"
    with LocalCluster(data=data) as cluster:
        cluster.create_topic("orders", 1)
        queue = MessageQueue("orders", cluster.broker_name(0), 0)
        receipts = fill(cluster.namesrv, "orders", 3, queue=queue)
        with sync.Admin(cluster.namesrv) as admin:
            admin.groups.create("billing")
        consumer = sync.PushConsumer(cluster.namesrv, group="billing", consume_from="first")
        consumer.listener("orders")(lambda message: None)
        values = {
            "ID": receipts[0].message_id,
            "STORE": str(data / cluster.broker_name(0)),
            "BACKUP": str(tmp_path / "backup"),
            "RESTORED": str(tmp_path / "restored"),
            "NAMESRV": cluster.namesrv,
        }
        with consumer:
            for line in commands(page):
                words = shlex.split(string.Template(line).substitute(values))[1:]
                if words[0] not in ALONE:
                    words += ["-n", cluster.namesrv]
                result = CliRunner().invoke(main, words)
                assert result.exit_code == 0, (line, result.output, result.stderr)


def test_what_the_pages_name_in_passing_exists() -> None:
    """A command in the text, such as `aerobee replica force`, is one that there is."""
    named = set()
    for page in PAGES.glob("*.md"):
        named |= set(re.findall(r"`aerobee ([a-z]+(?: [a-z]+)?)", page.read_text()))
    assert len(named) > 20
    for words in named:
        first, _, second = words.partition(" ")
        group = main.get_command(None, first)  # type: ignore[arg-type]
        assert group is not None, words
        if second and hasattr(group, "commands"):
            assert second in group.commands, words
