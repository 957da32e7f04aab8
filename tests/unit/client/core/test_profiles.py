"""Profiles: what they stand for, what is stronger, and which files are refused."""

from __future__ import annotations

from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from aerobee.cli.connecting import asked_credentials, asked_tls
from aerobee.cli.remote import options
from aerobee.client.core import Credentials, client_config, with_profile
from aerobee.errors import AerobeeError, ConfigError, InvalidArgumentError
from aerobee.testing.secrets import secret_for
from pyspark_rocketmq.options import COMMON, endpoint_of, read_options

FILE = f"""
[admin]
namesrv = "prod:9876"
access_key = "root"
secret_key = "{secret_for("a")}"
tls_ca = "ca.pem"
tls_any_host = true

[reader]
access_key = "reader"
secret_key = "{secret_for("reader")}"
security_token = "temporary"
tls = false
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "credentials.toml"
    path.touch(0o600)
    path.write_text(FILE)
    return path


@pytest.fixture
def environ(file: Path) -> dict[str, str]:
    return {"AEROBEE_CREDENTIALS": str(file)}


def test_a_named_profile_overrides_the_environment(environ: dict[str, str], tmp_path: Path) -> None:
    around = {**environ, "AEROBEE_ACCESS_KEY": "other", "AEROBEE_SECRET_KEY": "x", "AEROBEE_SECURITY_TOKEN": "old",
              "AEROBEE_PROFILE": "reader", "NAMESRV_ADDR": "test:9876", "HOME": "/h"}  # fmt: skip
    assert with_profile("admin", around) == {
        **environ, "HOME": "/h", "NAMESRV_ADDR": "prod:9876", "AEROBEE_ACCESS_KEY": "root",
        "AEROBEE_SECRET_KEY": secret_for("a"), "AEROBEE_TLS_CA": str(tmp_path / "ca.pem"),
        "AEROBEE_TLS_ANY_HOST": "true",
    }  # fmt: skip


def test_a_profile_of_the_environment_fills_what_is_missing(environ: dict[str, str]) -> None:
    around = {**environ, "AEROBEE_PROFILE": "reader", "NAMESRV_ADDR": "test:9876"}
    assert with_profile(None, around)["AEROBEE_ACCESS_KEY"] == "reader"
    assert with_profile(None, {**around, "AEROBEE_TLS": "true"})["AEROBEE_TLS"] == "true"
    own = with_profile(None, {**around, "AEROBEE_ACCESS_KEY": "me", "AEROBEE_SECRET_KEY": secret_for("me")})
    assert "AEROBEE_SECURITY_TOKEN" not in own, "it belongs to the other key"
    assert with_profile(None, environ) is environ


def test_clients_and_spark_know_profiles(environ: dict[str, str], file: Path, tmp_path: Path) -> None:
    config = client_config("a:1", environ, profile="reader")
    assert config.credentials == Credentials("reader", secret_for("reader"), "temporary") and config.tls is None
    assert secret_for("reader") not in repr(config)
    own = client_config("a:1", environ, profile="reader", access_key="me", secret_key=secret_for("me"))
    assert own.credentials == Credentials("me", secret_for("me"))
    endpoint = endpoint_of(read_options({"profile": "admin"}, COMMON), environ)
    assert endpoint.name_servers == ("prod:9876",) and endpoint.credentials == Credentials("root", secret_for("a"))
    assert endpoint.tls is not None and endpoint.tls.ca == str(tmp_path / "ca.pem") and endpoint.tls.any_host
    assert secret_for("a") not in repr(endpoint)
    with pytest.raises(AerobeeError, match="profile is a str"):
        client_config("a:1", environ, profile=7)  # type: ignore[arg-type]


@click.command()
@options()
def shown(namesrv: str, timeout_s: float, as_json: bool) -> None:
    click.echo(f"{namesrv} {asked_credentials()} {asked_tls()}")


def test_commands_know_profiles(environ: dict[str, str], tmp_path: Path) -> None:
    def said(*words: str, **more: str) -> str:
        done = CliRunner().invoke(shown, words, env={**environ, "NAMESRV_ADDR": None, **more})
        return f"{done.exit_code} {done.output.strip()}"

    assert said("--profile", "admin").startswith("0 prod:9876 Credentials(access_key='root')")
    assert said(AEROBEE_PROFILE="admin").startswith("0 prod:9876 Credentials(access_key='root')")
    assert said("--profile", "admin", "-n", "b:1", AEROBEE_PROFILE="nobody").startswith("0 b:1 ")
    assert said("--profile", "reader") == "0 127.0.0.1:9876 Credentials(access_key='reader') None"
    assert "has no profile [nobody]; it has admin, reader" in said("--profile", "nobody")
    assert said("--profile", "nobody")[0] == "2"
    assert said() == "0 127.0.0.1:9876 None None", "nothing stays behind"
    half = said(AEROBEE_ACCESS_KEY="me")
    assert half[0] == "2" and "AEROBEE_SECRET_KEY is not" in half


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("[a]\nacess_key = 'x'", "did you mean access_key?"),
        ("[a]\naccess_key = 'x'", "go together"),
        ("[a]\naccess_key = 'x'\nsecret_key = 7", "must be a text"),
        ("[a]\ntls = 'yes'", "must be true or false"),
        ("[a", "is no TOML file"),
        ("a = 1", r"has no profile \[a\]"),
        ("\udcff", "it is not UTF-8"),
    ],
)
def test_what_a_profile_cannot_mean_is_refused(environ: dict[str, str], file: Path, text: str, reason: str) -> None:
    file.write_text(text, errors="surrogateescape")
    with pytest.raises(ConfigError, match=reason):
        with_profile("a", environ)


def test_a_file_that_others_can_read_is_refused(environ: dict[str, str], file: Path) -> None:
    for mode in (0o640, 0o604, 0o666):
        file.chmod(mode)
        with pytest.raises(ConfigError, match="chmod 600"):
            with_profile("admin", environ)
    file.unlink()
    with pytest.raises(ConfigError, match="there is no file"):
        with_profile("admin", environ)


def test_no_error_shows_a_secret(environ: dict[str, str], file: Path) -> None:
    file.write_text(f'[a]\naccess_key = "x"\nsecret_key = "{secret_for("x")}\n')
    with pytest.raises(ConfigError) as caught:
        with_profile("a", environ)
    assert secret_for("x") not in str(caught.value)
    with pytest.raises(InvalidArgumentError) as half:
        client_config("a:1", {"AEROBEE_SECRET_KEY": secret_for("x")})
    assert secret_for("x") not in str(half.value)
