"""Every command of the pages for operators is run as it stands, in the order of its page."""

from __future__ import annotations

import contextlib
import re
import shlex
import string
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from aerobee import AerobeeError, DeadLetter, Message, MessageQueue, sync
from aerobee.cli.main import main
from aerobee.testing.cluster import LocalCluster
from aerobee.testing.clusterkit import fill
from aerobee.testing.waiting import wait_until

PAGES = Path(__file__).parents[2] / "docs" / "operations"
RUN = ("install.md", "runbook.md", "upgrade.md", "backup.md", "commands.md")
# Commands of the pages that talk to no cluster.
ALONE = ("store", "broker", "namesrv")


def commands(page: str) -> list[str]:
    blocks = re.findall(r"^```sh\n(.*?)^```", (PAGES / page).read_text(), re.MULTILINE | re.DOTALL)
    return [line for block in blocks for line in block.splitlines() if line and not line.startswith("#")]


def test_every_command_of_a_block_is_ours() -> None:
    for page in RUN:
        assert commands(page), page
        for line in commands(page):
            assert line.startswith("aerobee "), (page, line)


@pytest.mark.parametrize("page", RUN)
def test_the_commands_of_the_page(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    data = tmp_path / "data"
    # That page also removes a second broker for good, and moves a group that has stopped.
    has_stopped = page == "commands.md"
    with LocalCluster(2 if has_stopped else 1, data=data) as cluster:
        cluster.create_topic("orders", 1)
        queue = MessageQueue("orders", cluster.broker_name(0), 0)
        receipts = fill(cluster.namesrv, "orders", 3, queue=queue)
        with sync.Admin(cluster.namesrv) as admin:
            admin.groups.create("billing")
        values = {
            "ID": receipts[0].message_id,
            "STORE": str(data / cluster.broker_name(0)),
            "BACKUP": str(tmp_path / "backup"),
            "RESTORED": str(tmp_path / "restored"),
            "NAMESRV": cluster.namesrv,
        }
        with contextlib.ExitStack() as stack:
            consumer = sync.PushConsumer(cluster.namesrv, group="billing", consume_from="first")
            consumer.listener("orders")(give_up)
            stack.enter_context(consumer)
            values["LETTER"] = wait_until(lambda: first_letter(cluster))
            if has_stopped:
                stack.close()
            for line in commands(page):
                if "cluster forget" in line and "--dry-run" in line:
                    cluster.kill(1)
                # Nobody sends here, so nobody has to learn of a drain.
                words = shlex.split(string.Template(line.replace("--wait 35", "--wait 1")).substitute(values))[1:]
                if words[0] not in ALONE:
                    words += ["-n", cluster.namesrv]
                result = CliRunner().invoke(main, words)
                assert result.exit_code == 0, (line, result.output, result.stderr)


def give_up(message: Message) -> None:
    """Take every message but the first, which becomes a dead letter."""
    if message.queue_offset == 0:
        raise DeadLetter("it cannot be handled")


def first_letter(cluster: LocalCluster) -> str:
    """Return the id of the dead letter, or nothing before there is one."""
    with sync.Admin(cluster.namesrv) as admin:
        try:
            letters = admin.dead_letters.list("billing")
        except AerobeeError:
            return ""
    return next((letter.message.message_id for letter in letters), "")


def options_of(command: click.Command) -> set[str]:
    found = {"-h", "--help"}
    for one in command.params:
        found |= {*one.opts, *one.secondary_opts}
    return found


def test_commands_in_the_text_have_the_options_that_they_name() -> None:
    """A command within a sentence or a table has placeholders, so it is not run; its names are looked up."""
    looked_at = 0
    for page in PAGES.glob("*.md"):
        for text in re.findall(r"`aerobee ([a-z][^`]*)`", page.read_text()):
            words = shlex.split(text.replace("[", " ").replace("]", " "))
            command = main.get_command(None, words[0])  # type: ignore[arg-type]
            for word in words[1:]:
                if isinstance(command, click.Group) and not word.startswith("-"):
                    command = command.commands[word]
            assert command is not None, (page.name, text)
            for word in words:
                if re.match(r"--?[a-z]", word):
                    looked_at += 1
                    assert word in options_of(command), (page.name, text, word)
    assert looked_at > 20


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
