"""`aerobee quota`: how many messages and bytes a second users, addresses and topics may send."""

from __future__ import annotations

import click

from aerobee.admin.quotas import quotas_of, remove_quota, set_quota
from aerobee.cli.output import DONE, REFUSED, CommandGroup, console, print_json, show_size, table
from aerobee.cli.remote import broker_option, cluster_option, converse, options
from aerobee.errors import InvalidArgumentError
from aerobee.model.quota import RATE_MAX, Quota, QuotaKind

_WHO = "WHO is user:NAME (who signs), address:HOST (where nobody logs in) or topic:NAME; NAME may be `*`."


@click.group(cls=CommandGroup)
def quota() -> None:
    """Show and change what users, addresses and topics may send a second.

    Who sends more is read from more slowly; what waits longer than a second is refused with FLOW_CONTROL.
    """


@quota.command("list")
@options(broker_option, cluster_option)
def list_quotas(namesrv: str, timeout_s: float, as_json: bool, cluster: str | None, broker: str | None) -> int:
    """Show the quotas of each broker."""
    found = converse(namesrv, timeout_s, lambda admin: quotas_of(admin, cluster=cluster, broker=broker))
    if as_json:
        print_json({name: [_to_json(one) for one in quotas] for name, quotas in found.items()})
        return DONE
    if not any(found.values()):
        click.echo("there are no quotas")
        return DONE
    rows = table("", "broker", "who", "bytes/s", "messages/s", right=("bytes/s", "messages/s"))
    for name, quotas in found.items():
        for one in quotas:
            size = show_size(one.bytes_s) if one.bytes_s else "any"
            rows.add_row(name, f"{one.kind.name}:{one.name}", size, str(one.messages_s) if one.messages_s else "any")
    console().print(rows)
    return DONE


@quota.command("set", epilog=_WHO)
@click.argument("who")
@click.option("--bytes", "bytes_s", type=click.IntRange(1, RATE_MAX), help="Bytes of bodies a second.")
@click.option("--messages", "messages_s", type=click.IntRange(1, RATE_MAX), help="Messages a second.")
@options(broker_option, cluster_option)
def set_(
    namesrv: str,
    timeout_s: float,
    as_json: bool,
    cluster: str | None,
    broker: str | None,
    who: str,
    bytes_s: int | None,
    messages_s: int | None,
) -> int:
    """Set the quota of WHO on each broker. The quota holds for each broker by itself, also after a restart."""
    if bytes_s is None and messages_s is None:
        raise click.UsageError("name --bytes, --messages or both")
    kind, name = _who(who)
    made = Quota(kind, name, bytes_s or 0, messages_s or 0)
    changed = converse(namesrv, timeout_s, lambda admin: set_quota(admin, made, cluster=cluster, broker=broker))
    if as_json:
        print_json({**_to_json(made), "changed_on": list(changed)})
    else:
        click.echo(f"{made}: {'changed on ' + ', '.join(changed) if changed else 'it was set already'}")
    return DONE


@quota.command("remove", epilog=_WHO)
@click.argument("who")
@options(broker_option, cluster_option)
def remove(namesrv: str, timeout_s: float, as_json: bool, cluster: str | None, broker: str | None, who: str) -> int:
    """Remove the quota of WHO from each broker."""
    kind, name = _who(who)
    changed = converse(
        namesrv, timeout_s, lambda admin: remove_quota(admin, kind, name, cluster=cluster, broker=broker)
    )
    if as_json:
        print_json({"who": who, "changed_on": list(changed)})
    elif changed:
        click.echo(f"{who}: removed from {', '.join(changed)}")
    else:
        click.echo(f"{who} has no quota", err=True)
    return DONE if changed else REFUSED


def _who(text: str) -> tuple[QuotaKind, str]:
    kind, colon, name = text.partition(":")
    if not colon or kind not in QuotaKind.__members__ or not name or set(name) & set("; \t"):
        raise InvalidArgumentError(f"{text!r} is not user:NAME, address:HOST or topic:NAME")
    return QuotaKind[kind], name


def _to_json(one: Quota) -> dict[str, object]:
    return {"kind": one.kind.name, "name": one.name, "bytes": one.bytes_s or None, "messages": one.messages_s or None}
