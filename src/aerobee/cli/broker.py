"""`aerobee broker`: one broker, configured by a RocketMQ .conf file."""

from __future__ import annotations

import functools
from typing import Unpack

import click

from aerobee.cli.serving import ServerGiven, log_file, print_settings, server_options, server_start, tell_ready


@click.command()
@click.option("-n", "--namesrv", help="Name servers, separated by semicolons (namesrvAddr).")
@click.option("-m", "important", is_flag=True, help="Print the most important settings and exit.")
@server_options
def broker(namesrv: str | None, important: bool, **given: Unpack[ServerGiven]) -> int:
    """Start a broker.

    The store is in ~/store unless storePathRootDir names another directory.
    """
    from aerobee.app import process, servers

    options = server_start(given, (("namesrvAddr", namesrv),) if namesrv else ())
    loaded = servers.load_settings(servers.BROKER_CLASSES, options)
    if given["every"] or important:
        return print_settings(loaded, given["as_json"], None if given["every"] else servers.IMPORTANT_KEYS)
    serve = functools.partial(servers.serve_broker, loaded, options, tell_ready("broker", given["as_json"]))
    return process.run(serve, log_file=log_file(given))
