"""`aerobee quota`: how many messages and bytes a second users, addresses and topics may send."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import click

from aerobee.admin.quotas import quotas_of, remove_quota, set_quota
from aerobee.cli.changing import asked_first
from aerobee.cli.output import DONE, REFUSED, CommandGroup, console, print_json, show_size, table
from aerobee.cli.remote import broker_option, cluster_option, converse, dry_run_option, options, yes_option
from aerobee.errors import InvalidArgumentError
from aerobee.model.quota import RATE_MAX, Quota, QuotaKind, parse_who

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
@options(yes_option, dry_run_option, broker_option, cluster_option)
def set_(
    namesrv: str,
    timeout_s: float,
    as_json: bool,
    cluster: str | None,
    broker: str | None,
    who: str,
    bytes_s: int | None,
    messages_s: int | None,
    **asking: bool,
) -> int:
    """Set the quota of WHO on each broker. The command asks first.

    The quota holds for each broker by itself, also after a restart.
    """
    if bytes_s is None and messages_s is None:
        raise click.UsageError("name --bytes, --messages or both")
    kind, name = _who(who)
    made = Quota(kind, name, bytes_s or 0, messages_s or 0)
    if asking["dry_run"] or not asking["yes"]:
        found = converse(namesrv, timeout_s, lambda admin: quotas_of(admin, cluster=cluster, broker=broker))
        changes = [
            f"{where} from {_rates(_of(quotas, kind, name))} to {_rates(made)}"
            for where, quotas in found.items()
            if _of(quotas, kind, name) != made
        ]
        words = f"change the quota of {who} on {', '.join(changes)}" if changes else f"change nothing: {made} is set"
        ended = _ask(words, {**_to_json(made), "changes": changes}, asking["dry_run"], as_json)
        if ended is not None:
            return ended
    changed = converse(namesrv, timeout_s, lambda admin: set_quota(admin, made, cluster=cluster, broker=broker))
    if as_json:
        print_json({**_to_json(made), "changed_on": list(changed)})
    else:
        click.echo(f"{made}: {'changed on ' + ', '.join(changed) if changed else 'it was set already'}")
    return DONE


@quota.command("remove", epilog=_WHO)
@click.argument("who")
@options(yes_option, dry_run_option, broker_option, cluster_option)
def remove(
    namesrv: str, timeout_s: float, as_json: bool, cluster: str | None, broker: str | None, who: str, **asking: bool
) -> int:
    """Remove the quota of WHO from each broker. The command asks first."""
    kind, name = _who(who)
    if asking["dry_run"] or not asking["yes"]:
        found = converse(namesrv, timeout_s, lambda admin: quotas_of(admin, cluster=cluster, broker=broker))
        holders = [where for where, quotas in found.items() if _of(quotas, kind, name) is not None]
        if not holders:
            raise InvalidArgumentError(f"{who} has no quota", hint="`aerobee quota list` lists the quotas.")
        words = f"remove the quota of {who} from {', '.join(holders)}"
        ended = _ask(words, {"who": who, "brokers": holders}, asking["dry_run"], as_json)
        if ended is not None:
            return ended
    changed = converse(
        namesrv, timeout_s, lambda admin: remove_quota(admin, kind, name, cluster=cluster, broker=broker)
    )
    if as_json:
        print_json({"who": who, "changed_on": list(changed)})
        return DONE if changed else REFUSED
    if not changed:
        raise InvalidArgumentError(f"{who} has no quota", hint="`aerobee quota list` lists the quotas.")
    click.echo(f"{who}: removed from {', '.join(changed)}")
    return DONE


def _who(text: str) -> tuple[QuotaKind, str]:
    try:
        return parse_who(text)
    except InvalidArgumentError as error:
        raise click.UsageError(error.message) from None


def _of(quotas: Iterable[Quota], kind: QuotaKind, name: str) -> Quota | None:
    return next((one for one in quotas if (one.kind, one.name) == (kind, name)), None)


def _rates(one: Quota | None) -> str:
    if one is None:
        return "any rate"
    rates = ((one.messages_s, "messages"), (one.bytes_s, "bytes"))
    return " and ".join(f"{rate} {word} a second" for rate, word in rates if rate)


def _ask(words: str, facts: Mapping[str, object], dry_run: bool, as_json: bool) -> int | None:
    return asked_first(words, f"{words[0].upper()}{words[1:]}?", facts, dry_run=dry_run, as_json=as_json)


def _to_json(one: Quota) -> dict[str, object]:
    return {"kind": one.kind.name, "name": one.name, "bytes": one.bytes_s or None, "messages": one.messages_s or None}
