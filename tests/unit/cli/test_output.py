import json

import click
import pytest
from click.testing import CliRunner

from aerobee.cli.output import CommandGroup, parse_time, plain, show_size, show_time
from aerobee.errors import ConfigError, RequestTimeoutError, StoreError
from aerobee.store.offline.problems import CannotLookError, Findings, Problem


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (StoreError("no"), 1),
        (CannotLookError("gone"), 2),
        (ConfigError(["bad"]), 2),
        (RequestTimeoutError("late"), 3),
        (KeyboardInterrupt(), 130),
        (BrokenPipeError(), 141),
        (PermissionError(13, "Permission denied", "/srv/x"), 2),
        (OSError(28, "No space left on device"), 2),
        (None, 0),
    ],
)
def test_exit_codes(error: BaseException | None, code: int) -> None:
    @click.group(cls=CommandGroup)
    def group() -> None: ...

    @group.command()
    def run() -> None:
        if error is not None:
            raise error

    result = CliRunner().invoke(group, ["run"])
    assert result.exit_code == code
    if isinstance(error, StoreError):
        assert result.stderr == f"error: {error.message}\n"
    if isinstance(error, PermissionError):
        assert result.stderr == "error: /srv/x: Permission denied\n"


def test_errors_are_json_where_json_was_asked_for() -> None:
    @click.group(cls=CommandGroup)
    def group() -> None: ...

    @group.command()
    @click.option("--json", is_flag=True)
    def run(json: bool) -> None:
        raise StoreError("no", hint="do this")

    result = CliRunner().invoke(group, ["run", "--json"])
    assert json.loads(result.stderr) == {"error": "no", "hint": "do this"}
    result = CliRunner().invoke(group, ["run", "--json", "--what"])
    assert result.exit_code == 2
    assert "--what" in json.loads(result.stderr)["error"]


def test_a_command_s_number_is_the_exit_code() -> None:
    @click.group(cls=CommandGroup)
    def group() -> None: ...

    @group.command()
    def run() -> int:
        return 1

    assert CliRunner().invoke(group, ["run"]).exit_code == 1


def test_times_and_sizes() -> None:
    assert show_time(1700000000123) == "2023-11-14T22:13:20.123Z"
    assert show_time(0) == "-"
    assert show_time(1 << 62) == str(1 << 62)
    assert parse_time("1700000000123") == 1700000000123
    assert parse_time("2023-11-14T22:13:20.123Z") == 1700000000123
    assert parse_time("2023-11-14T22:13:20.123") == 1700000000123
    assert parse_time("2023-11-14T23:13:20.123+01:00") == 1700000000123
    with pytest.raises(ValueError, match="yesterday"):
        parse_time("yesterday")
    assert [show_size(n) for n in (0, 1023, 1536, 3 << 30, 5 << 40)] == [
        "0 B",
        "1023 B",
        "1.5 KiB",
        "3.0 GiB",
        "5.0 TiB",
    ]


def test_reports_become_plain_values() -> None:
    findings = Findings([Problem(part="log", path="a", offset=1, what="b")], 1)
    assert plain({"x": (findings, b"\xff")})["x"][1] == "/w=="
    assert plain(findings)["problems"][0]["path"] == "a"
