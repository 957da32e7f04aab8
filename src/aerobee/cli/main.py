"""The `aerobee` command: the group that every command file joins, each loaded when it is used."""

from __future__ import annotations

import importlib
from typing import Final

import click

from aerobee.cli.output import CommandGroup

# Command: the line of `aerobee --help`. The command is the name's attribute of aerobee.cli.<name>.
_COMMANDS: Final = {
    "up": "A name server and a broker in one process, ready in a moment.",
    "namesrv": "A name server.",
    "broker": "A broker, by RocketMQ's own broker.conf.",
    "ping": "Whether a cluster answers; --wait until it does.",
    "cluster": "The brokers of a cluster: versions, rates, disks, settings.",
    "topic": "Topics: list, show, create, update, delete, route, forward.",
    "group": "Consumer groups: list, show, create, update, delete, lag, reset.",
    "message": "Messages found again: show, find, track.",
    "dlq": "Dead letters of a group: list, export, resend.",
    "replay": "Copy the messages of a time to another topic.",
    "produce": "Send messages: lines of standard input, or made-up ones.",
    "consume": "Print messages as a member of a group.",
    "tail": "Show what arrives at a topic.",
    "store": "A store directory: inspect, verify, repair, dump.",
    "archive": "Old segments as Parquet: run, status.",
    "pipeline": "Spark pipelines over topics: new, start, run, refresh.",
    "sql": "Spark SQL over topics: one query, or a prompt.",
}


class _Commands(CommandGroup):
    """Knows its commands by name; `aerobee up` does not pay for what `aerobee store` imports."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        command: click.Command = getattr(importlib.import_module(f"aerobee.cli.{cmd_name}"), cmd_name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(_COMMANDS.items()))


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="aerobee")
def main() -> None:
    """RocketMQ in Python: servers, messages and tools."""
