"""Errors as Spark words them, and the one line a user gets."""

import pytest

from pyspark_rocketmq.jobs.failures import BadQueryError, JobFailedError, condition_of, death_of, failure, one_line

UNRESOLVED = (
    "[UNRESOLVED_COLUMN.WITH_SUGGESTION] A column with name `x` cannot be resolved. Did you mean [`col1`]. "
    "SQLSTATE: 42703; line 1 pos 7;\n'Project ['x]\n+- LocalRelation [col1#1]\n"
)
WORKER = (
    "Job aborted due to stage failure: Task 0 in stage 1.0 failed 1 times, most recent failure: Lost task 0.0 in stage "
    "1.0 (TID 1) (127.0.0.1 executor driver): org.apache.spark.api.python.PythonException: Traceback (most recent call "
    'last):\n  File "/x/worker.py", line 1, in main\n    process()\n'
    "aerobee.errors.codes.TopicNotExistError: no topic orders. `aerobee topic list` shows what there is.\n\n"
    "\tat org.apache.spark.api.python.BasePythonRunner.read(PythonRunner.scala:581)\n"
)
STREAM = (
    "[STREAM_FAILED] Query [id = 1-2, runId = 3-4] terminated with exception: [FAILED_READ_FILE.NO_HINT] Encountered "
    "error while reading file a.parquet. SQLSTATE: KD001 SQLSTATE: XXKST"
)
NO_READER = (
    "Failed to plan Python data source initialize source: Traceback (most recent call last):\n  File 'a'\n"
    "pyspark_rocketmq.options.OptionError: no option topc: did you mean topic?\n\n"
    "During handling of the above exception, another exception occurred:\n\nTraceback (most recent call last):\n"
    "  File 'b'\nUnboundLocalError: cannot access local variable 'reader' where it is not associated with a value\n"
)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (UNRESOLVED, "A column with name `x` cannot be resolved. Did you mean [`col1`] (line 1, column 8)"),
        (WORKER, "no topic orders. `aerobee topic list` shows what there is."),
        (STREAM, "Encountered error while reading file a.parquet."),
        ("java.lang.IllegalStateException: it is closed\n\tat x.Y.z(Y.scala:1)", "it is closed"),
        ("Traceback (most recent call last):\n  File 'a'\nKeyError: 'amount'\n", "KeyError: 'amount'"),
        ("Traceback (most recent call last):\n  File 'a'\nValueError: bad\n", "bad"),
        (NO_READER, "no option topc: did you mean topic?"),
        ("", "Spark failed without a message"),
    ],
)
def test_one_line_is_the_sentence_that_matters(text: str, line: str) -> None:
    assert one_line(text) == line


class AnalysisException(Exception):  # noqa: N818 (Spark's name)
    pass


class CapturedError(Exception):
    """What PySpark makes of an exception of the JVM."""

    def __init__(self, text: str, cause: Exception | None) -> None:
        super().__init__(text)
        self._cause = cause


def test_a_write_that_was_aborted_says_why() -> None:
    slow = CapturedError("org.apache.spark.SparkException: Python worker failed to connect back.", None)
    aborted = CapturedError("[WRITING_JOB_ABORTED] Writing job aborted SQLSTATE: 40000", slow)
    text = "[STREAM_FAILED] Query [id = 1] terminated with exception: [WRITING_JOB_ABORTED] Writing job aborted"
    assert failure(CapturedError(text, aborted)).message == "Python worker failed to connect back."
    assert failure(CapturedError(text, None)).message == "Writing job aborted"


def test_a_wrong_query_is_told_from_a_failed_job() -> None:
    query = failure(AnalysisException(UNRESOLVED))
    assert isinstance(query, BadQueryError) and query.exit_code == 2
    assert isinstance(failure(AnalysisException(WORKER)), JobFailedError)
    assert failure(RuntimeError("boom")).exit_code == 1  # type: ignore[attr-defined]
    hint = failure(AnalysisException("[INVALID_IDENTIFIER] The unquoted identifier my-topic is invalid")).hint
    assert hint is not None and "`my-topic`" in hint
    assert condition_of(UNRESOLVED) == "UNRESOLVED_COLUMN.WITH_SUGGESTION"


@pytest.mark.parametrize(
    ("log", "line"),
    [
        (
            'Exception in thread "main" org.apache.spark.SparkException: Master must start with spark or local\n'
            "\tat org.apache.spark.deploy.SparkSubmit.error(SparkSubmit.scala:1)\n",
            "Master must start with spark or local",
        ),
        (
            "Invalid maximum heap size: -Xmxfoo\nError: Could not create the Java Virtual Machine.\n"
            "Error: A fatal exception has occurred. Program will exit.\n",
            "Invalid maximum heap size: -Xmxfoo",
        ),
        ("2026-11-15T16:00:00.000 WARN Utils: a host name\n", ""),
    ],
)
def test_a_jvm_that_did_not_start_says_why(log: str, line: str) -> None:
    assert death_of(log) == line


def test_the_place_in_the_users_code_is_told() -> None:
    text = """[STREAM_FAILED] Query [id = 1] terminated with exception: An exception was raised by the Python Proxy.
Traceback (most recent call last):
  File "/usr/lib/python3.11/site-packages/pyspark/sql/utils.py", line 100, in call
    raise e
  File "/home/me/project/stream.py", line 17, in publish
    total = rows / 0
  File "/usr/lib/python3.11/fractions.py", line 3, in helper
    x()
ZeroDivisionError: division by zero
"""
    assert one_line(text) == "ZeroDivisionError: division by zero (stream.py, line 17)"
    own = """Traceback (most recent call last):
  File "/usr/lib/python3.11/site-packages/pyspark_rocketmq/source/batch.py", line 10, in plan
    raise e
pyspark_rocketmq.source.cluster.NoSuchTopicError: topic 'x' does not exist
"""
    assert one_line(own) == "topic 'x' does not exist"
