"""`aerobee cluster`: the brokers of a cluster; `config`: their settings; `runtime`: their runtime values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import click

from aerobee.admin.cluster import (
    BrokerStatus,
    broker_settings,
    change_broker_settings,
    cluster_status,
    forget_group,
    runtime_info,
    setting_sources,
)
from aerobee.admin.connection import AdminConnection
from aerobee.cli import upkeep
from aerobee.cli.changing import asked_first, run_change
from aerobee.cli.output import DONE, REFUSED, UNREACHABLE, console, print_json, show_size, show_time, table
from aerobee.cli.remote import (
    broker_option,
    cluster_option,
    converse,
    dry_run_option,
    on_off,
    options,
    say_problems,
    yes_option,
)
from aerobee.config.loader import nearest_key, override_source
from aerobee.errors import InvalidArgumentError
from aerobee.model.numbers import int_or


@click.group(invoke_without_command=True)
@options()
@click.pass_context
def cluster(context: click.Context, namesrv: str, timeout_s: float, as_json: bool) -> int:
    """Show the brokers of a cluster.

    The exit code is 3 if a broker does not answer, and 1 if a broker is fenced and takes no messages.
    """
    if context.invoked_subcommand is not None:
        return DONE
    found = converse(namesrv, timeout_s, cluster_status)
    if as_json:
        print_json({"brokers": [one.to_json() for one in found]})
    elif not found:
        click.echo("the name server answers, but no broker has registered")
    else:
        _print_brokers(found)
    if any(one.problem for one in found):
        return UNREACHABLE
    return REFUSED if any(one.fenced for one in found) else DONE


def _print_brokers(found: tuple[BrokerStatus, ...]) -> None:
    numbers = ("id", "in/s", "out/s", "in today", "out today", "disk", "set aside")
    rows = table(
        "", "cluster", "broker", "id", "address", "version", "in/s", "out/s", "in today", "out today", "disk",
        "oldest message", "active", "set aside", right=numbers,
    )  # fmt: skip
    for one in found:
        if one.problem:
            rows.add_row(
                one.cluster, one.broker, str(one.broker_id), one.address, "-", "-", "-", "-", "-", "-", "-", "no", "-"
            )
            where = f"at {one.address} does not answer" if one.address else "cannot be asked"
            click.echo(f"warning: broker {one.broker} {where}: {one.problem}", err=True)
            continue
        rows.add_row(
            one.cluster, one.broker, str(one.broker_id), one.address, one.version, f"{one.in_tps:.1f}",
            f"{one.out_tps:.1f}", str(one.in_today), str(one.out_today), f"{one.disk_used_ratio:.0%}",
            show_time(one.earliest_timestamp), _state(one), str(one.set_aside),
        )  # fmt: skip
        for warning in _warnings(one):
            click.echo(f"warning: broker {one.broker} at {one.address}: {warning}", err=True)
    console().print(rows)


def _state(one: BrokerStatus) -> str:
    """Return whether the broker is active, or why it takes no messages."""
    refusing = (("fenced", one.fenced), ("full", one.full), ("drained", one.drained))
    return next((word for word, reason in refusing if reason), on_off(one.is_active))


def _warnings(one: BrokerStatus) -> list[str]:
    found = []
    if one.fenced:
        found.append(f"the broker is fenced and takes no messages: {one.fenced}. Check its disk, then restart it")
    if one.full:
        found.append(f"the broker takes no messages: {one.full}. Free space on its disk")
    if one.drained:
        found.append(
            f"the broker takes no messages: {one.drained}. `aerobee cluster undrain -b {one.broker}` allows them"
        )
    if one.set_aside:
        found.append(
            f"{one.set_aside} records of its commit log cannot be used and were set aside. "
            "`aerobee store inspect DIR` lists them, and the broker's log gives the reasons"
        )
    if one.entries_rejected:
        found.append(
            f"{one.entries_rejected} entries of its state files cannot be used. They are in config/*.rejected with "
            "their reasons. Correct them by hand or delete that file"
        )
    if one.part_failures:
        failing = f", and {', '.join(one.parts_failing)} failed again last time" if one.parts_failing else ""
        found.append(f"its parts failed {one.part_failures} times since its start{failing}. Its log has the tracebacks")
    return found


@cluster.command()
@click.argument("settings", nargs=-1, metavar="[KEY=VALUE]...")
@click.option("--source", "with_source", is_flag=True, help="Show where each setting comes from.")
@click.option(
    "--unset", multiple=True, metavar="KEY", help="Take a change back: what the file says holds again. May be repeated."
)
@click.option("--key", "keys", multiple=True, help="Show only this setting. May be repeated.")
@options(yes_option, dry_run_option, broker_option, cluster_option)
def config(
    namesrv: str,
    timeout_s: float,
    as_json: bool,
    cluster: str | None,
    broker: str | None,
    keys: tuple[str, ...],
    unset: tuple[str, ...],
    with_source: bool,
    settings: tuple[str, ...],
    **asking: bool,
) -> int:
    """Show the settings of the brokers, or change some while the brokers run.

    The command asks before a change. A change holds after a restart, too, until --unset takes it back. It is stronger
    than the broker's file, which is never written.
    """
    if settings or unset:
        if bare := [one for one in settings if "=" not in one]:
            raise click.UsageError(f"{bare[0]!r} is not KEY=VALUE: add its value, or use --key {bare[0]} to show it")
        values = dict(override_source(settings, "argument").values)
        if unset and not values:
            sources = converse(namesrv, timeout_s, lambda admin: setting_sources(admin, cluster=cluster, broker=broker))
            _require_something_to_unset(unset, sources)
        if asking["dry_run"] or not asking["yes"]:
            before = converse(namesrv, timeout_s, lambda admin: broker_settings(admin, cluster=cluster, broker=broker))
            ended = _asked_to_change(before, values, unset, dry_run=asking["dry_run"], as_json=as_json)
            if ended is not None:
                return ended
        changed, warnings = run_change(
            namesrv,
            timeout_s,
            lambda admin: change_broker_settings(admin, values, unset=unset, cluster=cluster, broker=broker),
            cluster=cluster,
            broker=broker,
        )
        if as_json:
            print_json(
                {"changed_on": list(changed), "settings": values, "unset": list(unset), "warnings": list(warnings)}
            )
        else:
            say_problems(warnings)
            hint = f"; aerobee cluster config --unset {next(iter(values))} takes it back" if values else ""
            click.echo(f"changed on {', '.join(changed)}{hint}")
        return DONE
    found = converse(namesrv, timeout_s, lambda admin: broker_settings(admin, cluster=cluster, broker=broker))
    _require_known(keys, found)
    shown = {
        name: {key: value for key, value in table.items() if not keys or key in keys} for name, table in found.items()
    }
    if with_source:
        sources = converse(namesrv, timeout_s, lambda admin: setting_sources(admin, cluster=cluster, broker=broker))
        if as_json:
            print_json(
                {
                    name: {key: {"value": value, "source": sources[name].get(key, "")} for key, value in table.items()}
                    for name, table in shown.items()
                }
            )
            return DONE
        shown = {
            name: {key: f"{value} ({sources[name].get(key, '')})" for key, value in table.items()}
            for name, table in shown.items()
        }
    if as_json:
        print_json(shown)
        return DONE
    _print_tables(shown, "{}={}")
    return DONE


def _require_known(keys: Sequence[str], found: Mapping[str, Mapping[str, str]]) -> None:
    """Refuse to show a setting that no broker has: silence would look like an empty value."""
    known = {key for table in found.values() for key in table}
    for key in keys:
        if known and key not in known:
            near = nearest_key(key, known)
            raise InvalidArgumentError(
                f"no broker has a setting {key!r}" + (f", did you mean {near!r}?" if near else ""),
                hint="`aerobee cluster config` lists the settings.",
            )


def _require_something_to_unset(keys: Sequence[str], sources: Mapping[str, Mapping[str, str]]) -> None:
    """Refuse to take back what nobody changed. Keys under other names are left to the brokers."""
    found = {table.get(key, "") for key in keys for table in sources.values()}
    if found.isdisjoint(("wire", "unknown", "")):
        raise InvalidArgumentError(
            f"{', '.join(keys)}: nobody changed this over the wire",
            hint=f"`aerobee cluster config --source --key {keys[0]}` shows where the value comes from.",
        )


def _asked_to_change(
    before: Mapping[str, Mapping[str, str]],
    values: Mapping[str, str],
    unset: Sequence[str],
    *,
    dry_run: bool,
    as_json: bool,
) -> int | None:
    changes = {name: {key: [table.get(key), value] for key, value in values.items()} for name, table in before.items()}
    words = "; ".join(
        f"{name}: "
        + ", ".join(
            [
                *(
                    f"{key} {'(unknown)' if old is None else old} to {new}{_what_it_deletes(key, old, new)}"
                    for key, (old, new) in rows.items()
                ),
                *(f"{key} back to what its file says" for key in unset),
            ]
        )
        for name, rows in changes.items()
    )
    return asked_first(
        f"change {words}", f"Change {words}?", {"changes": changes, "unset": list(unset)}, dry_run=dry_run,
        as_json=as_json,
    )  # fmt: skip


def _what_it_deletes(key: str, old: str | None, new: str | None) -> str:
    """Return words of warning for a change that lets a broker delete messages which it would keep now."""
    before, after = int_or(old, 0), int_or(new, -1)
    if key == "logMaxBytes" and after > 0 and (before == 0 or after < before):
        return f" (all but the newest {show_size(after)} are deleted at once, and do not come back)"
    if key == "fileReservedTime" and 0 <= after < before:
        return f" (messages older than {after} h are deleted at the hour of deleteWhen, and do not come back)"
    return ""


@cluster.command()
@options(broker_option, cluster_option)
def runtime(namesrv: str, timeout_s: float, as_json: bool, cluster: str | None, broker: str | None) -> int:
    """Show everything that the brokers tell about themselves, under Apache's keys."""

    async def ask(admin: AdminConnection) -> dict[str, dict[str, str]]:
        masters = await admin.masters(cluster=cluster, broker=broker)
        return {one.name: dict(sorted((await runtime_info(admin, one.address)).items())) for one in masters}

    found = converse(namesrv, timeout_s, ask)
    if as_json:
        print_json(found)
        return DONE
    _print_tables(found, "{:<42} {}")
    return DONE


def _print_tables(tables: Mapping[str, Mapping[str, str]], line: str) -> None:
    """Print one key a line, under the broker's name if there are several brokers."""
    for name, values in tables.items():
        if len(tables) > 1:
            click.echo(f"# {name}")
        for key, value in values.items():
            click.echo(line.format(key, value))


@cluster.command()
@click.argument("group")
@options(yes_option, dry_run_option)
def forget(namesrv: str, timeout_s: float, as_json: bool, group: str, **asking: bool) -> int:
    """Make the name servers forget the broker group GROUP, which is gone for good.

    Name servers remember the topics of a group that left, so that readers wait for it instead of reading a part of a
    topic. The command refuses a group that is running. A group that returns is known again.
    """
    if asking["dry_run"] or not asking["yes"]:
        words = f"forget broker group {group}: readers of its topics no longer wait for its messages"
        ended = asked_first(
            words,
            f"{words[0].upper()}{words[1:]}. Go on?",
            {"group": group},
            dry_run=asking["dry_run"],
            as_json=as_json,
        )
        if ended is not None:
            return ended
    told = converse(namesrv, timeout_s, lambda admin: forget_group(admin, group))
    if as_json:
        print_json({"group": group, "forgotten_by": list(told)})
    else:
        click.echo(f"broker group {group} is forgotten by {', '.join(told)}")
    return DONE


for _command in upkeep.COMMANDS:
    cluster.add_command(_command)
