"""The command itself: it finds the sub-command, reads its options, runs it, and chooses the exit code.

Apache's mqadmin ends with 0 after most failures. This one ends with 1, 2 or 3 as every command of ours does.
AEROBEE_MQADMIN_EXIT=0 restores Apache's codes for scripts that count on them.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping, Sequence
from typing import Final

import click

from aerobee.admin.connection import AdminConnection
from aerobee.cli.mqadmin import brokers, groups, messages, offsets, printing, topics, users
from aerobee.cli.mqadmin.elsewhere import ELSEWHERE
from aerobee.cli.mqadmin.options import WrongOptionsError, parse, usage
from aerobee.cli.mqadmin.tool import SubCommand, Tool
from aerobee.cli.output import COULD_NOT, DONE, REFUSED, exit_code_of
from aerobee.client.core import Credentials, client_config
from aerobee.errors import AerobeeError
from aerobee.runtime.process import environment
from aerobee.runtime.smallfile import join_path, read_small

EXIT_VARIABLE: Final = "AEROBEE_MQADMIN_EXIT"
COMMANDS: Final[Mapping[str, SubCommand]] = {
    **topics.COMMANDS,
    **groups.COMMANDS,
    **brokers.COMMANDS,
    **messages.COMMANDS,
    **printing.COMMANDS,
    **offsets.COMMANDS,
    **users.COMMANDS,
}
_BY_LOWER: Final = {name.lower(): name for name in (*COMMANDS, *ELSEWHERE)}
_TIMEOUT_S: Final = 5.0


@click.command(
    context_settings={"ignore_unknown_options": True, "allow_extra_args": True, "help_option_names": []},
    add_help_option=False,
)
@click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="[SUBCOMMAND] [OPTIONS]...")
def mqadmin(words: tuple[str, ...]) -> int:
    """Run a sub-command of Apache's mqadmin, with its options and its output. `mqadmin help` lists them."""
    status = _run(list(words))
    if status in (DONE, COULD_NOT):
        return status
    return DONE if environment().get(EXIT_VARIABLE) == "0" else status


def _run(words: list[str]) -> int:
    if not words or words in (["-h"], ["--help"], ["help"]):
        _print_help()
        return DONE
    helps = words[0] == "help"
    wanted = words[1] if helps else words[0]
    name = _BY_LOWER.get(wanted.lower())
    if name is None:
        sys.stdout.write(f"The sub command {wanted} not exist.\n")
        return COULD_NOT
    if name in ELSEWHERE:
        sys.stderr.write(f"error: aerobee mqadmin has no {name}: {ELSEWHERE[name]}\n")
        return COULD_NOT
    command = COMMANDS[name]
    if helps:
        sys.stdout.write(usage(command.name, command.options) + "\n")
        return DONE
    return _run_one(command, words[1:])


def _print_help() -> None:
    sys.stdout.write("The most commonly used mqadmin commands are:\n")
    for command in COMMANDS.values():
        sys.stdout.write(f"   {command.name:<35} {command.description}\n")
    sys.stdout.write("\nSee 'mqadmin help <command>' for more information on a specific command.\n")


def _run_one(command: SubCommand, words: Sequence[str]) -> int:
    try:
        given = parse(command.options, words)
    except WrongOptionsError as error:
        sys.stdout.write(error.message + "\n" + usage(command.name, command.options) + "\n")
        return COULD_NOT
    if given.has("h"):
        sys.stdout.write(usage(command.name, command.options) + "\n")
        return DONE

    async def work() -> bool:
        async with _connection(given.text("n") or None) as admin:
            tool = Tool(admin, given)
            await command.run(tool)
            return tool.failed

    try:
        failed = asyncio.run(work())
    except AerobeeError as error:
        sys.stdout.flush()
        sys.stderr.write(f"error: {command.name} failed: {error.message}\n" + (f"{error.hint}\n" if error.hint else ""))
        return exit_code_of(error)
    return REFUSED if failed else DONE


def _connection(namesrv: str | None) -> AdminConnection:
    """Return a connection with the credentials of tools.yml, or those of the environment."""
    config = client_config(namesrv, environment())
    return AdminConnection(
        ";".join(config.namesrv),
        timeout_s=_TIMEOUT_S,
        credentials=tools_credentials(environment()) or config.credentials,
        tls=config.tls,
    )


def tools_credentials(variables: Mapping[str, str]) -> Credentials | None:
    """Return the keys of $ROCKETMQ_HOME/conf/tools.yml, which Apache's tool signs with, or None."""
    home = variables.get("ROCKETMQ_HOME")
    data = read_small(join_path(home, "conf", "tools.yml")) if home else None
    if data is None:
        return None
    found: dict[str, str] = {}
    for line in data.decode("utf-8", "replace").splitlines():
        name, colon, value = line.partition(":")
        if colon and not line.startswith(("#", " ")):
            found[name.strip()] = value.split(" #")[0].strip().strip("'\"")
    if not found.get("accessKey") or not found.get("secretKey"):
        return None
    return Credentials(found["accessKey"], found["secretKey"], found.get("securityToken") or None)
