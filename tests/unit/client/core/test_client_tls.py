"""What users say of TLS: flags, options and environment together, and the context that comes of it."""

from __future__ import annotations

import pickle
import shutil
import ssl
from pathlib import Path
from typing import Any

import pytest

import aerobee
from aerobee.client.core.tls import ClientTls, tls_of, variables_of
from aerobee.errors import ConfigError, InvalidArgumentError
from aerobee.testing.certificates import make_certificate, unavailable


@pytest.mark.parametrize(
    ("given", "environ", "found"),
    [
        ({}, {}, None),
        ({"tls": None, "ca": None}, {}, None),
        ({"tls": True}, {}, ClientTls()),
        ({"ca": "a"}, {}, ClientTls("a")),
        ({"insecure": True}, {}, ClientTls(insecure=True)),
        ({}, {"AEROBEE_TLS": "true"}, ClientTls()),
        ({}, {"AEROBEE_TLS_CA": "e", "AEROBEE_TLS_ANY_HOST": "1"}, ClientTls("e", any_host=True)),
        ({}, {"AEROBEE_TLS": "no", "AEROBEE_TLS_CA": "e"}, None),
        ({"tls": False}, {"AEROBEE_TLS": "true"}, None),
        ({"tls": False, "ca": "a"}, {}, None),
        ({"ca": "a"}, {"AEROBEE_TLS": "false"}, ClientTls("a")),
        ({"tls": True}, {"AEROBEE_TLS": "false", "AEROBEE_TLS_CA": "e"}, ClientTls("e")),
        ({"ca": "a"}, {"AEROBEE_TLS_CA": "e", "AEROBEE_TLS_CERT": "c"}, ClientTls("a", cert="c")),
    ],
)
def test_flags_count_before_the_environment(
    given: dict[str, Any], environ: dict[str, str], found: ClientTls | None
) -> None:
    assert tls_of(given, environ) == found


@pytest.mark.parametrize("tls", [None, ClientTls(), ClientTls("a", "b", "c", "d", True, True)])
def test_another_process_is_told_the_same(tls: ClientTls | None) -> None:
    environ = {name: value for name, value in variables_of(tls).items() if value is not None}
    assert tls_of({}, environ) == tls
    assert pickle.loads(pickle.dumps(tls)) == tls


def test_what_cannot_be_meant_is_said() -> None:
    with pytest.raises(InvalidArgumentError, match="tls-key needs tls-cert"):
        tls_of({"key": "k"}, {})
    with pytest.raises(InvalidArgumentError, match="AEROBEE_TLS: 'maybe'"):
        tls_of({}, {"AEROBEE_TLS": "maybe"})
    with pytest.raises(ConfigError, match=r"tls-ca=nowhere\.pem: No such file"):
        ClientTls("nowhere.pem").context()
    assert "hush" not in repr(ClientTls("a", "b", "c", "hush"))


def test_a_context_is_kept_until_its_files_change(tmp_path: Path) -> None:
    reason = unavailable()
    if reason:
        pytest.skip(reason)
    one, other = make_certificate(tmp_path, "one"), make_certificate(tmp_path, "other")
    ca, both = tmp_path / "ca.pem", tmp_path / "both.pem"
    shutil.copy(one.cert, ca)
    both.write_bytes(one.cert.read_bytes() + one.key.read_bytes())
    first = ClientTls(str(ca), cert=str(both)).context()
    assert first.check_hostname and first.verify_mode == ssl.CERT_REQUIRED
    assert ClientTls(str(ca), cert=str(both)).context() is first
    shutil.copy(other.cert, ca)
    renewed = ClientTls(str(ca), cert=str(both)).context()
    assert renewed is not first
    assert dict(renewed.get_ca_certs()[0])["subject"] == ((("commonName", "other"),),)
    assert not ClientTls(str(ca), any_host=True).context().check_hostname
    assert ClientTls(insecure=True).context().verify_mode == ssl.CERT_NONE


def test_python_clients_take_a_context_a_word_or_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    own = ssl.create_default_context()
    assert aerobee.Producer("a:1").client_config.tls is None
    assert aerobee.Producer("a:1", tls=own).client_config.tls is own
    told = aerobee.Producer("a:1", tls=True).client_config.tls
    assert told is not None and told.check_hostname
    monkeypatch.setenv("AEROBEE_TLS_INSECURE", "true")
    around = aerobee.Producer("a:1").client_config.tls
    assert around is not None and around.verify_mode == ssl.CERT_NONE
    assert aerobee.Producer("a:1").client_config == aerobee.Producer("a:1").client_config, "they share a core"
    assert aerobee.Producer("a:1", tls=False).client_config.tls is None
