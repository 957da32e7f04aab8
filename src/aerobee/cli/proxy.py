"""`aerobee proxy`: the gRPC service for the 5.x clients, in front of any cluster of RocketMQ's."""

from __future__ import annotations

import functools
from typing import Unpack

import click

from aerobee.cli.serving import ServerGiven, log_file, print_settings, server_options, server_start, tell_ready


@click.command()
@click.option("-n", "--namesrv", help="Name servers, separated by semicolons (namesrvAddr).")
@server_options
def proxy(namesrv: str | None, **given: Unpack[ServerGiven]) -> int:
    """Start a proxy.

    It listens on port 8081 unless grpcServerPort names another port, and serves RocketMQ's 5.x clients, which speak
    gRPC, for the cluster of these name servers.
    """
    from aerobee.app import process, servers
    from aerobee.app.proxy import PROXY_CLASSES, serve_proxy

    options = server_start(given, (("namesrvAddr", namesrv),) if namesrv else ())
    loaded = servers.load_settings(PROXY_CLASSES, options)
    if given["every"]:
        return print_settings(loaded, given["as_json"], None)
    serve = functools.partial(serve_proxy, loaded, options, tell_ready("proxy", given["as_json"]))
    return process.run(serve, log_file=log_file(given))
