"""The `aerobee` command: the group that every command file joins."""

import click


@click.group()
@click.version_option(package_name="aerobee")
def main() -> None:
    """RocketMQ in Python: servers, messages and tools."""
