"""A plug-in of pytest for our own tests: a secret that stands where it must not makes the run fail.

    pytest -p aerobee.testing.leaks

Searched are, once at the end, the directories of all tests and workers, and what each test printed and logged. What is
removed earlier or never written, such as pages and what commands say, is checked where it comes by: see `secrets.py`.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import pytest

from aerobee.testing.secrets import VARIABLE, leak_in, leaks_under, new_marker

# Workers and the processes that tests start inherit it. So do runs of pytest within tests.
os.environ.setdefault(VARIABLE, new_marker())
_SHOWN: Final = 20


def pytest_configure(config: pytest.Config) -> None:
    """Watch a run: the process that collects the reports of all tests does."""
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(_Watch(), "aerobee-leaks-watch")


class _Watch:
    """What was found in one run."""

    def __init__(self) -> None:
        # By place and line: a report has what the ones before it of the same test had.
        self._found: dict[str, None] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Look at what a test printed and logged."""
        for name, text in report.sections:
            leak = leak_in(f"{report.nodeid} ({name})", text)
            if leak is not None:
                self._found[str(leak)] = None

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Look at the files of all tests. Other plug-ins may have ended the run with a failure of their own."""
        factory: pytest.TempPathFactory = session.config._tmp_path_factory  # type: ignore[attr-defined]
        self._found.update((str(leak), None) for leak in leaks_under(Path(factory.getbasetemp())))
        if self._found and session.exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Name the places, without the secrets."""
        if self._found:
            terminalreporter.section(f"secrets that leaked: {len(self._found)}", red=True)
            for words in [*self._found][:_SHOWN]:
                terminalreporter.line(words, red=True)
