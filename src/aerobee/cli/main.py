"""The `aerobee` command. Each subcommand is a module that is imported when it is used."""

from __future__ import annotations

import difflib
import importlib
from typing import Final

import click

from aerobee import __version__
from aerobee._pure import is_compiled
from aerobee.cli.output import CommandGroup

# Command -> its line in `aerobee --help`. The command `x` is `aerobee.cli.x.x`.
_COMMANDS: Final = {
    "up": "Start a name server and a broker in one process.",
    "namesrv": "Start a name server.",
    "broker": "Start a broker with a RocketMQ broker.conf.",
    "proxy": "Serve the 5.x clients (gRPC) in front of any cluster.",
    "dashboard": "Serve web pages over a cluster: look, find messages, change.",
    "ping": "Check whether a cluster answers, or wait until it does.",
    "cluster": "Show the brokers of a cluster: versions, rates, disks, settings.",
    "replica": "Manage the replicas of broker groups: list, status, add, remove, switch, force.",
    "topic": "Manage topics: list, show, create, update, delete, route, forward.",
    "group": "Manage groups: list, show, create, update, delete, lag, reset, clone, members, producers.",
    "message": "Find messages: show, find, track, trace.",
    "dlq": "Manage the dead letters of a group: list, export, resend.",
    "mqadmin": "Run a sub-command of mqadmin, with the options and the output of Apache's tool.",
    "replay": "Copy the messages of a time span to another topic.",
    "produce": "Send messages: lines of standard input, or generated ones.",
    "consume": "Print messages as a member of a consumer group.",
    "tail": "Print messages as they arrive at a topic.",
    "store": "Examine a store directory: inspect, verify, repair, dump, backup, restore.",
    "migrate": "Move from Apache's broker and back: check, follow, verify, switch, guard, rollback.",
    "archive": "Archive old segments as Parquet: run, status.",
    "pipeline": "Run Spark pipelines over topics: new, start, run, refresh.",
    "user": "Manage users: create, update, delete, show, list, copy.",
    "acl": "Manage rights of users: grant, revoke, show, list, copy, check, import.",
    "quota": "What users, addresses and topics may send a second: list, set, remove.",
    "tls": "Certificates: init, show, check.",
    "sql": "Query topics with Spark SQL: one query, or a prompt.",
}


class _Commands(CommandGroup):
    """Imports a command only when it is used, so that `aerobee up` does not load `aerobee store`."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            near = difflib.get_close_matches(cmd_name, _COMMANDS, n=1)
            return ctx.fail(f"No such command {cmd_name!r}. Did you mean {near[0]!r}?") if near else None
        command: click.Command = getattr(importlib.import_module(f"aerobee.cli.{cmd_name}"), cmd_name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(_COMMANDS.items()))


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(
    __version__, message=f"aerobee, version %(version)s ({'compiled' if is_compiled() else 'interpreted'})"
)
def main() -> None:
    """RocketMQ in Python: servers, messages and tools."""
