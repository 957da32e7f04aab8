"""The small files: checkpoint, `config/*.json` with their backups, and Aerobee's own marks."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final

from aerobee.model.dialect import DialectError, loads
from aerobee.model.numbers import parse_int
from aerobee.runtime.rejected import REJECTED
from aerobee.store.checkpoint import CONFIRM_OFFSET_POS, LOGICS_OFFSET_POS, VALUES_SIZE
from aerobee.store.offline.directory import StoreDirectory
from aerobee.store.offline.problems import Findings, Problem
from aerobee.store.statefile import unseal

_BYTE: Final = re.compile(r"\bbyte (\d+)\b")
_AT: Final = re.compile(r"\bat (\d+)\b")
_STATE_SIZE_MAX: Final = 256 * 1024 * 1024
# Aerobee's own binary files in `config/`.
_MARK_SPACING: Final = 4096


@dataclass(frozen=True, slots=True)
class StateFileView:
    """One file of `config/`."""

    name: str
    size: int
    # None for a file that is sound, or of a kind that cannot be checked.
    problem: str | None
    problem_at: int = 0


def find_state_files(store: StoreDirectory) -> list[StateFileView]:
    """Return every file below `config/`, JSON ones parsed."""
    found: list[StateFileView] = []
    for name in store.disk.listdir(store.path("config")):
        path = store.path("config", name)
        if store.disk.is_dir(path):
            continue
        content = store.read(path, _STATE_SIZE_MAX)
        problem, at = None, 0
        if name.endswith((".json", ".json.bak")):
            problem, at = _problem_of(content)
        found.append(StateFileView(name, len(content), problem, at))
    return found


def _problem_of(content: bytes) -> tuple[str | None, int]:
    if not content.strip(b"\0 \t\r\n"):
        return "empty", 0
    try:
        content.decode("utf-8")
        loads(content, size_max=_STATE_SIZE_MAX)
        unseal(content)
    except UnicodeDecodeError as error:
        return "not UTF-8", error.start
    except DialectError as error:
        place = _AT.search(error.message)
        text = content.decode("utf-8", "replace")
        # The scanner counts characters.
        at = len(text[: parse_int(place[1])].encode()) if place is not None else 0
        return error.message, min(at, len(content))
    except ValueError as error:
        return str(error), 0
    return None, 0


def topics_of(store: StoreDirectory) -> set[str] | None:
    """Return the topics that exist by `config/topics.json`; None where that cannot be read."""
    for name in ("topics.json", "topics.json.bak"):
        try:
            value: Any = loads(store.read(store.path("config", name)), size_max=_STATE_SIZE_MAX)
            return {str(topic) for topic in value["topicConfigTable"]}
        except (DialectError, KeyError, TypeError):
            continue
    return None


def check_state(store: StoreDirectory, findings: Findings) -> int:
    """Check the files of `config/`. Return how many there are."""
    files = find_state_files(store)
    for file in files:
        if file.name.endswith(REJECTED):
            findings.notes.append(f"config/{file.name}: entries that a start could not use")
        if file.problem is not None:
            _add(findings, "state", f"config/{file.name}", file.problem_at, file.problem)
    if store.is_settled:
        marks = store.read(store.path("config", "durableMark"))
        for turn, whole in enumerate(store.mark_slots):
            if not whole and marks[turn * _MARK_SPACING : (turn + 1) * _MARK_SPACING].strip(b"\0"):
                what = f"slot {turn} of the durable mark is not whole"
                _add(findings, "state", "config/durableMark", turn * _MARK_SPACING, what)
        for turn, whole in enumerate(store.table_files):
            if not whole and store.read(store.path("config", f"queueTable.{turn}")):
                what = "the queue table does not match its checksum"
                _add(findings, "state", f"config/queueTable.{turn}", 0, what, repairable=True)
    if store.disk.exists(store.path("truncate")):
        findings.notes.append("a truncation was cut short (file `truncate`): the next start does it again")
    return len(files)


def check_checkpoint(store: StoreDirectory, log_start: int, log_end: int, findings: Findings) -> None:
    """Compare the checkpoint with the log."""
    if store.checkpoint is None:
        if log_end > log_start:
            findings.notes.append("there is no checkpoint: the next start reads more of the log")
        return
    for sentence in store.checkpoint_problems:
        place = _BYTE.search(sentence)
        at = parse_int(place[1]) if place is not None else len(store.checkpoint_bytes)
        _add(findings, "checkpoint", "checkpoint", at, sentence)
    rest = store.checkpoint_bytes[VALUES_SIZE:]
    if rest.strip(b"\0"):
        at = VALUES_SIZE + len(rest) - len(rest.lstrip(b"\0"))
        _add(findings, "checkpoint", "checkpoint", at, "bytes behind the last value are not zero")
    if store.is_live:
        return
    for at, name, value in (
        (CONFIRM_OFFSET_POS, "confirmPhyOffset", store.checkpoint.confirm_phy_offset),
        (LOGICS_OFFSET_POS, "logicsPhysicalOffset", store.checkpoint.logics_physical_offset),
    ):
        if value > log_end:
            what = f"{name} {value} lies beyond the log's end {log_end}"
            if store.has_abort:
                findings.notes.append(f"checkpoint: {what}: the crash took what was not synced")
            else:
                _add(findings, "checkpoint", "checkpoint", at, what)
    if any(store.mark_slots) and not store.is_ours:
        findings.notes.append(
            "the checkpoint is not the one Aerobee wrote last: another broker had the store since, or it is damaged"
        )


def _add(findings: Findings, part: str, path: str, at: int, what: str, *, repairable: bool = False) -> None:
    findings.add(Problem(part=part, path=path, offset=at, what=what, repairable=repairable))
