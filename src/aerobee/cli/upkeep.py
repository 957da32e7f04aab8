"""`aerobee cluster kv|probe|clean|drain|undrain|import|export|lag`: the upkeep of a cluster."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

import click

from aerobee.admin import groups, portable, upkeep
from aerobee.admin.connection import AdminConnection
from aerobee.admin.groups import GroupLag
from aerobee.cli.changing import asked_first
from aerobee.cli.numbers import NumberRange
from aerobee.cli.output import DONE, REFUSED, console, print_json, print_json_line, table
from aerobee.cli.remote import (
    broker_option,
    cluster_option,
    converse,
    dry_run_option,
    ending,
    options,
    say_problems,
    yes_option,
)
from aerobee.config.loader import override_source
from aerobee.errors import InvalidArgumentError
from aerobee.runtime.clock import SystemClock
from aerobee.runtime.smallfile import read_small, write_text

# -- kv


@click.group()
def kv() -> None:
    """Read and change the key-value table of the name servers."""


_namespace = click.option("-s", "--namespace", required=True, help="The namespace, e.g. ORDER_TOPIC_CONFIG.")
_key = click.option("-k", "--key", required=True, help="The key.")


@kv.command("get")
@options(click.option("-k", "--key", help="Only this key."), _namespace)
def kv_get(namesrv: str, timeout_s: float, as_json: bool, namespace: str, key: str | None) -> int:
    """Print the values of a namespace, or one of them. The exit code is 1 if there is none."""

    async def ask(admin: AdminConnection) -> dict[str, str]:
        if key is None:
            return await upkeep.kv_list(admin, namespace)
        value = await upkeep.kv_get(admin, namespace, key)
        return {} if value is None else {key: value}

    found = converse(namesrv, timeout_s, ask)
    if as_json:
        print_json({"namespace": namespace, "values": found})
    elif not found:
        click.echo(f"there is no {key} in {namespace}" if key is not None else f"{namespace} has no values", err=True)
    else:
        for name, value in found.items():
            click.echo(value if key is not None else f"{name}={value}")
    return DONE if found else REFUSED


@kv.command("put")
@options(yes_option, dry_run_option, click.option("-v", "--value", required=True, help="The value."), _key, _namespace)
def kv_put(namesrv: str, timeout_s: float, as_json: bool, namespace: str, key: str, value: str, **asking: bool) -> int:
    """Set a value at every name server. The command asks first."""
    facts = {"namespace": namespace, "key": key, "value": value}
    if asking["dry_run"] or not asking["yes"]:
        before = converse(namesrv, timeout_s, lambda admin: upkeep.kv_get(admin, namespace, key))
        words = f"set {namespace} {key} to {value!r} ({'it has no value' if before is None else f'now {before!r}'})"
        ended = _ask(words, {**facts, "before": before}, asking["dry_run"], as_json)
        if ended is not None:
            return ended
    converse(namesrv, timeout_s, lambda admin: upkeep.kv_put(admin, namespace, key, value))
    return _done(f"set {namespace} {key}", facts, as_json)


@kv.command("delete")
@options(yes_option, dry_run_option, _key, _namespace)
def kv_delete(namesrv: str, timeout_s: float, as_json: bool, namespace: str, key: str, **asking: bool) -> int:
    """Remove a value from every name server. The command asks first."""
    facts = {"namespace": namespace, "key": key}
    before = converse(namesrv, timeout_s, lambda admin: upkeep.kv_get(admin, namespace, key))
    if before is None:
        raise InvalidArgumentError(f"there is no {key} in {namespace}")
    if asking["dry_run"] or not asking["yes"]:
        ended = _ask(f"remove {namespace} {key} ({before!r})", {**facts, "before": before}, asking["dry_run"], as_json)
        if ended is not None:
            return ended
    converse(namesrv, timeout_s, lambda admin: upkeep.kv_delete(admin, namespace, key))
    return _done(f"removed {namespace} {key}", facts, as_json)


def _ask(words: str, facts: dict[str, Any], dry_run: bool, as_json: bool) -> int | None:
    return asked_first(words, f"{words[0].upper()}{words[1:]}?", facts, dry_run=dry_run, as_json=as_json)


def _done(words: str, facts: dict[str, Any], as_json: bool) -> int:
    if as_json:
        print_json(facts)
    else:
        click.echo(words)
    return DONE


# -- probe


@click.command()
@options(
    click.option("--interval", type=NumberRange(min=0.1), help="Go on every so many seconds, until interrupted."),
    click.option("--size", type=click.IntRange(1, 1 << 22), default=128, show_default=True, help="Bytes of a message."),
    click.option("--count", type=click.IntRange(1, 100_000), default=10, show_default=True, help="Messages a broker."),
    broker_option,
    cluster_option,
)
def probe(
    namesrv: str,
    timeout_s: float,
    as_json: bool,
    cluster: str | None,
    broker: str | None,
    count: int,
    size: int,
    interval: float | None,
) -> int:
    """Send small messages to every broker and show the times. The exit code is 1 if a send failed."""

    async def once(admin: AdminConnection) -> tuple[upkeep.Probe, ...]:
        return await upkeep.probe(admin, SystemClock(), count=count, size=size, cluster=cluster, broker=broker)

    async def work(admin: AdminConnection) -> int:
        while True:
            found = await once(admin)
            _print_probes(found, as_json, interval is not None)
            if interval is None:
                return REFUSED if any(one.failed for one in found) else DONE
            await asyncio.sleep(interval)

    return converse(namesrv, timeout_s, work)


def _print_probes(found: tuple[upkeep.Probe, ...], as_json: bool, streams: bool) -> None:
    if as_json:
        value = {"brokers": [one.to_json() for one in found]}
        print_json_line(value) if streams else print_json(value)
        return
    rows = table(
        "",
        "cluster",
        "broker",
        "sent",
        "failed",
        "mean ms",
        "worst ms",
        right=("sent", "failed", "mean ms", "worst ms"),
    )
    for one in found:
        rows.add_row(
            one.cluster, one.broker, str(one.sent), str(one.failed), f"{one.mean_ms:.2f}", f"{one.worst_ms:.2f}"
        )
        if one.problem:
            click.echo(f"warning: broker {one.broker}: {one.problem}", err=True)
    console().print(rows)


# -- clean


@click.command()
@click.argument("what", type=click.Choice(list(upkeep.CLEANABLE)))
@options(yes_option, dry_run_option, broker_option, cluster_option)
def clean(
    namesrv: str, timeout_s: float, as_json: bool, what: str, cluster: str | None, broker: str | None, **asking: bool
) -> int:
    """Remove what is expired now, not at the hour of `deleteWhen`. The command asks first.

    `log` removes expired segments, `queues` the parts of queues that point below the log, and `topics` the queues of
    topics that do not exist any more.
    """
    masters = converse(namesrv, timeout_s, lambda admin: admin.masters(cluster=cluster, broker=broker))
    names = [one.name for one in masters]
    facts: dict[str, Any] = {"what": what, "brokers": names}
    if asking["dry_run"] or not asking["yes"]:
        ended = _ask(f"remove expired {what} on {', '.join(names)}", facts, asking["dry_run"], as_json)
        if ended is not None:
            return ended
    converse(namesrv, timeout_s, lambda admin: upkeep.clean(admin, what, cluster=cluster, broker=broker))
    return _done(f"removed expired {what} on {', '.join(names)}", facts, as_json)


# -- drain


_one_broker = click.option("-b", "--broker", required=True, help="The broker, by name or address.")


@click.command()
@options(
    yes_option,
    dry_run_option,
    click.option(
        "--wait", "wait_s", type=NumberRange(min=0),
        help="Return when the broker has taken no message for so many seconds (35 is more than clients need).",
    ),
    click.option(
        "--limit", "limit_s", type=NumberRange(min=1), default=300.0, show_default=True,
        help="Seconds after which --wait gives up.",
    ),
    _one_broker,
)  # fmt: skip
def drain(
    namesrv: str, timeout_s: float, as_json: bool, broker: str, wait_s: float | None, limit_s: float, **asking: bool
) -> int:
    """Let a broker take no messages, so that it can be restarted. Consumers go on. The command asks first."""
    if asking["dry_run"] or not asking["yes"]:
        converse(namesrv, timeout_s, lambda admin: admin.masters(broker=broker))
        ended = _ask(f"let broker {broker} take no messages", {"broker": broker}, asking["dry_run"], as_json)
        if ended is not None:
            return ended

    async def work(admin: AdminConnection) -> tuple[str, float | None]:
        name = await upkeep.drain(admin, broker)
        if wait_s is None:
            return name, None
        return name, await upkeep.wait_until_quiet(admin, name, SystemClock(), wait_s, limit_s)

    name, waited_s = converse(namesrv, timeout_s, work)
    waited = "" if waited_s is None else f" and took none for {wait_s:.0f} s"
    facts = {"broker": name, "waited_s": waited_s}
    return _done(
        f"broker {name} takes no messages{waited}. `aerobee cluster undrain -b {name}` ends this", facts, as_json
    )


@click.command()
@options(_one_broker)
def undrain(namesrv: str, timeout_s: float, as_json: bool, broker: str) -> int:
    """Let a broker take messages again."""
    name = converse(namesrv, timeout_s, lambda admin: upkeep.drain(admin, broker, reads_only=False))
    return _done(f"broker {name} takes messages", {"broker": name}, as_json)


# -- export and import


@click.command("export")
@click.argument("file", metavar="FILE", default="-")
@options(cluster_option)
def export(namesrv: str, timeout_s: float, as_json: bool, file: str, cluster: str | None) -> int:
    """Write topics, groups and the order of queues as JSON to FILE, or to standard output."""
    found = converse(namesrv, timeout_s, lambda admin: portable.export_cluster(admin, cluster=cluster))
    text = json.dumps(found, ensure_ascii=False, indent=2) + "\n"
    if file == "-":
        click.echo(text, nl=False)
        return DONE
    write_text(file, text)
    facts = {"file": file, "topics": len(found["topics"]), "groups": len(found["groups"])}
    return _done(f"wrote {facts['topics']} topics and {facts['groups']} groups to {file}", facts, as_json)


@click.command("import")
@click.argument("file", metavar="FILE")
@options(yes_option, dry_run_option, cluster_option)
def import_(namesrv: str, timeout_s: float, as_json: bool, file: str, cluster: str | None, **asking: bool) -> int:
    """Create and change topics and groups as FILE says, which `cluster export` wrote. The command asks first.

    Nothing is deleted. Entries go to the brokers that FILE names, or to all where no such broker is in the cluster.
    """
    document = _document(file)

    async def plan(admin: AdminConnection) -> portable.ImportPlan:
        return await portable.Import(admin, document).plan(cluster=cluster)

    found = converse(namesrv, timeout_s, plan)
    todo = [*found.topics, *found.groups, *found.order]
    if asking["dry_run"] or (todo and not asking["yes"]):
        if not as_json:
            for line in todo:
                click.echo(line)
        words = f"create or change {len(found.topics)} topics, {len(found.groups)} groups and {len(found.order)} orders"
        ended = _ask(words, found.to_json(), asking["dry_run"], as_json)
        if ended is not None:
            return ended

    async def work(admin: AdminConnection) -> None:
        one = portable.Import(admin, document)
        await one.plan(cluster=cluster)
        await one.carry_out()

    converse(namesrv, timeout_s, work)
    words = f"{len(found.topics)} topics and {len(found.groups)} groups created or changed, {found.same} were there"
    return _done(words, found.to_json(), as_json)


def _document(file: str) -> dict[str, Any]:
    data = sys.stdin.buffer.read() if file == "-" else read_small(file)
    if data is None:
        raise click.UsageError(f"there is no file {file}")
    try:
        document = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise InvalidArgumentError(f"{file} is not JSON: {error}") from None
    if not isinstance(document, dict):
        raise InvalidArgumentError(f"{file} does not hold a JSON object")
    return document


# -- lag of all groups


@click.command()
@options(
    click.option(
        "--min",
        "least",
        type=click.IntRange(min=0),
        default=1,
        show_default=True,
        help="Only groups behind by so many.",
    ),
    cluster_option,
)
def lag(namesrv: str, timeout_s: float, as_json: bool, cluster: str | None, least: int) -> int:
    """Show the groups that are behind, those furthest behind first."""

    async def ask(admin: AdminConnection) -> tuple[list[GroupLag], tuple[str, ...]]:
        listing = await groups.list_groups(admin, cluster=cluster)
        found = [await groups.group_lag(admin, one.group) for one in listing.groups]
        return [one for one in found if (one.lag or 0) >= least], listing.problems

    found, problems = converse(namesrv, timeout_s, ask)
    found.sort(key=lambda one: (-(one.lag or 0), one.group))
    say_problems(problems)
    if as_json:
        rows_json = [{"group": one.group, "lag": one.lag, "consume_tps": one.consume_tps} for one in found]
        print_json({"groups": rows_json})
        return ending(problems)
    rows = table("", "group", "lag", "consumes/s", "topics", right=("lag", "consumes/s"))
    for one in found:
        topics = sorted({queue.topic for queue in one.queues if queue.lag > 0})
        rows.add_row(one.group, str(one.lag or 0), f"{one.consume_tps:.1f}", " ".join(topics))
    console().print(rows)
    return ending(problems)


# -- settings of the name servers


@click.command("namesrv")
@click.argument("settings", nargs=-1, metavar="[KEY=VALUE]...")
@options(yes_option, dry_run_option)
def namesrv_(namesrv: str, timeout_s: float, as_json: bool, settings: tuple[str, ...], **asking: bool) -> int:
    """Show the settings of the name servers, or change some while they run. The command asks before a change."""
    before = converse(namesrv, timeout_s, upkeep.namesrv_settings)
    if not settings:
        if as_json:
            print_json(before)
        else:
            for address, values in before.items():
                click.echo(f"# {address}")
                for key, value in sorted(values.items()):
                    click.echo(f"{key}={value}")
        return DONE
    wanted = dict(override_source(settings, "argument").values)
    if asking["dry_run"] or not asking["yes"]:
        words = ", ".join(f"{key} to {value}" for key, value in wanted.items())
        ended = _ask(f"change {words} on {', '.join(before)}", {"settings": wanted}, asking["dry_run"], as_json)
        if ended is not None:
            return ended
    changed = converse(namesrv, timeout_s, lambda admin: upkeep.change_namesrv_settings(admin, wanted))
    return _done(
        f"changed on {', '.join(changed)} until the restart", {"settings": wanted, "changed_on": list(changed)}, as_json
    )


COMMANDS = (namesrv_, kv, probe, clean, drain, undrain, export, import_, lag)
