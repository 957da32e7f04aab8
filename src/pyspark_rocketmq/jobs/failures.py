"""Errors of Spark in one line, without JVM stack, Python traceback and error classes.

The functions take and return text, so that every form of Spark's errors can be tested without Spark.
"""

from __future__ import annotations

import re
from typing import Final

from aerobee.errors import AerobeeError
from aerobee.model.numbers import int_or

_CONDITION: Final = re.compile(r"^\[([A-Z][A-Z0-9_.]*)\]\s*")
_STATE: Final = re.compile(r"\s*SQLSTATE: [0-9A-Z]{5}")
_RAISED: Final = re.compile(r"^(?:[A-Za-z_][\w.]*\.)?([A-Z]\w*): (.*)$")
_JAVA: Final = re.compile(r"^(?:[a-z][\w$]*\.)+[A-Z][\w$]*(?:: |$)")
_PLACE: Final = re.compile(r"\.?;? *\(?line (\d+),? pos (\d+)\)?;?$")
# The last line of a JVM or of spark-submit, about a thread that failed or wrong arguments.
_DEATH: Final = re.compile(r'^(?:Exception in thread "[^"]*" |Error: |Caused by: )(.+)$', re.MULTILINE)
_TRACEBACK: Final = "Traceback (most recent call last):"
# PySpark 4.3: if a stream's reader cannot be created, its runner fails a second time and hides the first error.
_RUNNER_BUG: Final = "UnboundLocalError: cannot access local variable 'reader'"
# Spark's error where both commit and abort of a write failed. It has the reason as its cause, and not in its message.
_ABORTED_WRITE: Final = "[WRITING_JOB_ABORTED]"
_AWAY: Final = "pyspark_rocketmq.source.missing.MissingBrokerError: "
_FRAME: Final = re.compile(r'^ *File "([^"]+)", line (\d+)', re.MULTILINE)
# Frames of Spark, of libraries, of Python and of this package.
_NOT_USERS: Final = ("/pyspark/", "/pyspark.zip/", "/site-packages/", "/lib/python", "/aerobee/", "/pyspark_rocketmq")
# An error that this package raised says itself what to do.
_OURS: Final = re.compile(r"^(?:aerobee|pyspark_rocketmq)[\w.]*: ", re.MULTILINE)
_QUERY: Final = re.compile(r"^Query .*?terminated with exception: ", re.DOTALL)
_ABORTED: Final = re.compile(r"^Job aborted due to stage failure: Task .*?\): ", re.DOTALL)
# The messages of these errors are complete without the name of the class.
_PLAIN_ERRORS: Final = frozenset({"ValueError", "RuntimeError", "Exception", "PythonException", "PySparkRuntimeError"})


class JobFailedError(AerobeeError):
    """A Spark job failed. The message is one line."""

    exit_code = 1


class BrokerAwayError(JobFailedError):
    """A broker group that has a part of the result is away."""

    exit_code = 3


class BadQueryError(AerobeeError):
    """Spark cannot parse or resolve a query."""

    exit_code = 2


def one_line(text: str) -> str:
    """Return the sentence that a user needs from `text`, an error of Spark."""
    traceback = text.rfind(_TRACEBACK)
    if _RUNNER_BUG in text[traceback:]:
        traceback = max(text.rfind(_TRACEBACK, 0, traceback), 0)
    if traceback >= 0:
        trace = text[traceback + len(_TRACEBACK) :]
        found = _raised(trace)
        if found:
            return found if _OURS.search(trace) else found + _place_of(trace)
    line = _ABORTED.sub("", _QUERY.sub("", _without_condition(text.strip())))
    line = next((part.strip() for part in line.splitlines() if part.strip()), "")
    line = _JAVA.sub("", _without_condition(line))
    line = _STATE.sub("", _QUERY.sub("", _without_condition(line))).strip().rstrip(";")
    line = _PLACE.sub(lambda found: f" (line {found[1]}, column {int_or(found[2], 0) + 1})", line)
    return line.strip() or "Spark failed without a message"


def death_of(log: str) -> str:
    """Return why a JVM ended before it was ready, from its log, or an empty text."""
    before_launcher = log.split("\nError: Could not create the Java Virtual Machine")[0]
    if before_launcher != log:
        return before_launcher.strip().splitlines()[-1]
    found = _DEATH.findall(log)
    return one_line(found[-1]) if found else ""


def condition_of(text: str) -> str:
    """Return Spark's error class (`TABLE_OR_VIEW_NOT_FOUND`), or an empty text."""
    found = _CONDITION.match(text.strip())
    return found[1] if found else ""


def _without_condition(text: str) -> str:
    return _CONDITION.sub("", text)


def _raised(trace: str) -> str:
    """Return the error at the end of a Python traceback: its first line that is neither indented nor empty."""
    for line in trace.splitlines():
        if not line.strip() or line[0].isspace():
            continue
        found = _RAISED.match(line)
        if found is None:
            return line.strip()
        name, message = found.groups()
        message = _STATE.sub("", _without_condition(message)).strip()
        is_known = name in _PLAIN_ERRORS or line.startswith(("aerobee.", "pyspark_rocketmq"))
        return message if is_known and message else f"{name}: {message}"
    return ""


def _place_of(trace: str) -> str:
    """Return the file and line of the user's code in a Python traceback, or an empty text."""
    own = [
        (path, line)
        for path, line in _FRAME.findall(trace)
        if not any(part in path for part in _NOT_USERS) and not path.startswith("<")
    ]
    return f" ({own[-1][0].rpartition('/')[2]}, line {own[-1][1]})" if own else ""


def failure(error: BaseException) -> AerobeeError:
    """Return the error of a Spark call as BadQueryError, if the query is wrong, or as JobFailedError."""
    if isinstance(error, AerobeeError):
        return error
    text = _text_of(error)
    line = one_line(text)
    kind = type(error).__name__
    if kind in ("ParseException", "AnalysisException") and _TRACEBACK not in text:
        return BadQueryError(line, hint=_hint(text))
    return (BrokerAwayError if _AWAY in text else JobFailedError)(line)


def _text_of(error: BaseException) -> str:
    """Return the message without the JVM's stack. Of a write that was aborted, it is the message of the reason."""
    text, cause = _own_text(error), getattr(error, "_cause", None)
    return _text_of(cause) if cause is not None and _ABORTED_WRITE in text else text


def _own_text(error: BaseException) -> str:
    java = getattr(error, "java_exception", None)
    if java is not None:  # Py4JJavaError prints a page
        return str(java.getMessage() or java.toString())
    described = getattr(error, "_desc", None) or getattr(error, "desc", None)
    return described if isinstance(described, str) and described else str(error)


def _hint(text: str) -> str | None:
    if condition_of(text) == "INVALID_IDENTIFIER":
        return "A name with other characters than letters, digits and _ goes in back-ticks: from `my-topic`"
    if "%" in text and condition_of(text) == "PARSE_SYNTAX_ERROR":
        return "A name with % in it goes in back-ticks: from `%RETRY%group`"
    return None
