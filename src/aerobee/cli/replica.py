"""`aerobee replica`: the replicas of broker groups: list, status, add, remove, switch, force."""

from __future__ import annotations

import click

from aerobee.admin.replicas import (
    GroupReplicas,
    ReplicaView,
    force_master,
    remove_replica,
    replicated_groups,
    settings_of_a_new_replica,
    switch_master,
)
from aerobee.cli.changing import asked_first
from aerobee.cli.output import DONE, REFUSED, CommandGroup, console, print_json, table
from aerobee.cli.remote import converse, dry_run_option, on_off, options, yes_option

_group_option = click.option("-b", "--broker", "group", required=True, help="Name of the broker group.")
_number = click.argument("replica", type=click.IntRange(1, 2**31 - 1))


@click.group(cls=CommandGroup)
def replica() -> None:
    """Show and change the replicas of broker groups."""


@replica.command(name="list")
@options()
def list_groups(namesrv: str, timeout_s: float, as_json: bool) -> int:
    """List the groups that have replicas.

    The exit code is 1 if a group has no master or too few replicas in sync.
    """
    found = converse(namesrv, timeout_s, replicated_groups)
    if as_json:
        print_json({"groups": [one.to_json() for one in found]})
    elif not found:
        click.echo("no broker group has replicas (a group has them if its brokers are started with coordinatorAddr)")
    else:
        rows = table(
            "", "cluster", "group", "epoch", "master", "in sync", "needed", "replicas", right=("epoch", "needed")
        )
        for one in found:
            rows.add_row(
                one.cluster, one.group, str(one.epoch), _master(one), _numbers(one.in_sync), str(one.min_in_sync),
                _numbers(tuple(each.replica for each in one.replicas)),
            )  # fmt: skip
        console().print(rows)
    return DONE if all(one.is_sound for one in found) else REFUSED


@replica.command()
@options(_group_option)
def status(namesrv: str, timeout_s: float, as_json: bool, group: str) -> int:
    """Show each replica of a group: its role, how far its log is, and how much it lacks.

    The exit code is 1 if the group has no master or too few replicas in sync.
    """
    (found,) = converse(namesrv, timeout_s, lambda admin: replicated_groups(admin, group))
    if as_json:
        print_json(found.to_json())
    else:
        _print_status(found)
    return DONE if found.is_sound else REFUSED


@replica.command()
@options(_group_option)
def add(namesrv: str, timeout_s: float, as_json: bool, group: str) -> int:
    """Print the command that starts another replica of a group.

    A replica joins by being started, with an empty directory, on its machine. Nothing is changed by this command.
    """
    settings = converse(namesrv, timeout_s, lambda admin: settings_of_a_new_replica(admin, group))
    if as_json:
        print_json({"group": group, "settings": settings})
        return DONE
    click.echo(
        "Run this on the machine of the new replica. Name the group's coordination store and an empty directory:"
    )
    words = [f"  --set {key}={value}" for key, value in settings.items()]
    words += ["  --set coordinatorAddr=ENDPOINTS", "  --set storePathRootDir=DIR"]
    click.echo(" \\\n".join(["aerobee broker", *words]))
    return DONE


@replica.command()
@options(_group_option, dry_run_option, yes_option, _number)
def switch(namesrv: str, timeout_s: float, as_json: bool, group: str, replica: int, **asking: bool) -> int:
    """Hand the role of master to the replica with the number REPLICA, which must be in sync.

    Sends wait for at most half a second meanwhile.
    """
    words = f"hand the role of master of group {group} to replica {replica}"
    ended = _asked(words, group, replica, as_json, asking)
    if ended is not None:
        return ended
    found = converse(namesrv, timeout_s, lambda admin: switch_master(admin, group, replica))
    if as_json:
        print_json(found.to_json())
    else:
        click.echo(f"replica {found.master} leads group {group}, epoch {found.epoch}")
    return DONE if found.master == replica else REFUSED


@replica.command()
@options(_group_option, dry_run_option, yes_option, _number)
def remove(namesrv: str, timeout_s: float, as_json: bool, group: str, replica: int, **asking: bool) -> int:
    """Remove the replica with the number REPLICA, which is gone for good. Its number is never given again.

    A replica that is alive, or that may hold messages that no other has, is refused.
    """
    words = f"remove replica {replica} of group {group}: its directory cannot join the group again"
    ended = _asked(words, group, replica, as_json, asking)
    if ended is not None:
        return ended
    found = converse(namesrv, timeout_s, lambda admin: remove_replica(admin, group, replica))
    if as_json:
        print_json(found.to_json())
    else:
        click.echo(
            f"replica {replica} was removed; group {group} has {_numbers(tuple(r.replica for r in found.replicas))}"
        )
    return DONE


@replica.command()
@options(_group_option, dry_run_option, yes_option, _number)
def force(namesrv: str, timeout_s: float, as_json: bool, group: str, replica: int, **asking: bool) -> int:
    """Make the replica with the number REPLICA lead although it may lack messages.

    Use this only when every replica that was in sync is lost for good: acknowledged messages that only they had are
    lost. The command is refused while one of them is alive.
    """
    words = (
        f"force replica {replica} of group {group} to lead: acknowledged messages that only the lost replicas had are "
        "lost"
    )
    ended = _asked(words, group, replica, as_json, asking)
    if ended is not None:
        return ended
    converse(namesrv, timeout_s, lambda admin: force_master(admin, group, replica))
    if as_json:
        print_json({"group": group, "replica": replica, "forced": True})
    else:
        click.echo(f"replica {replica} leads group {group}. `aerobee replica status -b {group}` shows it")
    return DONE


def _asked(words: str, group: str, replica: int, as_json: bool, asking: dict[str, bool]) -> int | None:
    """Return the exit code of a dry run or of a refusal by the operator, or None to continue."""
    if asking["yes"] and not asking["dry_run"]:
        return None
    question = f"{words[0].upper()}{words[1:]}. Go on?"
    facts = {"group": group, "replica": replica}
    return asked_first(words, question, facts, dry_run=asking["dry_run"], as_json=as_json)


def _numbers(numbers: tuple[int, ...]) -> str:
    return " ".join(str(number) for number in numbers) or "-"


def _master(group: GroupReplicas) -> str:
    return "-" if group.master is None else str(group.master)


def _print_status(found: GroupReplicas) -> None:
    click.echo(
        f"group {found.group} of {found.cluster}: epoch {found.epoch}, master {_master(found)}, in sync "
        f"{_numbers(found.in_sync)} of at least {found.min_in_sync}, {found.elections} elections and "
        f"{found.set_changes} changes of the set seen by the master"
    )
    if found.eligible:
        click.echo(f"these left the set last and may still lead: {_numbers(found.eligible)}")
    if found.forced:
        click.echo(f"an operator forced a change: {found.forced}")
    rows = table(
        "", "replica", "address", "role", "in sync", "alive", "epoch", "log end", "confirmed", "lag", "release",
        right=("replica", "epoch", "log end", "confirmed", "lag"),
    )  # fmt: skip
    for one in found.replicas:
        rows.add_row(
            str(one.replica), one.address, _role(one), on_off(one.in_sync), on_off(one.alive), str(one.epoch),
            str(one.log_end), str(one.confirmed), "-" if one.lag_bytes < 0 else str(one.lag_bytes), one.release,
        )  # fmt: skip
        if one.reason:
            click.echo(f"warning: replica {one.replica}: {one.reason}", err=True)
    console().print(rows)


def _role(one: ReplicaView) -> str:
    return "learner" if one.learner and one.role == "follower" else one.role
