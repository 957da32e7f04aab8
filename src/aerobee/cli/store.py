"""`aerobee store inspect|verify|repair|dump|backup|restore`: a store directory, examined without a broker."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypedDict, TypeVar, Unpack

import click
from rich.console import Console

from aerobee.cli.messages import message_fields
from aerobee.cli.output import (
    DONE,
    REFUSED,
    console,
    plain,
    print_json,
    print_json_line,
    progress_bar,
    show_size,
    show_time,
    table,
    time_option,
)
from aerobee.cli.storebackup import backup, restore, verify_one
from aerobee.config.loader import Source, file_source, load, override_source
from aerobee.errors import StoreLockedError
from aerobee.runtime.disk import InlineDisk
from aerobee.runtime.lockprobe import lock_holder
from aerobee.store.config import StoreConfig
from aerobee.store.copies import holds_backup
from aerobee.store.offline.directory import StoreDirectory, look_at
from aerobee.store.offline.dump import Dump, DumpFilter
from aerobee.store.offline.inspect import InspectReport, QueueView
from aerobee.store.offline.inspect import inspect as inspect_store
from aerobee.store.offline.problems import Findings
from aerobee.store.offline.repair import RepairReport
from aerobee.store.offline.repair import repair as repair_store
from aerobee.store.offline.verify import VerifyReport
from aerobee.store.offline.verify import verify as verify_store

_SHOWN_MAX = 20
F = TypeVar("F", bound=Callable[..., Any])


@click.group()
def store() -> None:
    """Examine a store directory of Aerobee or Apache, even while a broker uses it."""


store.add_command(backup)
store.add_command(restore)


def _options(command: F) -> F:
    for option in (
        click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text, for errors too."),
        click.option("--commitlog", metavar="DIR", help="Directory of the log, if it is not DIR/commitlog."),
        click.option(
            "--set", "settings", multiple=True, metavar="KEY=VALUE", help="A setting of the broker. May be repeated."
        ),
        click.option(
            "-c",
            "--config",
            "conf",
            type=click.Path(exists=True, dir_okay=False),
            help="The .conf file of the broker, for file sizes and delay levels.",
        ),
        click.argument("directory", metavar="DIR"),
    ):
        command = option(command)
    return command


def _look(directory: str, conf: str | None, settings: tuple[str, ...], commitlog: str | None) -> StoreDirectory:
    disk = InlineDisk()
    config = None
    if conf is not None or settings:
        sources: list[Source] = []
        if conf is not None:
            file = disk.open(conf, write=False)
            try:
                sources.append(file_source(conf, file.read(0, file.size())))
            finally:
                file.close()
        # The file of a broker holds settings of other components, too.
        config = load([StoreConfig], *sources, override_source(settings), lenient=True).get(StoreConfig)
    return look_at(disk, directory, config=config, commit_log=commitlog, lock_holder=lock_holder)


def _state(is_live: bool, has_abort: bool, holder: int | None = None) -> str:
    if is_live:
        return f"in use by process {holder}" if holder else "in use by a broker"
    return (
        "not shut down cleanly (the file abort exists), recovers at the next start"
        if has_abort
        else "shut down cleanly"
    )


# ---- inspect ----


@store.command()
@click.option("--queues/--no-queues", default=False, help="Print a line for each queue instead of each topic.")
@_options
def inspect(
    directory: str,
    conf: str | None,
    settings: tuple[str, ...],
    commitlog: str | None,
    as_json: bool,
    queues: bool,
) -> int:
    """Show what is in the store: segments, topics, queues, index, checkpoint and state files."""
    found = _look(directory, conf, settings, commitlog)
    with progress_bar("inspect") as progress:
        report = inspect_store(found, progress)
    if as_json:
        print_json({**plain(report), "log_size": report.log_size})
    else:
        _print_inspect(console(), report, queues)
    return DONE


def _print_inspect(out: Console, report: InspectReport, each_queue: bool) -> None:
    out.print(f"store      {report.root}")
    out.print(f"state      {_state(report.is_live, report.has_abort, report.lock_holder)}")
    out.print(f"log        {report.log_start} to {report.log_end}, {show_size(report.log_end - report.log_start)}")
    if report.is_ours:
        out.print(f"synced to  {report.durable}")
    if report.checkpoint is not None:
        point = report.checkpoint
        out.print(
            f"checkpoint log {show_time(point.physic_msg_timestamp)}, queues {show_time(point.logics_msg_timestamp)}"
            f" (offset {point.logics_physical_offset}), index {show_time(point.index_msg_timestamp)},"
            f" confirmed {point.confirm_phy_offset}, master flushed {point.master_flushed_offset}"
        )
    else:
        out.print("checkpoint none")
    _print_segments(out, report)
    _print_queues(out, report.queues, each_queue)
    if report.index_files:
        rows = table(
            "index", "file", "size", "entries", "slots used", "from", "to", right=("size", "entries", "slots used")
        )
        for file in report.index_files:
            head = file.header
            rows.add_row(
                file.name,
                show_size(file.size),
                str(head.count - 1),
                str(head.slots_used) if head.slots_used or head.count == 1 else "not written yet",
                show_time(head.begin_timestamp),
                show_time(head.end_timestamp),
            )
        out.print()
        out.print(rows)
    if report.state_files:
        rows = table("config", "file", "size", "", right=("size",))
        for state in report.state_files:
            rows.add_row(state.name, show_size(state.size), state.problem or "")
        out.print()
        out.print(rows)
    if report.set_aside_counts:
        _print_asides(out, report)
    if report.others:
        names = ", ".join(other.name + ("/" if other.is_directory else "") for other in report.others)
        out.print(f"\nalso here  {names}")


def _print_asides(out: Console, report: InspectReport) -> None:
    counts = ", ".join(f"{count} by {reader}" for reader, count in report.set_aside_counts.items())
    rows = table(
        f"set aside (records that cannot be used: {counts})",
        "found", "by", "topic", "queue", "offset", "at", "reason", right=("queue", "offset", "at"),
    )  # fmt: skip
    for one in report.set_aside[-_SHOWN_MAX:]:
        numbers = (one.queue_id, one.queue_offset, one.physical_offset)
        rows.add_row(show_time(one.found_ms), one.reader, one.topic, *map(str, numbers), one.reason)
    out.print()
    out.print(rows)
    if len(report.set_aside) > _SHOWN_MAX:
        out.print(f"({len(report.set_aside) - _SHOWN_MAX} older ones are not shown; --json lists them)")


def _print_segments(out: Console, report: InspectReport) -> None:
    rows = table("commitlog", "file", "size", "records end at", "first stored", "last stored", right=("size",))
    shown = report.segments
    if len(shown) > _SHOWN_MAX:
        shown = [*shown[: _SHOWN_MAX // 2], *shown[-_SHOWN_MAX // 2 :]]
    for segment in shown:
        full = " (full)" if segment.end == segment.start + segment.size else ""
        rows.add_row(
            segment.name,
            show_size(segment.size),
            f"{segment.end}{full}" if segment.first_store_timestamp else "no record",
            show_time(segment.first_store_timestamp),
            show_time(segment.last_store_timestamp),
        )
    out.print()
    out.print(rows)
    if len(shown) < len(report.segments):
        out.print(f"({len(report.segments) - len(shown)} between are not shown; --json lists all)")


def _print_queues(out: Console, queues: list[QueueView], each_queue: bool) -> None:
    if not queues:
        return
    out.print()
    if each_queue:
        rows = table(
            "queues",
            "topic",
            "queue",
            "min",
            "max",
            "messages",
            "files",
            right=("queue", "min", "max", "messages", "files"),
        )
        for queue in queues:
            count = queue.max_offset - queue.min_offset
            numbers = (queue.queue_id, queue.min_offset, queue.max_offset, count, queue.files)
            rows.add_row(queue.topic, *map(str, numbers))
        out.print(rows)
        return
    rows = table("topics", "topic", "queues", "messages", "offsets", "files", right=("queues", "messages", "files"))
    for topic in dict.fromkeys(queue.topic for queue in queues):
        several = [queue for queue in queues if queue.topic == topic]
        spans = " ".join(f"{queue.queue_id}:{queue.min_offset}-{queue.max_offset}" for queue in several[:8])
        rows.add_row(
            topic,
            str(len(several)),
            str(sum(queue.max_offset - queue.min_offset for queue in several)),
            spans + (" ..." if len(several) > 8 else ""),
            str(sum(queue.files for queue in several)),
        )
    out.print(rows)


# ---- verify ----


@store.command()
@_options
def verify(directory: str, conf: str | None, settings: tuple[str, ...], commitlog: str | None, as_json: bool) -> int:
    """Check every record, queue unit and index entry. Of a backup, check every file.

    The exit code is 0 if the store is sound, 1 if there is damage, and 2 if files could not be read.
    """
    if holds_backup(InlineDisk(), directory):
        return verify_one(directory, as_json)
    found = _look(directory, conf, settings, commitlog)
    with progress_bar("verify") as progress:
        report = verify_store(found, progress)
    findings = report.findings
    if as_json:
        verdict = ("sound", "damaged", "not all could be read")[findings.exit_code]
        print_json({"verdict": verdict, **plain(report)})
    else:
        _print_verify(console(), report)
    return findings.exit_code


def _print_verify(out: Console, report: VerifyReport) -> None:
    findings = report.findings
    sealed = report.sealed_records
    by = f"{sealed} with a whole-record checksum" if sealed < report.records else "each with a whole-record checksum"
    out.print(f"store    {report.root}, {_state(report.is_live, report.has_abort)}")
    out.print(f"log      {report.records} records, {by if report.records else 'nothing written'}")
    out.print(
        f"         {report.segments} segments from {report.log_start}, log ends at {report.log_end} "
        f"({show_size(report.log_bytes)})"
    )
    out.print(f"queues   {report.queue_units} correct units in {report.queues} queues")
    out.print(f"index    {report.index_entries} correct entries in {report.index_files} files")
    out.print(f"config   {report.state_files} files")
    _print_findings(out, findings)
    if not findings.problem_count and not findings.unseen:
        out.print("sound")
    elif findings.problem_count:
        mended = sum(problem.repairable for problem in findings.problems)
        out.print(f"damaged in {findings.problem_count} places; `aerobee store repair` can repair {mended} of them")


def _print_findings(out: Console, findings: Findings) -> None:
    for note in findings.notes:
        out.print(f"note     {note}")
    for unseen in findings.unseen:
        out.print(f"unread   {unseen}")
    for problem in findings.problems[:_SHOWN_MAX]:
        out.print(f"DAMAGE   {problem.path} byte {problem.offset}: {problem.what}")
    if findings.problem_count > _SHOWN_MAX:
        out.print(f"         and {findings.problem_count - _SHOWN_MAX} more (--json lists up to 1000)")


# ---- repair ----


@store.command()
@click.option("--dry-run", is_flag=True, help="Only print what is damaged and what would be rebuilt.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@_options
def repair(
    directory: str,
    conf: str | None,
    settings: tuple[str, ...],
    commitlog: str | None,
    as_json: bool,
    dry_run: bool,
    yes: bool,
) -> int:
    """Rebuild consume queues and index from the log. The log itself is never changed."""
    found = _look(directory, conf, settings, commitlog)
    if found.is_live:
        who = f"process {found.holder}" if found.holder else "a broker"
        raise StoreLockedError(f"{found.root} is in use by {who}", hint="Stop it first.")
    if dry_run:
        return _dry_run(found, as_json)
    if not yes:
        click.confirm(f"Rebuild consumequeue/ and index/ of {found.root} from its log?", abort=True, err=True)
    lock = found.disk.lock(found.path("lock"))
    try:
        with progress_bar("repair") as progress:
            report = repair_store(found, progress)
    finally:
        lock.release()
    if as_json:
        print_json(report)
    else:
        _print_repair(console(), report)
    return REFUSED if report.lost else DONE


def _dry_run(found: StoreDirectory, as_json: bool) -> int:
    with progress_bar("verify") as progress:
        report = verify_store(found, progress)
    findings = report.findings
    mended = [problem for problem in findings.problems if problem.repairable]
    if as_json:
        lost = [problem for problem in findings.problems if not problem.repairable]
        print_json({"dry_run": True, "would_mend": mended, "cannot_mend": lost, "notes": findings.notes})
    else:
        out = console()
        _print_findings(out, findings)
        out.print(f"repair would repair {len(mended)} of {findings.problem_count} problems; nothing was changed")
    return findings.exit_code


def _print_repair(out: Console, report: RepairReport) -> None:
    for start, end in report.lost[:_SHOWN_MAX]:
        out.print(f"LOST     there is no sound record from {start} to {end} of the log")
    for note in report.notes[:_SHOWN_MAX]:
        out.print(f"note     {note}")
    for name in report.replaced[:_SHOWN_MAX]:
        out.print(f"built    {name}")
    if len(report.replaced) > _SHOWN_MAX:
        out.print(f"         and {len(report.replaced) - _SHOWN_MAX} more")
    for name in report.removed[:_SHOWN_MAX]:
        out.print(f"removed  {name}")
    out.print(
        f"{report.records} records to {report.log_end}, {report.queues} queues, {report.index_files} index files: "
        f"{len(report.replaced)} files rebuilt, {report.unchanged} were correct already"
    )


# ---- dump ----


class _Wanted(TypedDict):
    """The options that choose messages, which are the fields of DumpFilter."""

    topic: str | None
    queue_id: int | None
    begin_ms: int | None
    end_ms: int | None
    key: str | None
    limit: int | None


@store.command()
@click.option("-t", "--topic", help="Only this topic.")
@click.option("-q", "--queue", "queue_id", type=int, help="Only this queue id.")
@click.option(
    "--from",
    "begin_ms",
    callback=time_option,
    help="Only messages stored at this time or later: milliseconds, or ISO 8601 (UTC).",
)
@click.option("--to", "end_ms", callback=time_option, help="Only messages stored before this time.")
@click.option("-k", "--key", help="Only messages with this key or message id.")
@click.option("--limit", type=click.IntRange(min=0), help="Print at most this many messages.")
@click.option("--decompress", is_flag=True, help="Decompress the bodies.")
@click.option("--all-fields", is_flag=True, help="Print hosts, offsets, flags and system properties, too.")
@_options
def dump(
    directory: str,
    conf: str | None,
    settings: tuple[str, ...],
    commitlog: str | None,
    as_json: bool,
    decompress: bool,
    all_fields: bool,
    **wanted: Unpack[_Wanted],
) -> int:
    """Print the messages as JSON lines, in the order of the log. Notes and damage go to stderr."""
    found = _look(directory, conf, settings, commitlog)
    with progress_bar("dump") as progress:
        messages = Dump(found, DumpFilter(**wanted), decompress=decompress, progress=progress)
        for message in messages:
            print_json_line(message_fields(message, all_fields))
    report = messages.report
    if as_json:
        print_json_line(report, err=True)
    else:
        err = Console(stderr=True, highlight=False, markup=False, soft_wrap=True)
        _print_findings(err, report.findings)
        if report.undecompressed:
            err.print(f"note     {report.undecompressed} bodies could not be decompressed and are printed as stored")
        err.print(f"{report.messages} messages between offset {report.start} and {report.end}")
    return report.findings.exit_code
