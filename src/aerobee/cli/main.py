"""The `aerobee` command: the group that every command file joins."""

import click

from aerobee.cli.output import CommandGroup
from aerobee.cli.store import store


@click.group(cls=CommandGroup)
@click.version_option(package_name="aerobee")
def main() -> None:
    """RocketMQ in Python: servers, messages and tools."""


main.add_command(store)
