import json

import pytest

from aerobee.errors import ConfigError
from aerobee.runtime.seams import Clock
from aerobee.telemetry.logs import Level, Logs, configured_logs


class SteppedClock(Clock):
    def __init__(self) -> None:
        self.elapsed_s = 0.0

    def now_ms(self) -> int:
        return 1_794_736_812_345 + int(self.elapsed_s * 1000)

    def monotonic(self) -> float:
        return self.elapsed_s


def test_a_line_as_the_interfaces_promise() -> None:
    lines: list[str] = []
    logger = Logs(SteppedClock(), lines.append).logger("broker").child("store")
    logger.info("segment rolled", offset=1073741824)
    assert lines == ["2026-11-15T10:00:12.345Z INFO broker.store segment rolled offset=1073741824\n"]


def test_values_are_told_apart_and_nothing_forges_a_line() -> None:
    lines: list[str] = []
    logger = Logs(SteppedClock(), lines.append).logger("net").bind(peer="1.2.3.4:5")
    logger.warn("bad\nframe", topic="a b", text='x"y', empty="", none=None, yes=True, ratio=0.5, raw=b"\xff")
    logger.error("lost", error=OSError(5, "Input/output error"), key="a\n2026 INFO x")
    assert len(lines) == 2
    assert all(line.count("\n") == 1 for line in lines)
    assert lines[0].endswith(
        'WARN net "bad\\nframe" peer=1.2.3.4:5 topic="a b" text="x\\"y" empty="" none=- yes=true ratio=0.5 raw=\\xff\n'
    )
    assert 'error="OSError: [Errno 5] Input/output error" key="a\\n2026 INFO x"' in lines[1]


def test_json_lines() -> None:
    lines: list[str] = []
    logs = configured_logs({"AEROBEE_LOG_FORMAT": "JSON"}, SteppedClock(), lines.append)
    logs.logger("x").info("put", size=5, level="inner", error=ValueError("é"))
    assert json.loads(lines[0]) == {
        "time": "2026-11-15T10:00:12.345Z",
        "level": "INFO",
        "logger": "x",
        "event": "put",
        "size": 5,
        "field_level": "inner",
        "error": "ValueError: é",
    }


def test_levels() -> None:
    lines: list[str] = []
    logs = configured_logs({"AEROBEE_LOG_LEVEL": "warning"}, SteppedClock(), lines.append)
    logger = logs.logger("x")
    logger.debug("a")
    logger.info("b")
    logger.warn("c")
    assert len(lines) == 1
    assert not logger.is_debug()
    logs.level = Level.DEBUG
    logger.debug("d")
    assert len(lines) == 2
    assert logger.is_debug()


def test_both_bad_variables_are_named_at_once() -> None:
    with pytest.raises(ConfigError) as caught:
        configured_logs({"AEROBEE_LOG_LEVEL": "loud", "AEROBEE_LOG_FORMAT": "xml"}, SteppedClock(), print)
    assert len(caught.value.problems) == 2


def test_limited_warnings_tell_how_many_were_held_back() -> None:
    lines: list[str] = []
    clock = SteppedClock()
    logger = Logs(clock, lines.append).logger("x")
    said = []
    for second in range(25):
        clock.elapsed_s = float(second)
        said.append(logger.warn_limited("full", 10, "disk full", used=91))
    assert [second for second, one in enumerate(said) if one] == [0, 10, 20]
    assert "suppressed" not in lines[0]
    assert lines[1].endswith("used=91 suppressed=9\n")
    assert logger.warn_limited("other", 10, "else")


def test_keys_from_outside_do_not_pile_up() -> None:
    logger = Logs(SteppedClock(), lambda line: None).logger("x")
    for number in range(5000):
        logger.warn_limited(f"peer {number}", 1000, "noise")
    assert len(logger._limits) <= 1000
