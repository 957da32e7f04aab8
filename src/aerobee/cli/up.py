"""`aerobee up`: a name server and a broker in one process, or a name server and several broker processes."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Unpack

import click

from aerobee.cli.output import print_json_line
from aerobee.cli.serving import HostGiven, LogOptions, hosts, log_file, log_options
from aerobee.client.core import PROFILES_FILE_VARIABLE, SECRET_KEY_VARIABLE, read_profile

if TYPE_CHECKING:
    from aerobee.app.brokers import GroupsReady
    from aerobee.app.secure import SecuredFacts
    from aerobee.app.up import Ready

_PORT = click.IntRange(0, 65_535)


class _Given(LogOptions, HostGiven):
    """The options that are passed on as they are."""

    data: str | None
    namesrv_port: int
    broker_port: int | None
    advertise: str | None
    settings: tuple[str, ...]
    secure: bool
    dashboard: bool
    dashboard_port: int


@click.command()
@click.option(
    "--brokers",
    type=click.IntRange(1, 26),
    default=1,
    show_default=True,
    metavar="N",
    help="Number of broker groups. Several run as processes of their own, and topics are spread over them.",
)
@click.option(
    "--replicas",
    type=click.IntRange(1, 9),
    default=1,
    show_default=True,
    metavar="N",
    help="Number of replicas of each group. Several elect a master, and another takes over when it dies.",
)
@click.option("--data", metavar="DIR", help="Directory for the messages. Without it, they are deleted at exit.")
@click.option("--namesrv-port", type=_PORT, default=9876, show_default=True, help="0 takes a free port.")
@click.option("--broker-port", type=_PORT, help="0 takes a free port. The fast port is two below it.  [default: 10911]")
@click.option("--advertise", metavar="ADDRESS", help="Address that clients are told to connect to (brokerIP1).")
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="A broker setting. May be repeated.")
@click.option(
    "--secure",
    is_flag=True,
    help="Take only TLS and known users. Makes an authority, certificates and the user admin in DIR/secure, once.",
)
@click.option("--dashboard", is_flag=True, help="Serve web pages over the cluster, too, on this machine only.")
@click.option(
    "--dashboard-port", type=_PORT, default=8088, show_default=True, help="With --dashboard. 0 takes a free port."
)
@hosts
@log_options
@click.option("--json", "as_json", is_flag=True, help="Print one ready line as JSON.")
def up(as_json: bool, brokers: int, replicas: int, **given: Unpack[_Given]) -> int:
    """Start a name server and one broker or several. Ctrl-C stops them."""
    from aerobee.app import process
    from aerobee.app.brokers import up_brokers
    from aerobee.app.up import UpOptions
    from aerobee.app.up import up as up_one
    from aerobee.runtime.machine import resolve

    if given["data"] is not None and not given["data"].strip():
        # An unset variable of a shell: the store would lie in the current directory, among whatever is there.
        raise click.UsageError("--data names no directory")
    log = log_file(given)
    options = UpOptions(
        host=resolve(given["host"]),
        insecure=given["insecure"],
        plain_clients=given["plain_clients"],
        secure=given["secure"],
        data=given["data"],
        advertise=given["advertise"],
        namesrv_port=given["namesrv_port"],
        broker_port=given["broker_port"],
        settings=given["settings"],
        dashboard_port=given["dashboard_port"] if given["dashboard"] else None,
        log_file=log,
    )
    tell = print_json_line if as_json else _tell
    if brokers > 1 or replicas > 1:
        serve: process.Serve = functools.partial(up_brokers, options, brokers, replicas, tell)
    else:
        serve = functools.partial(up_one, options, tell)
    # A terminal shows warnings only; a file is for reading later.
    code = process.run(serve, log_level="WARN" if log is None else "INFO", log_file=log)
    if not as_json:
        click.echo("stopped", err=True)
    return code


def _tell(ready: Ready | GroupsReady) -> None:
    """Print the addresses, where the messages are kept, and commands to try."""
    kept = "temporary: deleted when this command ends" if ready.temporary else "kept"
    click.echo(f"aerobee is up ({ready.ready_ms} ms)")
    click.echo(f"  name server  {ready.namesrv}")
    for address, what in ready.lines:
        click.echo(f"  broker       {address}  ({what})")
    for address in ready.metrics:
        click.echo(f"  metrics      {address}")
    if (grpc := getattr(ready, "grpc", None)) is not None:
        click.echo(f"  gRPC         {grpc}  (5.x clients)")
    if ready.dashboard is not None:
        click.echo(f"  dashboard    {ready.dashboard}")
    click.echo(f"  data         {ready.data}  ({kept})")
    if ready.secured is not None:
        _tell_secured(ready.secured)
    click.echo("Try these commands in another terminal:")
    if ready.secured is not None:
        click.echo(f"  export AEROBEE_CREDENTIALS={ready.secured.credentials}")
        click.echo(f"  export AEROBEE_PROFILE={ready.secured.profile}")
    elif ready.namesrv != "127.0.0.1:9876":
        click.echo(f"  export NAMESRV_ADDR={ready.namesrv}")
    click.echo("  aerobee topic create -t orders")
    click.echo("  aerobee topic list")
    click.echo("  aerobee cluster")
    if ready.temporary:
        click.echo("Press Ctrl-C to stop and delete the data. To keep the messages, start with --data DIR.")
    else:
        click.echo("Press Ctrl-C to stop.")


def _tell_secured(secured: SecuredFacts) -> None:
    """Print what to copy to clients. The secret is printed at the first start only."""
    click.echo(f"  secure       {secured.directory}  (TLS and users; {'made now' if secured.is_new else 'found'})")
    if secured.is_new:
        known = read_profile(secured.profile, {PROFILES_FILE_VARIABLE: secured.credentials})
        click.echo(f"The user {secured.profile}, who may do everything, signs with this key. It is not shown again:")
        click.echo(f"  {known[SECRET_KEY_VARIABLE]}")
    click.echo("Copy to each machine that runs clients:")
    click.echo(f"  {secured.credentials}  (a secret; for commands, Python and Spark)")
    click.echo(f"  {secured.ca}  (no secret; beside it)")
    click.echo("Java clients: -Dtls.enable=true -Dtls.test.mode.enable=false -Dtls.client.authServer=true")
    click.echo(f"  -Dtls.client.trustCertPath={secured.ca}  and an AclClientRPCHook with user and key")
    click.echo("Make a user for each application, with just the rights that it needs:")
    click.echo("  aerobee user create NAME --generate && aerobee acl grant NAME Topic:orders Pub")
