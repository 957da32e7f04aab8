"""The settings of TLS: what must go together, and files that cannot be used."""

from __future__ import annotations

from pathlib import Path

import pytest

from aerobee.config.loader import load, override_source
from aerobee.errors import ConfigError
from aerobee.net.config import TlsConfig, TlsMode
from aerobee.testing.certificates import make_certificate, unavailable
from aerobee.testing.secrets import secret_for


def tls_of(**settings: str) -> TlsConfig:
    words = [f"tls.{key.replace('__', '.')}={value}" for key, value in settings.items()]
    return load((TlsConfig,), override_source(words)).get(TlsConfig)


def test_nothing_set_takes_plain_connections_and_refuses_tls_in_words() -> None:
    tls = tls_of().accepting()
    assert tls.mode is TlsMode.permissive
    assert tls.refusal(is_tls=False) == ""
    assert "tls.server.certPath" in tls.refusal(is_tls=True)
    assert tls_of().connecting() is None


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"server__mode": "enforcing"}, "enforcing needs tls.server.certPath"),
        ({"server__mode": "ENFORCING"}, "is not one of disabled, permissive, enforcing"),
        ({"server__certPath": "a.pem"}, "tls.server.certPath and tls.server.keyPath need each other"),
        ({"client__keyPath": "a.key"}, "tls.client.certPath and tls.client.keyPath need each other"),
        ({"server__need__client__auth": "require"}, "require needs tls.server.trustCertPath"),
    ],
)
def test_what_must_go_together(settings: dict[str, str], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        tls_of(**settings)


def test_what_has_no_effect_says_so() -> None:
    loaded = load((TlsConfig,), override_source(["tls.test.mode.enable=true"]))
    assert any("a certificate is never made up" in warning for warning in loaded.warnings)


@pytest.mark.parametrize("key", ["tls.ciphers", "tls.protocols", "tls.config.file"])
def test_a_key_that_promises_more_safety_than_there_is_stops_the_start(key: str) -> None:
    with pytest.raises(ConfigError, match=f"{key}=strict promises"):
        load((TlsConfig,), override_source([f"{key}=strict"]))


def test_the_password_is_not_shown() -> None:
    loaded = load((TlsConfig,), override_source([f"tls.server.keyPassword={secret_for('key')}"]))
    assert loaded.properties()["tls.server.keyPassword"] == "******"


def test_who_enforces_tls_among_its_own_also_speaks_it(tmp_path: Path) -> None:
    files = {"server__certPath": "a.pem", "server__keyPath": "a.key"}
    assert tls_of(server__mode="enforcing", **files).among_own().enable
    assert not tls_of(**files).among_own().enable


def test_files_that_do_not_do_are_named(tmp_path: Path) -> None:
    reason = unavailable()
    if reason:
        pytest.skip(reason)
    good, other = make_certificate(tmp_path, "good", password=secret_for("key")), make_certificate(tmp_path, "other")
    junk, missing = tmp_path / "junk.pem", tmp_path / "missing.pem"
    junk.write_text("no certificate")

    def problem(cert: Path, key: Path, **more: str) -> str:
        with pytest.raises(ConfigError) as caught:
            tls_of(server__certPath=str(cert), server__keyPath=str(key), **more).accepting()
        return str(caught.value)

    secret = {"server__keyPassword": secret_for("key")}
    assert tls_of(server__certPath=str(good.cert), server__keyPath=str(good.key), **secret).accepting().context
    assert f"tls.server.certPath={missing}: No such file" in problem(missing, good.key)
    assert f"tls.server.keyPath={missing}: No such file" in problem(good.cert, missing)
    assert f"tls.server.certPath={junk}" in problem(junk, other.key)
    assert "belong together" in problem(good.cert, other.key)
    assert "password" in problem(good.cert, good.key)
    assert "password" in problem(good.cert, good.key, server__keyPassword="wrong")
    auth = {"server__need__client__auth": "require"}
    found = problem(other.cert, other.key, server__trustCertPath=str(junk), **auth)
    assert f"tls.server.trustCertPath={junk}" in found
