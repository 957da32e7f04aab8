"""`aerobee store backup|restore`: copies of a store directory, made while its broker runs."""

from __future__ import annotations

import click

import aerobee
from aerobee.cli.output import DONE, REFUSED, console, plain, print_json, progress_bar, show_size, show_time
from aerobee.runtime.clock import SystemClock
from aerobee.runtime.disk import InlineDisk
from aerobee.runtime.linking import link_file, never_link
from aerobee.runtime.lockprobe import lock_holder
from aerobee.runtime.paths import whole_path
from aerobee.store.offline.backup import BackupCheck, BackupManifest, make_backup, restore_backup, verify_backup
from aerobee.store.offline.directory import look_at

_json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text, for errors too.")


@click.command()
@click.argument("directory", metavar="DIR")
@click.option("--to", "place", required=True, metavar="DEST", help="Directory of the backup: empty, or an earlier one.")
@click.option(
    "--copy", is_flag=True, help="Copy full segments instead of linking them, where DEST is on the same disk."
)
@click.option("--with-secrets", is_flag=True, help="Keep the files of users and access control, too.")
@click.option("--commitlog", metavar="DIR", help="Directory of the log, if it is not DIR/commitlog.")
@_json_option
def backup(directory: str, place: str, copy: bool, with_secrets: bool, commitlog: str | None, as_json: bool) -> int:
    """Back up a store, also while its broker runs. A second backup into DEST copies only what is new.

    The backup ends at a mark: everything that was synced when it was taken. It holds the log and the state of topics,
    groups and offsets. Queues and index are built again from the log.
    """
    disk = InlineDisk()
    found = look_at(disk, whole_path(directory), commit_log=commitlog, lock_holder=lock_holder)
    with progress_bar("backup") as progress:
        report = make_backup(
            found,
            whole_path(place),
            now_ms=SystemClock().now_ms(),
            release=aerobee.__version__,
            link=never_link if copy else link_file,
            with_secrets=with_secrets,
            progress=progress,
        )
    manifest = report.manifest
    if as_json:
        print_json({"mark": manifest.mark, "log_start": manifest.log_start, **plain(report), "place": place})
        return DONE
    console().print(
        f"backed up {directory} up to {manifest.mark}: {show_size(manifest.size)} in {len(manifest.files)} files "
        f"({report.kept} segments kept, {report.linked} linked, {show_size(report.bytes_copied)} copied)"
    )
    if report.secrets_left_out:
        names = ", ".join(report.secrets_left_out)
        click.echo(f"warning: {names} were left out; --with-secrets keeps them", err=True)
    return DONE


@click.command()
@click.argument("place", metavar="BACKUP")
@click.option("--to", "directory", required=True, metavar="DIR", help="Where to make the store. It must be empty.")
@_json_option
def restore(place: str, directory: str, as_json: bool) -> int:
    """Make a store of a backup. Every file is checked. The broker that starts on it builds queues and index again."""
    with progress_bar("restore") as progress:
        manifest = restore_backup(InlineDisk(), whole_path(place), whole_path(directory), progress)
    if as_json:
        print_json({"directory": directory, "mark": manifest.mark, "log_start": manifest.log_start})
        return DONE
    console().print(
        f"restored {directory}: the log from {manifest.log_start} to {manifest.mark}, "
        f"as of {show_time(manifest.made_ms)}. Start a broker on it: it builds queues and index again"
    )
    if manifest.left_out:
        click.echo(f"warning: the backup was made without {', '.join(manifest.left_out)}", err=True)
    return DONE


def verify_one(place: str, as_json: bool) -> int:
    """Verify a backup, for `aerobee store verify`."""
    with progress_bar("verify") as progress:
        check = verify_backup(InlineDisk(), whole_path(place), progress)
    if as_json:
        print_json({**_facts(check.manifest), "problems": check.problems, "bytes_read": check.bytes_read})
    else:
        _print_check(check)
    return REFUSED if check.problems else DONE


def _facts(manifest: BackupManifest) -> dict[str, object]:
    return {
        "backup_of": manifest.source,
        "made_ms": manifest.made_ms,
        "log_start": manifest.log_start,
        "mark": manifest.mark,
        "files": len(manifest.files),
    }


def _print_check(check: BackupCheck) -> None:
    out = console()
    manifest = check.manifest
    out.print(
        f"backup of {manifest.source}, {show_time(manifest.made_ms)}: the log from {manifest.log_start} to "
        f"{manifest.mark}, {len(manifest.files)} files, {show_size(manifest.size)}"
    )
    for problem in check.problems:
        out.print(f"damaged    {problem}")
    if not check.problems:
        out.print("every file is as it was")
