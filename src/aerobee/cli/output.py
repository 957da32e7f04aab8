"""How all commands answer: exit codes, tables, JSON, progress bars, errors and closed pipes.

Exit codes: 0 done, 1 refused or damage found, 2 wrong usage or unreadable, 3 unreachable, timed out or
not the whole answer, 4 the store of a server is damaged, 130 interrupted.
"""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import enum
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NoReturn

import click

from aerobee.errors import AerobeeError, ConfigError, TransportError
from aerobee.model.numbers import parse_int
from aerobee.runtime.streams import open_closed_streams, silence

if TYPE_CHECKING:  # a server prints no tables, so it starts without rich
    from rich.console import Console
    from rich.table import Table

DONE = 0
REFUSED = 1
COULD_NOT = 2
UNREACHABLE = 3
INTERRUPTED = 130
# The exit code that a shell shows for a program that was ended by a closed pipe.
PIPE_CLOSED = 141
# Nothing is wrapped or cut here.
_WIDE = 1000
_HIGH = 100


def exit_code_of(error: AerobeeError) -> int:
    """Return the exit code for an error that ends a command."""
    if isinstance(error, TransportError):
        return UNREACHABLE
    code = getattr(error, "exit_code", None)
    if isinstance(code, int):
        return code
    return COULD_NOT if isinstance(error, ConfigError) else REFUSED


class _PipeClosedError(Exception):
    """The reader of the output has closed the pipe."""


class CommandGroup(click.Group):
    """A group whose commands end with the exit codes above, and print errors as JSON if --json was given."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command. Click itself would end with 1 for a closed pipe, which means damage here."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError as error:
            raise _PipeClosedError from error

    def main(self, args: Sequence[str] | None = None, *rest: Any, **extra: Any) -> NoReturn:
        """Run the command and exit."""
        open_closed_streams()
        words = list(sys.argv[1:] if args is None else args)
        as_json = "--json" in words
        extra["standalone_mode"] = False
        try:
            outcome = super().main(words, *rest, **extra)
            sys.stdout.flush()
        except click.ClickException as error:
            said = error
            if isinstance(error, click.BadParameter) and _plain(error.message) != error.message:
                said = click.BadParameter(_plain(error.message), error.ctx, error.param, error.param_hint)
            if as_json:
                _error_json(said.format_message(), None)
            else:
                said.show()
            sys.exit(error.exit_code)
        except (click.Abort, KeyboardInterrupt):
            _error("interrupted", None, as_json)
            sys.exit(INTERRUPTED)
        except AerobeeError as error:
            _error(error.message, error.hint, as_json)
            sys.exit(exit_code_of(error))
        except (_PipeClosedError, BrokenPipeError):
            silence(sys.stdout)
            sys.exit(PIPE_CLOSED)
        except OSError as error:
            _error(_of_system(error), None, as_json)
            silence(sys.stdout)
            sys.exit(COULD_NOT)
        sys.exit(outcome if isinstance(outcome, int) else DONE)


def _plain(message: str) -> str:
    """Return click's complaint about a number without the name of its type."""
    for words in ("integer range", "integer"):
        message = message.replace(f"is not a valid {words}.", "is not a whole number.")
    for words in ("float range", "float"):
        message = message.replace(f"is not a valid {words}.", "is not a number.")
    return message


def _of_system(error: OSError) -> str:
    """Return what the system refused, and for which file if the error tells it."""
    reason = error.strerror or str(error) or type(error).__name__
    return f"{os.fsdecode(error.filename)}: {reason}" if isinstance(error.filename, str | bytes) else reason


def _error(message: str, hint: str | None, as_json: bool) -> None:
    if as_json:
        _error_json(message, hint)
    else:
        click.echo(f"error: {message}" + (f"\n{hint}" if hint else ""), err=True)


def _error_json(message: str, hint: str | None) -> None:
    value = {"error": message} if hint is None else {"error": message, "hint": hint}
    click.echo(json.dumps(value, ensure_ascii=False), err=True)


def console() -> Console:
    """Return standard output. Rich uses no colours if it is not a terminal or NO_COLOR is set."""
    from rich.console import Console

    # A narrow terminal wraps long lines, which is better than names that are cut. Without a height, rich believes
    # that a terminal named `dumb` has 80 columns.
    return Console(highlight=False, markup=False, emoji=False, width=_WIDE, height=_HIGH)


def table(title: str, *columns: str, right: Sequence[str] = ()) -> Table:
    """Return an empty table in the style of all commands. The columns in `right` are right-aligned."""
    from rich.table import Table

    made = Table(title=title, title_justify="left", box=None, pad_edge=False, header_style="bold", title_style="bold")
    for column in columns:
        made.add_column(column, justify="right" if column in right else "left", no_wrap=True)
    return made


def print_json(value: object) -> None:
    """Print one JSON document."""
    click.echo(json.dumps(plain(value), ensure_ascii=False, indent=2))


def print_json_line(value: object, *, err: bool = False) -> None:
    """Print one JSON line of a stream."""
    click.echo(json.dumps(plain(value), ensure_ascii=False, separators=(",", ":")), err=err)


def plain(value: object) -> Any:
    """Return a value as JSON types, with dataclasses as objects and bytes as base64."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, enum.Enum):
        return plain(value.value)
    if isinstance(value, Mapping):
        return {str(key): plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(entry) for entry in value]
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return value


def show_time(milliseconds: int) -> str:
    """Return a time like `2026-11-15T10:00:12.345Z`, `-` for 0, or the number if it is out of range."""
    if milliseconds <= 0:
        return "-"
    try:
        moment = datetime.fromtimestamp(milliseconds // 1000, UTC)
    except (OverflowError, ValueError, OSError):
        return str(milliseconds)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{milliseconds % 1000:03d}Z"


def show_size(size: int) -> str:
    """Return a size like `1.5 GiB`."""
    amount: float = size
    for unit in ("B", "KiB", "MiB", "GiB"):
        if amount < 1024:
            return f"{size} B" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1024
    return f"{amount:.1f} TiB"


def parse_time(text: str) -> int:
    """Return the milliseconds of a number or of an ISO 8601 time, in UTC if it names no zone. Raise ValueError."""
    if text.isascii() and text.isdecimal():
        return parse_int(text)
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return round(moment.timestamp() * 1000)


def time_option(context: click.Context, option: click.Parameter, value: str | None) -> int | None:
    """Return the milliseconds of a time option. This is a click callback."""
    if value is None:
        return None
    try:
        return parse_time(value)
    except ValueError:
        text = f"{value!r} is neither milliseconds nor a time like 2026-11-15T10:00:00"
        raise click.BadParameter(text, context, option) from None


@contextlib.contextmanager
def progress_bar(label: str) -> Iterator[Callable[[int, int], None]]:
    """Show a progress bar on stderr if it is a terminal. Yield a function that takes bytes done and bytes in all."""
    if not sys.stderr.isatty():
        yield lambda done, total: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(binary_units=True),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(label, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
