"""--tls and its like: on which commands, what they hand on, and how they meet the environment."""

from __future__ import annotations

import os
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from aerobee.cli.connecting import asked_tls, tls_environment
from aerobee.cli.main import main
from aerobee.cli.remote import options
from aerobee.client.core.tls import ClientTls

# Commands with -n that start a server, or only write a file.
_OTHERS = {"broker", "proxy", "pipeline new"}


@click.group(invoke_without_command=True)
@options()
def outer(namesrv: str, timeout_s: float, as_json: bool) -> None:
    """Has them, too, as `aerobee cluster` has."""


@outer.command()
@options()
def inner(namesrv: str, timeout_s: float, as_json: bool) -> None:
    click.echo(repr(asked_tls()))
    with tls_environment(NAMESRV_ADDR="there:1"):
        click.echo(" ".join(f"{key}={os.environ[key]}" for key in sorted(os.environ) if key.startswith("AEROBEE_TLS")))
        click.echo(os.environ["NAMESRV_ADDR"])


def said(*words: str, **environ: str) -> list[str]:
    done = CliRunner().invoke(outer, [*words], env=environ, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.output.splitlines()


def test_what_is_said_reaches_who_connects(tmp_path: Path) -> None:
    ca = tmp_path / "ca.pem"
    ca.touch()
    assert said("inner")[0] == "None"
    assert said("inner", "--tls") == [repr(ClientTls()), "AEROBEE_TLS=true", "there:1"]
    assert said("inner", "--tls-ca", str(ca), "--tls-any-host") == [
        repr(ClientTls(str(ca), any_host=True)),
        f"AEROBEE_TLS=true AEROBEE_TLS_ANY_HOST=true AEROBEE_TLS_CA={ca}",
        "there:1",
    ]
    assert said("--tls-insecure", "inner")[0] == repr(ClientTls(insecure=True)), "said to the group"
    assert said("inner", AEROBEE_TLS_CA=str(ca))[0] == repr(ClientTls(str(ca)))
    assert said("inner", "--no-tls", AEROBEE_TLS_CA=str(ca))[:2] == ["None", "AEROBEE_TLS=false"]
    assert not any(name.startswith("AEROBEE_TLS") for name in os.environ)


def test_files_are_named_whole_for_processes_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("ca.pem", "own.pem"):
        (tmp_path / name).touch()
    found = said("inner", "--tls-ca", "ca.pem", AEROBEE_TLS_CERT="own.pem")[0]
    assert found == repr(ClientTls(str(tmp_path / "ca.pem"), str(tmp_path / "own.pem")))


@pytest.mark.parametrize(
    ("words", "environ", "reason"),
    [
        (["--tls-ca", "nowhere.pem"], {}, "nowhere.pem"),
        (["--tls-key", __file__], {}, "tls-key needs tls-cert"),
        ([], {"AEROBEE_TLS": "maybe"}, "neither true nor false"),
    ],
)
def test_what_cannot_be_meant_is_a_usage_error(words: list[str], environ: dict[str, str], reason: str) -> None:
    done = CliRunner().invoke(outer, ["inner", *words], env=environ)
    assert done.exit_code == 2 and reason in done.output


def _leaves(command: click.Command, path: str) -> dict[str, click.Command]:
    own = {path: command}
    for name, child in getattr(command, "commands", {}).items():
        own |= _leaves(child, f"{path} {name}")
    return own


@pytest.mark.parametrize("name", main.list_commands(click.Context(main)))
def test_whatever_speaks_to_a_cluster_can_do_so_with_tls(name: str) -> None:
    command = main.get_command(click.Context(main), name)
    assert command is not None
    for path, leaf in _leaves(command, name).items():
        names = {word for one in leaf.params for word in one.opts}
        if "--namesrv" in names and path not in _OTHERS:
            assert {"--tls", "--tls-ca", "--tls-cert", "--tls-key", "--tls-insecure"} <= names, path
