"""A log file that rolls: when it is full it is renamed, and only so many old files are kept.

`broker.log` becomes `broker.log.1`, `broker.log.1` becomes `broker.log.2`, and so on. The defaults are those of
RocketMQ's rmq.broker.logback.xml.
"""

from __future__ import annotations

import contextlib
import logging
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from io import TextIOWrapper
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import cast

from aerobee.runtime.private import make_private_dirs, open_private

LOG_SIZE_MIB = 128
LOG_FILES = 10


@dataclass(frozen=True, slots=True)
class LogFile:
    """Where log lines go, the size at which the file rolls, and how many full files are kept."""

    path: str
    size_mib: int = LOG_SIZE_MIB
    kept: int = LOG_FILES

    def beside(self, name: str) -> LogFile:
        """Return the file of another process: `logs/up.log` becomes `logs/up-broker-a.log`."""
        path = Path(self.path)
        return LogFile(str(path.with_name(f"{path.stem}-{name}{path.suffix}")), self.size_mib, self.kept)


class _Handler(RotatingFileHandler):
    """A file whose lines go to standard error while it cannot be written."""

    terminator = ""
    is_private = False

    def _open(self) -> TextIOWrapper:
        opener = open_private if self.is_private else None
        return cast(TextIOWrapper, open(self.baseFilename, self.mode, encoding=self.encoding, opener=opener))

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 (the name is the base class's)
        sys.stderr.write(record.getMessage())


class _PrivateHandler(_Handler):
    """A file that only its owner may read."""

    is_private = True


@contextlib.contextmanager
def rolling_writer(file: LogFile, *, private: bool = False) -> Iterator[Callable[[str], None]]:
    """Open the file, with its directory, and yield what writes to it. Raise OSError if it cannot be opened.

    A `private` file, and its directory if it is made, can be read by their owner only.
    """
    path = Path(file.path).expanduser()
    if private:
        make_private_dirs(str(path.parent))
    else:
        path.parent.mkdir(parents=True, exist_ok=True)
    kind = _PrivateHandler if private else _Handler
    handler = kind(path, maxBytes=file.size_mib << 20, backupCount=file.kept, encoding="utf-8")
    try:
        yield lambda line: handler.emit(logging.makeLogRecord({"msg": line}))
    finally:
        with contextlib.suppress(OSError):
            handler.close()
