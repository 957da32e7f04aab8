"""Ctrl-C while Spark starts: the JVM is told to go, and nobody leaves before it has."""

from __future__ import annotations

import signal
import threading

import pytest

from aerobee.cli.spark import _off_main_thread


def test_what_was_started_is_given() -> None:
    assert _off_main_thread(lambda: "session", lambda: None) == "session"


def test_ctrl_c_abandons_the_start_and_waits_for_its_end() -> None:
    told, ended = threading.Event(), []
    main = threading.main_thread().ident
    assert main is not None

    def start() -> None:
        signal.pthread_kill(main, signal.SIGINT)
        assert told.wait(30)
        ended.append("gone")
        raise OSError("the JVM is gone")

    with pytest.raises(KeyboardInterrupt):
        _off_main_thread(start, told.set)
    assert ended == ["gone"]
