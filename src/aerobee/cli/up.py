"""`aerobee up`: a name server and a broker in one process, or several brokers beside it."""

from __future__ import annotations

import functools
from typing import Any

import click

from aerobee.cli.output import print_json_line
from aerobee.cli.roots import root

_PORT = click.IntRange(0, 65_535)


@click.command()
@click.option(
    "--brokers",
    type=click.IntRange(1, 26),
    default=1,
    show_default=True,
    metavar="N",
    help="Broker groups; more than one run as processes of their own, a core each, and topics spread over them.",
)
@click.option("--data", metavar="DIR", help="Where messages live; without it a directory that is deleted at exit.")
@click.option("--namesrv-port", type=_PORT, default=9876, show_default=True, help="0 takes a free port.")
@click.option("--broker-port", type=_PORT, help="0 takes a free one; the fast port is two below.  [default: 10911]")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to serve.")
@click.option("--advertise", metavar="ADDRESS", help="Address that clients are told (brokerIP1).")
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="A setting of the broker. May be repeated.")
@click.option("--insecure", is_flag=True, help="Serve other machines too: nobody is asked who they are.")
@click.option("--json", "as_json", is_flag=True, help="One ready line as JSON.")
def up(host: str, insecure: bool, as_json: bool, brokers: int, **given: Any) -> int:
    """Start a name server and a broker (or several), ready in a moment. Ctrl-C stops them."""
    roots, process = root("up"), root("process")
    address = root("identity").require_safe_host(host, insecure=insecure)
    options = roots.UpOptions(host=address, **given)
    tell = print_json_line if as_json else _tell
    if brokers > 1:
        serve = functools.partial(root("brokers").up_brokers, options, brokers, tell)
    else:
        serve = functools.partial(roots.up, options, tell)
    code: int = process.run(serve, log_level="WARN")
    if not as_json:
        click.echo("stopped", err=True)
    return code


def _tell(ready: Any) -> None:
    """Say what serves where, what becomes of the data, and what to try."""
    kept = "temporary: deleted when this command ends" if ready.temporary else "kept"
    click.echo(f"aerobee is up ({ready.ready_ms} ms)")
    click.echo(f"  name server  {ready.namesrv}")
    for address, what in ready.lines:
        click.echo(f"  broker       {address}  ({what})")
    click.echo(f"  data         {ready.data}  ({kept})")
    click.echo("Try in another terminal:")
    if ready.namesrv != "127.0.0.1:9876":
        click.echo(f"  export NAMESRV_ADDR={ready.namesrv}")
    click.echo("  aerobee topic create -t orders")
    click.echo("  aerobee topic list")
    click.echo("  aerobee cluster")
    if ready.temporary:
        click.echo("Ctrl-C stops it and deletes the data. To keep messages, start it with --data DIR.")
    else:
        click.echo("Ctrl-C stops it.")
