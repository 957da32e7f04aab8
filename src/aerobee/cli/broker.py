"""`aerobee broker`: one broker, by RocketMQ's own configuration file."""

from __future__ import annotations

import functools

import click

from aerobee.cli.roots import root
from aerobee.cli.serving import print_settings, server_options, tell_ready


@click.command()
@click.option("-n", "--namesrv", help="Name servers, separated by semicolons (namesrvAddr).")
@click.option("-m", "important", is_flag=True, help="Print the settings that matter most, and exit.")
@server_options
def broker(
    namesrv: str | None,
    important: bool,
    conf: str | None,
    settings: tuple[str, ...],
    host: str,
    insecure: bool,
    lenient: bool,
    every: bool,
    as_json: bool,
) -> int:
    """Start a broker. Its store is ~/store unless storePathRootDir names another."""
    roots, process = root("servers"), root("process")
    address = root("identity").require_safe_host(host, insecure=insecure)
    flags = (("namesrvAddr", namesrv),) if namesrv else ()
    options = roots.ServerOptions(host=address, config_file=conf, settings=settings, flags=flags, lenient=lenient)
    loaded = roots.load_settings(roots.BROKER_CLASSES, options)
    if every or important:
        return print_settings(loaded, as_json, None if every else roots.IMPORTANT_KEYS)
    serve = functools.partial(roots.serve_broker, loaded, options, tell_ready("broker", as_json))
    code: int = process.run(serve)
    return code
