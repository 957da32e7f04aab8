import json
import logging
import random
from collections.abc import Iterator

import pytest

from aerobee.errors import ConfigError
from aerobee.runtime.seams import Clock
from aerobee.telemetry.logs import LogLevel, Logs, configured_logs
from aerobee.telemetry.stdlog import RateLimitedLog, get_log, lead_to


class SteppedClock(Clock):
    def __init__(self) -> None:
        self.elapsed_s = 0.0

    def now_ms(self) -> int:
        return 1_794_736_812_345 + int(self.elapsed_s * 1000)

    def monotonic(self) -> float:
        return self.elapsed_s


def test_a_line_as_the_interfaces_promise() -> None:
    lines: list[str] = []
    logs = Logs(SteppedClock(), lines.append)
    logs.emit(LogLevel.INFO, "broker.store", "segment rolled", {"offset": 1073741824})
    assert lines == ["2026-11-15T10:00:12.345Z INFO broker.store segment rolled offset=1073741824\n"]


def test_values_are_told_apart_and_nothing_forges_a_line() -> None:
    lines: list[str] = []
    logs = Logs(SteppedClock(), lines.append)
    fields = {"topic": "a b", "text": 'x"y', "empty": "", "none": None, "yes": True, "ratio": 0.5, "raw": b"\xff"}
    logs.emit(LogLevel.WARN, "net", "bad\nframe", fields)
    logs.emit(LogLevel.ERROR, "net", "lost", {"error": OSError(5, "Input/output error"), "key": "a\n2026 INFO x"})
    assert len(lines) == 2
    assert all(line.count("\n") == 1 for line in lines)
    assert lines[0].endswith(
        'WARN net "bad\\nframe" topic="a b" text="x\\"y" empty="" none=- yes=true ratio=0.5 raw=\\xff\n'
    )
    assert 'error="OSError: [Errno 5] Input/output error" key="a\\n2026 INFO x"' in lines[1]


def test_json_lines() -> None:
    lines: list[str] = []
    logs = configured_logs({"AEROBEE_LOG_FORMAT": "JSON"}, SteppedClock(), lines.append)
    logs.emit(LogLevel.INFO, "x", "put", {"size": 5, "level": "inner", "error": ValueError("é")})
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
    for level in (LogLevel.DEBUG, LogLevel.INFO, LogLevel.WARN, LogLevel.ERROR):
        logs.emit(level, "x", level.name, {})
    assert [line.split()[1] for line in lines] == ["WARN", "ERROR"]


def test_both_bad_variables_are_named_at_once() -> None:
    with pytest.raises(ConfigError) as caught:
        configured_logs({"AEROBEE_LOG_LEVEL": "loud", "AEROBEE_LOG_FORMAT": "xml"}, SteppedClock(), print)
    assert len(caught.value.problems) == 2


@pytest.fixture
def lines() -> Iterator[list[str]]:
    """The lines of the process while the test runs."""
    root = logging.getLogger("aerobee")
    before = (list(root.handlers), root.level, root.propagate)
    found: list[str] = []
    lead_to(Logs(SteppedClock(), found.append))
    yield found
    root.handlers, root.level, root.propagate = before


def test_limited_warnings_tell_how_many_were_held_back(lines: list[str]) -> None:
    clock = SteppedClock()
    log = RateLimitedLog(get_log("x"), clock)
    for second in range(25):
        clock.elapsed_s = float(second)
        log.warning("full", "disk full", used=91)
    assert [line.partition("full ")[2] for line in lines] == ["used=91\n", *["used=91 suppressed=9\n"] * 2]
    log.warning("other", "else")
    assert len(lines) == 4


def test_keys_from_outside_do_not_pile_up() -> None:
    log = RateLimitedLog(get_log("x"), SteppedClock())
    for number in range(5000):
        log.warning(f"peer {number}", "noise")
    assert len(log._due) <= 1000


def test_json_log_lines() -> None:
    """Ten thousand lines with names that try to end the line or the text are each one JSON object."""
    lines: list[str] = []
    logs = configured_logs({"AEROBEE_LOG_FORMAT": "json"}, SteppedClock(), lines.append)
    lead_to(logs)
    log = get_log("net.hostile")
    entropy = random.Random(37)
    alphabet = [
        '"',
        "\\",
        "\n",
        "\r",
        "\0",
        "\u2028",
        "\x1b",
        "{",
        "}",
        "\ud800",
        "\udfff",
        "é",
        "中",
        "a",
        "'",
        "\x7f",
    ]
    told = []
    for number in range(10_000):
        name = "".join(entropy.choice(alphabet) for _ in range(entropy.randrange(1, 40)))
        values: list[object] = [
            name,
            name.encode("utf-8", "surrogatepass"),
            ValueError(name),
            None,
            float("nan"),
            -1e400,
            10**4000,
        ]
        told.append(name)
        log.warning(name, topic=name, value=values[number % len(values)], level=name, field_level=1, time=number)
    assert len(lines) == 10_000
    for text, line in zip(told, lines, strict=True):
        assert line.endswith("\n")
        assert line.count("\n") == 1
        line.encode()
        found = json.loads(line, parse_constant=lambda text: pytest.fail(f"{text} is no JSON"))
        # Two halves of a pair beside each other are one character in JSON.
        name = text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")
        assert (found["event"], found["topic"], found["level"], found["field_level"]) == (name, name, "WARN", name)
        assert found["field_field_level"] == 1
