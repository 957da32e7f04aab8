"""`aerobee tls`: a small certificate authority, what a certificate says, and what a running server shows."""

from __future__ import annotations

from pathlib import Path

import click

from aerobee.admin.certificates import check_certificate
from aerobee.app.authority import AuthorityFiles, init_authority
from aerobee.cli.connecting import connection_options, tls_context
from aerobee.cli.numbers import NumberRange
from aerobee.cli.output import DONE, REFUSED, CommandGroup, plain, print_json, show_time
from aerobee.model.numbers import int_or
from aerobee.runtime.certificates import CertificateFacts, read_certificates
from aerobee.runtime.clock import SystemClock
from aerobee.runtime.smallfile import read_small
from aerobee.runtime.tls import FileNames, client_context

_DAYS = 30
_json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text.")


@click.group(cls=CommandGroup)
def tls() -> None:
    """Make certificates, show one, or check that of a running server."""


@tls.command()
@click.argument("directory", metavar="DIR")
@click.option(
    "--name", "hosts", multiple=True, metavar="HOST",
    help="A name or address that clients reach a server under. May be repeated.",
)  # fmt: skip
@click.option(
    "--client", "clients", multiple=True, metavar="NAME", help="Make a client's certificate. May be repeated."
)
@click.option("--renew", is_flag=True, help="Keep the authority in DIR, and issue these certificates anew.")
@_json_option
def init(directory: str, hosts: tuple[str, ...], clients: tuple[str, ...], renew: bool, as_json: bool) -> int:
    """Make an authority in DIR, a certificate for servers on the named machines, and certificates for clients.

    A second run refuses: nothing is overwritten. With --renew, servers that use the files take up the new certificate
    while they run, and clients go on trusting the same ca.pem.
    """
    where = str(Path(directory).absolute())
    made = init_authority(where, hosts, clients, SystemClock().now_ms(), renew=renew)
    if as_json:
        print_json(made)
        return DONE
    click.echo(f"made in {where}:")
    for line in _told(made):
        click.echo(line)
    return DONE


def _told(made: AuthorityFiles) -> list[str]:
    """Return a word on where each file goes."""
    ca, server = made.ca, made.server
    said = [f"  {Path(path).name}" for path in made.written]
    if ca.cert in made.written:
        said += [
            "",
            "ca.pem goes to every server and client: they trust what it has signed. It is no secret.",
            "ca.key stays here, or better on a disk in a drawer: whoever has it can be any server.",
        ]
    if server is not None:
        said += [
            "",
            f"server.pem and server.key go to each server on {', '.join(made.hosts)}. In its .conf file:",
            "  tls.server.mode=enforcing",
            f"  tls.server.certPath={server.cert}",
            f"  tls.server.keyPath={server.key}",
            "  tls.enable=true",
            "  tls.client.authServer=true",
            f"  tls.client.trustCertPath={ca.cert}",
            "",
            f"Commands, Python, Spark: --tls-ca {ca.cert}, or AEROBEE_TLS_CA={ca.cert}, or the Spark option tlsCa",
            "Java: -Dtls.enable=true -Dtls.test.mode.enable=false -Dtls.client.authServer=true",
            f"      -Dtls.client.trustCertPath={ca.cert}",
        ]
    for name, files in made.clients.items():
        said += [
            "",
            f"{name}.pem and {name}.key go to the client {name}, if servers ask for certificates:",
            f"  on the servers: tls.server.need.client.auth=require, tls.server.trustCertPath={ca.cert}",
            f"  on the client:  --tls-cert {files.cert} --tls-key {files.key}",
        ]
    return said


@tls.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False))
@_json_option
def show(file: str, as_json: bool) -> int:
    """Show what each certificate in FILE says (PEM or DER): for whom, by whom, until when."""
    now_ms = SystemClock().now_ms()
    found = read_certificates(read_small(file) or b"", file)
    if as_json:
        print_json(
            {"file": file, "certificates": [{**plain(one), "days_left": one.days_left(now_ms)} for one in found]}
        )
        return DONE
    for number, one in enumerate(found):
        if number:
            click.echo("")
        _print(one, now_ms)
    return DONE


def _print(one: CertificateFacts, now_ms: int) -> None:
    left = one.days_left(now_ms)
    click.echo(f"subject   {one.subject}" + ("  (an authority)" if one.is_authority else ""))
    click.echo(f"issuer    {one.issuer}")
    if one.names:
        click.echo(f"names     {', '.join(one.names)}")
    if one.uses:
        click.echo(f"for       {', '.join(one.uses)}")
    click.echo(f"from      {show_time(one.not_before)}")
    click.echo(f"until     {show_time(one.not_after)}  " + (f"({left} days left)" if left >= 0 else "(expired)"))
    click.echo(f"key       {one.key}")
    click.echo(f"sha256    {one.sha256}")


@tls.command()
@click.argument("address", metavar="HOST:PORT")
@click.option(
    "--days", type=click.IntRange(min=0), default=_DAYS, show_default=True, help="Days that it must be valid for."
)
@click.option(
    "--timeout", "timeout_s", type=NumberRange(min=0.1), default=5.0, show_default=True, help="Seconds to wait."
)
@_json_option
@connection_options
def check(address: str, days: int, timeout_s: float, as_json: bool) -> int:
    """Check the certificate of a running server: who signed it, whom it names, how long it is valid.

    It is judged as every client would with these TLS options. The exit code is 1 if it would be refused, or expires
    soon, and 3 if no TLS server answers.
    """
    host, port = _place(address)
    context = tls_context() or client_context(
        None, trust_path="", verified=True, any_host=False, names=FileNames("tls-cert", "tls-key", "tls-ca")
    )
    now_ms = SystemClock().now_ms()
    found = check_certificate(host, port, context, timeout_s, days=days, now_ms=now_ms)
    if as_json:
        print_json({**plain(found), "ok": not found.problems})
    else:
        click.echo(f"{found.address} speaks {found.tls_version}")
        _print(found.certificate, now_ms)
        for problem in found.problems:
            click.echo(f"problem: {problem}", err=True)
    return REFUSED if found.problems else DONE


def _place(address: str) -> tuple[str, int]:
    host, colon, port = address.rpartition(":")
    number = int_or(port, None, 1, 65_535)
    if not colon or not host or number is None:
        raise click.UsageError(f"{address!r} is not HOST:PORT")
    return host.strip("[]"), number
