"""`aerobee namesrv`: one name server, by RocketMQ's own configuration file."""

from __future__ import annotations

import functools

import click

from aerobee.cli.roots import root
from aerobee.cli.serving import print_settings, server_options, tell_ready


@click.command()
@server_options
def namesrv(
    conf: str | None,
    settings: tuple[str, ...],
    host: str,
    insecure: bool,
    lenient: bool,
    every: bool,
    as_json: bool,
) -> int:
    """Start a name server, on port 9876 unless listenPort says otherwise."""
    roots, process = root("servers"), root("process")
    address = root("identity").require_safe_host(host, insecure=insecure)
    options = roots.ServerOptions(host=address, config_file=conf, settings=settings, lenient=lenient)
    loaded = roots.load_settings(roots.NAMESRV_CLASSES, options)
    if every:
        return print_settings(loaded, as_json, None)
    serve = functools.partial(roots.serve_namesrv, loaded, options, tell_ready("namesrv", as_json))
    code: int = process.run(serve)
    return code
