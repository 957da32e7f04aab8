"""`aerobee namesrv`: one name server, configured by a RocketMQ .conf file."""

from __future__ import annotations

import functools
from typing import Unpack

import click

from aerobee.cli.serving import ServerGiven, log_file, print_settings, server_options, server_start, tell_ready


@click.command()
@server_options
def namesrv(**given: Unpack[ServerGiven]) -> int:
    """Start a name server.

    It listens on port 9876 unless listenPort names another port.
    """
    from aerobee.app import process, servers

    options = server_start(given)
    loaded = servers.load_settings(servers.NAMESRV_CLASSES, options)
    if given["every"]:
        return print_settings(loaded, given["as_json"], None)
    serve = functools.partial(servers.serve_namesrv, loaded, options, tell_ready("namesrv", given["as_json"]))
    return process.run(serve, log_file=log_file(given))
