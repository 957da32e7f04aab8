"""The search for secrets at the end of a run finds what a test leaks, wherever it is, and shows no secret itself."""

from __future__ import annotations

import base64
import gzip
from pathlib import Path

import pytest

from aerobee.testing import secrets
from aerobee.testing.secrets import VARIABLE, leak_in, leaks_under, made_secret, require_unseen, secret_for

pytest_plugins = ["pytester"]
OWN = "MarkedOfThisTest"
PLANTED = """
def test_file(tmp_path):
    (tmp_path / "server.log").write_text("one\\ntwo " + secret_for("root"))
def test_other_directory(tmp_path_factory):
    (tmp_path_factory.mktemp("a") / "other").write_text(made_secret())
def test_store_of_users_that_others_can_read(tmp_path):
    (tmp_path / "users.json").write_text(secret_for("root"))
    (tmp_path / "users.json").chmod(0o644)
def test_process(tmp_path):
    with open(tmp_path / "said", "wb") as said:
        code = "from aerobee.testing.secrets import secret_for; print(secret_for('root'))"
        subprocess.run([sys.executable, "-c", code], stdout=said, check=True)
def test_print():
    print("one\\ntwo", secret_for("root"))
def test_log():
    logging.getLogger("aerobee").warning("who is %s", secret_for("root"))
@pytest.fixture
def shown():
    yield
    sys.stderr.write(secret_for("root"))
def test_fixture(shown):
    pass
"""
PLACES = (
    "*popen-gw*/server.log:2 holds a secret", "*popen-gw*/other:1 *", "*/users.json:1 * but others can read it",
    "*/said:1 *", "*::test_print (Captured stdout call):2 *", "*::test_log (Captured log call):1 *",
    "*::test_fixture (Captured stderr teardown):1 *",
)  # fmt: skip
HEAD = """
import logging, subprocess, sys
import pytest
from aerobee.testing.secrets import made_secret, secret_for
"""


@pytest.fixture(autouse=True)
def own_marker(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is planted here is no leak of the run that this test belongs to."""
    monkeypatch.setenv(VARIABLE, OWN)


def run(pytester: pytest.Pytester, text: str, *words: str) -> pytest.RunResult:
    pytester.makepyfile(test_planted=HEAD + text, test_other=HEAD + "def test_it(): assert secret_for('root')")
    return pytester.runpytest_subprocess("-p", "aerobee.testing.leaks", "-p", "no:cacheprovider", *words)


def test_planted_leaks_of_workers_fail_the_run_and_are_named_once(pytester: pytest.Pytester) -> None:
    done = run(pytester, PLANTED, "-n", "2")
    done.assert_outcomes(passed=8)
    assert done.ret == pytest.ExitCode.TESTS_FAILED
    shown = done.stdout.str() + done.stderr.str()
    assert "secrets that leaked: 7" in shown and OWN not in shown
    for place in PLACES:
        done.stdout.fnmatch_lines([place])


def test_one_leak_fails_a_run_without_workers(pytester: pytest.Pytester) -> None:
    done = run(pytester, "def test_it(): print(secret_for('root'))")
    done.assert_outcomes(passed=2)
    assert done.ret == pytest.ExitCode.TESTS_FAILED and OWN not in done.stdout.str()


def test_a_run_without_a_leak_passes(pytester: pytest.Pytester) -> None:
    text = """def test_it(tmp_path):
    (tmp_path / "users.json").touch(0o600)
    (tmp_path / "users.json").write_text(secret_for("root"))
    (tmp_path / "store").write_bytes(b"x" * 100)"""
    assert run(pytester, text, "-n", "2").ret == pytest.ExitCode.OK


def test_places_and_forms(tmp_path: Path) -> None:
    secret = made_secret()
    assert secret.startswith(OWN) and len(secret) == 24 and secret != made_secret()
    (tmp_path / "packed.gz").write_bytes(gzip.compress(b"a\nb\n" + secret.encode()))
    (tmp_path / "wide").write_bytes(f"x{secret}".encode("utf-16-le"))
    for shift in range(3):
        (tmp_path / f"login{shift}").write_bytes(base64.b64encode(b"u" * shift + f":{secret}".encode()))
    (tmp_path / "link").symlink_to(tmp_path / "wide")
    (tmp_path / f"of-{secret}").touch()
    with open(tmp_path / "log", "wb") as log:
        log.truncate(1 << 33)  # a hole, which is not read
        log.seek((1 << 33) - 8_300_000)
        log.write(b"\n" * ((1 << 22) - 20) + secret.encode() + b"x" * 100)
    leaks = {Path(leak.place).name: leak for leak in leaks_under(tmp_path)}
    assert set(leaks) == {"packed.gz", "wide", "login0", "login1", "login2", "log", tmp_path.name}
    assert (leaks["packed.gz"].line, leaks["log"].line) == (3, (1 << 22) - 19) and not any(
        OWN in str(leak) for leak in leaks.values()
    )


def test_a_file_that_is_cut_while_it_is_searched_comes_to_an_end(tmp_path: Path) -> None:
    """A server that recovers may cut its log just then."""
    (tmp_path / "log").write_bytes(b"x" * (2 * secrets._PIECE))
    pieces = secrets._written(str(tmp_path / "log"), 100)
    assert len(next(pieces)[1]) == secrets._PIECE
    with open(tmp_path / "log", "rb+") as log:
        log.truncate(secrets._PIECE)
    assert next(pieces, None) is None


def test_what_is_shown_is_checked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    assert leak_in("page", "harmless") is None
    with pytest.raises(AssertionError, match="page /users:2 holds a secret") as told:
        require_unseen("page /users", b"one\n" + secret_for("root").encode())
    assert OWN not in str(told.value)
    monkeypatch.delenv(VARIABLE)
    require_unseen("page", OWN)
